"""The features of the cluster: what is announced, what may be finalized, what a restart keeps."""

from __future__ import annotations

from pathlib import Path

from odradek.broker.apis import api_versions, describe_quorum, update_features
from odradek.broker.metadata.features import FEATURES
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    RequestedPartitionData,
    RequestedTopicData,
)
from odradek.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker.admin import NODE_ID, Admin, admin, create, versions
from tests.support.requests import creatable

ELR = "eligible.leader.replicas.version"
UPGRADE, SAFE = 1, 2


async def ask(broker: Admin, version: int = 4) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    answer: ApiVersionsResponse = await broker.call(api_versions.handle, request, version)
    return answer


async def finalized(broker: Admin) -> dict[str, int]:
    return {one.name: one.max_version_level for one in (await ask(broker)).finalized_features}


async def update(
    broker: Admin, *levels: tuple[str, int, int], version: int = 2, validate_only: bool = False
) -> int:
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in levels
        ],
        validate_only=validate_only,
    )
    code: int = (await broker.call(update_features.handle, request, version)).error_code
    return code


def test_the_default_levels_of_features_are_supported() -> None:
    assert all(one.first <= one.default <= one.last for one in FEATURES)


async def test_clients_are_not_led_to_what_is_not_served(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        levels = await finalized(broker)
        assert "kraft.version" not in levels


@versions(18, first=3)
async def test_version_3_leaves_out_what_its_clients_cannot_read(
    tmp_path: Path, version: int
) -> None:
    async with admin(tmp_path) as broker:
        names = {one.name for one in (await ask(broker, version)).supported_features}
        assert (ELR in names) == (version > 3)
        assert "metadata.version" in names


async def test_a_finalized_level_survives_a_restart(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        before = (await ask(broker)).finalized_features_epoch
        assert await update(broker, (ELR, 0, SAFE)) == 0
        assert ELR not in await finalized(broker)
    async with admin(tmp_path) as broker:
        answer = await ask(broker)
        assert answer.finalized_features_epoch > before
        assert ELR not in await finalized(broker)


async def test_validating_changes_nothing(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        assert await update(broker, (ELR, 0, SAFE), validate_only=True) == 0
        assert (await finalized(broker))[ELR] == 1


async def test_all_of_the_updates_are_made_or_none(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        code = await update(broker, (ELR, 0, SAFE), ("kraft.version", 1, UPGRADE))
        assert code == ErrorCode.INVALID_UPDATE_VERSION
        assert (await finalized(broker))[ELR] == 1


@versions(55)
async def test_the_quorum_is_this_broker(tmp_path: Path, version: int) -> None:
    async with admin(tmp_path) as broker:
        request = DescribeQuorumRequest(
            topics=[
                RequestedTopicData(
                    topic_name="__cluster_metadata",
                    partitions=[RequestedPartitionData(partition_index=0)],
                )
            ]
        )
        seen = []
        for name in ("a", "b"):
            answer = await broker.call(describe_quorum.handle, request, version)
            (topic,) = answer.topics
            (state,) = topic.partitions
            assert state.leader_id == NODE_ID
            assert [one.replica_id for one in state.current_voters] == [NODE_ID]
            seen.append(state.high_watermark)
            await create(broker, creatable(name))
        assert seen[0] < seen[1]
