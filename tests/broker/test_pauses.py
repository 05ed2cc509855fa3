"""Where long requests stand still: in handlers and in codecs, in the middle of nothing else.

Others are served while a request stands still. So a coordinator's decision, a stored change and an
append must be in one piece, with all that they call.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from inspect import CO_GENERATOR
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

import pytest

from odradek.broker.api_table import APIS
from odradek.protocol.pacing import Worker
from tests.broker.costly import forms
from tests.broker.live import client, create, live, on_uvloop

T = TypeVar("T")

PRODUCT = Path(__file__).parent.parent.parent / "odradek"
# What may stand still, in the middle of a loop or by calling what does.
MAY_PAUSE = (
    "broker/apis/",
    "broker/context.py",
    "broker/answers/described_groups.py",
    "broker/loop/disposal.py",
    "broker/loop/repeats.py",
    # Changes of the metadata, while no other can be: each is decided, then written, then in force.
    "broker/metadata/changes.py",
    "broker/answers/config_operations.py:alteration",
    "broker/answers/config_operations.py:carry_out",
    "broker/answers/config_operations.py:_check",
    "broker/answers/config_operations.py:_failure",
    "broker/answers/config_operations.py:_in_order",
    "broker/answers/config_operations.py:_set_levels",
    "broker/answers/config_operations.py:_unknown_operation",
    "broker/metadata/configs.py:Configs._alter",
    "broker/metadata/features.py:Features._update",
    "broker/metadata/resource_configs.py:ResourceConfigs._alter",
    "broker/metadata/resource_configs.py:ResourceConfigs.follow",
    "broker/security/tokens.py:DelegationTokens.create",
    "broker/security/acl_changes.py:AclChanges._create",
    "broker/security/acl_changes.py:AclChanges._delete",
    "broker/security/quotas/composition.py:QuotaTable._alter",
    "broker/security/quotas/entities.py:entity_hash",
    "broker/security/quotas/entities.py:entity_of",
    "broker/security/quotas/entities.py:named_entity",
    "broker/security/salts.py:forms_of",
    "broker/security/scram_changes.py:plan_changes",
    "broker/security/scram_users.py:ScramUsers.change",
    "broker/security/scram_users.py:ScramUsers._count",
    "broker/topics/plans.py:plan_topics",
    "broker/topics/registry.py:Topics._alter_configs",
    "broker/topics/registry.py:Topics._create",
    "broker/topics/registry.py:Topics._delete",
    "broker/topics/registry.py:Topics._enlarge",
    "broker/fetch/responses.py:by_topic",
    "broker/fetch/wanted.py:wanted_partitions",
    "broker/network/charging.py",
    "broker/network/serving.py",
    "broker/loop/slices.py",
    "broker/orders/hash_map.py:concurrent_order",
    "broker/orders/java.py:hash_order",
    "broker/orders/java.py:place_order",
    "broker/orders/maps.py",
    "broker/orders/scala.py",
    "broker/groups/share/coordinator.py:ShareGroupCoordinator.summarize",
    # Between two batches, of which none is a transaction's.
    "broker/produce/appending.py:Appending.begin",
    # With a copy of what is read.
    "broker/groups/commits.py:fetch",
    "broker/groups/commits.py:_fetch_topic",
    "broker/groups/coordinator.py:GroupCoordinator.fetch",
    # Refusals, where nothing is decided.
    "broker/groups/commits.py:refusal",
    "broker/groups/commits.py:refused_topic",
    "broker/groups/deletion.py:answered",
    # Between two parts of a request, each of which is decided by itself.
    "broker/groups/parts.py",
    "broker/groups/transactional.py:refusal",
    "broker/groups/transactional.py:refused_topic",
    "broker/groups/transactional.py:_answered",
    "broker/groups/coordinator.py:GroupCoordinator.consumer_heartbeat",
    "broker/groups/modern/subscriptions.py:check_names",
    "broker/groups/coordinator.py:GroupCoordinator.commit",
    "broker/groups/coordinator.py:GroupCoordinator.list_groups",
    "broker/groups/coordinator.py:GroupCoordinator._commit_",
    "broker/groups/coordinator.py:GroupCoordinator.in_asking_order",
    "broker/shares/batches.py:flaw_of",
    # Between two answers, of which each may have to be waited for.
    "broker/shares/state_coordinator.py:all_of",
    "broker/groups/share/coordinator.py:ShareGroupCoordinator.alter_offsets",
    "broker/groups/share/coordinator.py:ShareGroupCoordinator.delete",
    "broker/groups/share/coordinator.py:ShareGroupCoordinator.delete_offsets",
    "broker/groups/share/coordinator.py:ShareGroupCoordinator._forget",
    # The filters of a request, and the topics that it names.
    "broker/groups/listing.py:GroupFilter.of",
    "broker/groups/streams/topology.py:named_topics",
    # Between two partitions, each of which decides for itself.
    "broker/shares/replies.py:acknowledge_all",
    "broker/shares/replies.py:Acknowledging.results",
    "broker/shares/replies.py:readable",
    "broker/shares/state_requests.py:ask_each",
    "broker/shares/state_requests.py:_by_topic",
    # A request's filters, and what is listed already.
    "broker/transactions/coordinator.py:TransactionCoordinator.list_transactions",
    "broker/transactions/coordinator.py:TransactionCoordinator._list_matched",
    "broker/transactions/listing.py:_filters",
    "broker/transactions/listing.py:listed",
    "broker/transactions/listing.py:passing",
    # They await between two markers, and between two partitions, too.
    "broker/transactions/markers.py:MarkerWriter.write_all",
    "broker/transactions/markers.py:MarkerWriter._begin",
    "protocol/compiler.py",
    "protocol/frames.py",
    "protocol/pacing.py",
    "protocol/wire.py",
)
SIZE_BYTES = 6_000  # shorter ones of Produce and Fetch are served in one piece


class Pauses:
    """Notes the functions on the stack whenever a worker may stand still."""

    def __init__(self) -> None:
        self.places: set[str] = set()
        self.count = 0
        self._codes: set[CodeType] = set()

    def pace(self, items: Iterable[T]) -> Iterator[T]:
        """Yield items as Worker.pace does, without a pause."""
        last: FrameType | None = None
        for item in items:
            yield item
            self.count += 1
            frame = sys._getframe(1)
            # The callers of a function, other than those of a generator, stay the same.
            if frame is not last or frame.f_code.co_flags & CO_GENERATOR:
                last = frame
                self._note_stack(frame)

    def _note_stack(self, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code not in self._codes:
                self._note(frame.f_code)
            frame = frame.f_back

    def _note(self, code: CodeType) -> None:
        path = Path(code.co_filename)
        self._codes.add(code)
        if path.is_relative_to(PRODUCT):
            self.places.add(f"{path.relative_to(PRODUCT)}:{code.co_qualname}")


@on_uvloop
async def test_requests_stand_still_in_handlers_and_codecs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = Pauses()
    monkeypatch.setattr(Worker, "pace", lambda _, items: pauses.pace(items))
    known: dict[str, list[Any]] = {name: ["t"] for name in ("name", "topic", "topic_name")}
    async with live(tmp_path) as broker:
        known |= {"group_id": ["g"], "topic_id": [(await create(broker, "t", 3)).topic_id]}
        for api in APIS:
            for form in forms(api, api.last, known, SIZE_BYTES, ["known"]):
                async with client(broker) as one:
                    one.send_bytes(form.frame())
                    one.end()
                    await one.read_all()
    assert pauses.count > 10_000
    others = {place for place in pauses.places if not place.startswith((*MAY_PAUSE, "tests/"))}
    assert not others, sorted(others)
