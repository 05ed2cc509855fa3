"""The responses of a group to its members."""

from __future__ import annotations

from odradek.broker.groups.membership import Member
from odradek.broker.groups.state import ClassicGroup
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from odradek.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from odradek.protocol.messages.list_groups import ListedGroup
from odradek.protocol.messages.sync_group import SyncGroupResponse

# From this version of JoinGroup on, the protocol's name may be null.
_NULLABLE_PROTOCOL_VERSION = 7
# From this version of DescribeGroups on, an unknown group is an error (KIP-1043).
_UNKNOWN_GROUP_VERSION = 6
# ListGroups' name for the type of a group of the classic protocol.
GROUP_TYPE = "classic"


def joined(
    group: ClassicGroup, member: Member, *, with_members: bool = True, skips: bool = False
) -> JoinGroupResponse:
    """Return a member's generation; for the leader also all members, to assign partitions."""
    membership = group.membership
    leads = membership.leader_id == member.member_id
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol or "",
        leader=membership.leader_id or "",
        skip_assignment=skips and leads,
        member_id=member.member_id,
        members=_members(group) if leads and with_members else [],
    )


def join_error(error: ErrorCode, member_id: str = "", *, api_version: int) -> JoinGroupResponse:
    """Return the refusal of a JoinGroup."""
    return JoinGroupResponse(
        error_code=error,
        leader="",
        member_id=member_id,
        members=[],
        protocol_name=None if api_version >= _NULLABLE_PROTOCOL_VERSION else "",
    )


def synced(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    """Return a member's assignment."""
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )


def sync_error(error: ErrorCode) -> SyncGroupResponse:
    """Return the refusal of a SyncGroup."""
    return SyncGroupResponse(error_code=error, assignment=b"")


def described(group: ClassicGroup) -> DescribedGroup:
    """Describe a group; its protocol is included only while the group is Stable."""
    stable_protocol = (group.protocol or "") if group.state.value == "Stable" else ""
    members = [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(stable_protocol) if stable_protocol else b"",
            member_assignment=member.assignment,
        )
        for member in group.membership.in_order()
    ]
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=stable_protocol,
        members=members,
    )


def described_as_unknown(
    group_id: str, why: str = "not found", *, api_version: int
) -> DescribedGroup:
    """Describe a missing group as Dead; later versions also get an error."""
    if api_version < _UNKNOWN_GROUP_VERSION:
        return described_error(group_id, ErrorCode.NONE, state="Dead")
    described = described_error(group_id, ErrorCode.GROUP_ID_NOT_FOUND, state="Dead")
    described.error_message = f"Group {group_id} {why}."
    return described


def described_error(group_id: str, error: ErrorCode, *, state: str = "") -> DescribedGroup:
    """Return the description of a group that an error prevents."""
    return DescribedGroup(
        error_code=error,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=[],
    )


def listed(group: ClassicGroup) -> ListedGroup:
    """Return a group's entry in a list."""
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=GROUP_TYPE,
    )


def _members(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    protocol = group.protocol or ""
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(protocol),
        )
        for member in group.membership.in_order()
    ]
