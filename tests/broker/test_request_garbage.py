"""No request leaves objects behind that only a search for garbage frees.

    objects in cycles after a request and its answer <= 150, whatever its size

Python frees an object with its last reference, and large messages are freed a few items at a
time. A cycle, such as that of an error, its traceback and a frame that refers to the error, keeps
all objects of a request, until a search frees them in one piece: 220,000 objects of a request of
1 MB held the event loop for 150 ms.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.processes import OdradekProcess
from odradek.broker.api_table import APIS
from odradek.broker.composition import Broker
from tests.broker.costly import STYLES, forms
from tests.broker.crowded import NARROW, WIDE, Crowded
from tests.broker.live import client, live, on_uvloop
from tests.broker.test_costs import PARKED
from tests.support.waiting import until

SHORT_BYTES, LONG_BYTES = 6_000, 1_000_000
OBJECTS_MAX = 150
# Here nothing exists: names that others know are made up.
MAIN_STYLES = ("empty", "known", "one-known")

pytestmark = pytest.mark.slow


@on_uvloop
async def test_no_request_leaves_garbage_by_its_size(tmp_path: Path) -> None:
    await _sweep(tmp_path, SHORT_BYTES, MAIN_STYLES)


@pytest.mark.fuzz
@pytest.mark.timeout(1_800)
@on_uvloop
async def test_no_large_request_leaves_garbage_by_its_size(tmp_path: Path) -> None:
    await _sweep(tmp_path, LONG_BYTES, STYLES)


async def _sweep(path: Path, size_bytes: int, styles: Sequence[str]) -> None:
    crowded = Crowded(OdradekProcess(path / "none"))
    crowded.topic_ids = dict.fromkeys((WIDE, *NARROW), bytes(16))
    left: dict[str, Any] = {}
    async with live(path) as broker:
        for api in APIS:
            if api.name in PARKED:
                continue
            for form in forms(api, api.last, crowded.known(api.name), size_bytes, styles):
                with _frozen():
                    found = await _garbage(broker, form.frame())
                    if found.total() > OBJECTS_MAX:  # modules that it has loaded, perhaps
                        found = await _garbage(broker, form.frame())
                if found.total() > OBJECTS_MAX:
                    left[str(form)] = found.most_common(4)
    assert not left


async def _garbage(broker: Broker, frame: bytes) -> Counter[str]:
    """Return the kinds of the objects that a request leaves, and how many there are of each."""
    async with client(broker) as one:
        one.send_bytes(frame)
        one.end()
        await one.read_all()
    await until(lambda: not broker.server.connections, "the connection is forgotten")
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    found = Counter(type(one).__name__ for one in gc.garbage)
    gc.garbage.clear()
    gc.collect()
    return found


@contextmanager
def _frozen() -> Iterator[None]:
    """Look for garbage among new objects alone, and only when asked to."""
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
