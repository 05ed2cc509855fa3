"""What a request costs is bounded by its bytes, whatever they say.

    time of the event loop <= 60 ms + 10 us for each byte of the request and its response
    resident memory        <= 16 MiB + 64 bytes for each of them

A byte may be an element of an array, with an answer of its own, and no handler in Python takes
less than some microseconds for one. On an idle machine the most is 4 us for a byte (entries of
AlterClientQuotas without anything in them). What multiplied the parts of a request with one
another, or with what the broker keeps, took 39 us and more at 32 KB, and grew with the request.

Every API that is advertised is swept, with requests made of its declaration. The end of a
transaction does what earlier requests asked for, partition by partition: their bytes count.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import pytest

from odradek.broker.api_table import APIS, Api
from odradek.protocol.messages import message_classes
from odradek.protocol.schema import info_of
from tests.broker.cost import Cost, check_serves, measure
from tests.broker.costly import MAIN_STYLES, STYLES, Form, forms
from tests.broker.crowded import WIDE_COUNT, Crowded, crowded_broker, serving

LOOP_S = 0.060
LOOP_S_PER_BYTE = 10e-6
MEMORY_BYTES = 16 << 20
MEMORY_PER_BYTE = 64
# They may wait for other members, or be without an answer: acks is 0 where nothing is said.
PARKED = ("JoinGroup", "SyncGroup", "Produce")
SHORT_BYTES, LONG_BYTES = 16_000, 1_000_000
# A marker for each partition that the transaction has; four bytes named it when it was added.
ADDED_BYTES = {"EndTxn": 4 * WIDE_COUNT}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowded]:
    """A broker with much in it, which has loaded its kernels."""
    with serving(crowded_broker(tmp_path_factory.mktemp("broker"))) as made:
        yield made


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_time_and_memory_are_bounded_by_the_bytes(crowded: Crowded, api: Api) -> None:
    _sweep(crowded, api, SHORT_BYTES, [api.last], MAIN_STYLES)


@pytest.mark.fuzz
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_time_and_memory_of_long_requests_are_bounded_by_the_bytes(
    crowded: Crowded, api: Api
) -> None:
    first = info_of(message_classes(api.name)[0]).versions.first
    _sweep(crowded, api, LONG_BYTES, sorted({first, api.last}), STYLES)


def _sweep(
    crowded: Crowded, api: Api, size_bytes: int, versions: list[int], styles: Sequence[str]
) -> None:
    costs: list[tuple[Form, Cost]] = []
    for version in versions:
        for form in forms(api, version, crowded.known(api.name), size_bytes, styles):
            cost = measure(
                crowded.process,
                crowded.connect,
                form.frame(),
                waits=api.name not in PARKED,
                weighs=True,
            )
            costs.append((form, cost))
    check_serves(crowded.connect)
    if os.environ.get("COSTS"):  # prints the dearest: COSTS=1 pytest -s
        for dear in ("loop_s", "memory_bytes"):
            form, cost = max(costs, key=lambda one: getattr(one[1], dear))
            print(f"\n{dear}: {form} {cost}")
    earlier_bytes = ADDED_BYTES.get(api.name, 0)
    assert not [(str(form), cost) for form, cost in costs if not _is_cheap(cost, earlier_bytes)]


def _is_cheap(cost: Cost, earlier_bytes: int) -> bool:
    size_bytes = cost.bytes + earlier_bytes
    return (
        cost.loop_s <= LOOP_S + LOOP_S_PER_BYTE * size_bytes
        and cost.memory_bytes <= MEMORY_BYTES + MEMORY_PER_BYTE * size_bytes
    )
