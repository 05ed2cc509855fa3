"""What is fuzzed for its cost: functions of bytes, whose time and memory their bytes bound.

    time of the processor  <= 50 ms + 40 us a byte
    memory                 <= 8 MiB + 96 bytes a byte

Each takes any bytes, and ends in a value or in an error that it declares. `Search` looks for the
input that costs the most a byte: it changes what has cost the most so far, and keeps what costs
more. `tests/fuzz/run.py costs` has the coverage of code lead to others.

    python -m tests.fuzz.costs TARGET SECONDS

The bound is far above what is known to be needed, and far below what was found by looking: 200 ms
a byte for a regular expression, and years for another one.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from yarl import URL

from odradek.broker.coordination.expressions import compile_expression, is_quick, matched
from odradek.broker.security.tls.names import rfc2253_name
from odradek.broker.telemetry.series import read_push
from odradek.broker.telemetry.walk import InvalidPayload, PayloadTooLarge
from odradek.broker.web.requests import Parameters, Problem
from odradek.config.broker import BrokerConfig
from odradek.config.client_metrics import ATTRIBUTES, InvalidSubscription, read_subscription
from odradek.config.dynamic import check_dynamic
from odradek.config.effective import resolve_broker, resolve_topic
from odradek.config.errors import ConfigError
from odradek.config.jaas import parse_jaas
from odradek.config.option import Option, options_of
from odradek.config.resolution import Layer, Source
from odradek.config.sasl import SaslConfig
from odradek.config.tls import TlsConfig
from odradek.config.topic import TopicConfig
from odradek.protocol.batch_records import record_section
from odradek.protocol.batches import batch_crc, iterate_batches
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ProtocolError
from tests.fuzz import targets
from tests.fuzz.targets import Target

TIME_S, TIME_S_PER_BYTE = 0.050, 40e-6
MEMORY_BYTES, MEMORY_PER_BYTE = 8 << 20, 96
SIZE_MAX = 1 << 15
# So that the shortest input does not win by what every call takes.
_LEAST_BYTES = 1 << 10
# Code that notes which lines are reached takes up to so many times as long.
_COVERAGE_FACTOR = 20
_POOL_MAX = 40
_CORPUS = Path(__file__).parent / "corpus"
_NAMES = [f"some.topic.name-{number}" for number in range(20)] + ["a" * 249]
_OPTIONS: list[Option] = [
    one for cls in (TopicConfig, BrokerConfig, SaslConfig, TlsConfig) for one in options_of(cls)
]
# What a telemetry push may have (telemetry.max.bytes), and what a batch may unpack to here.
_PUSH_BYTES_MAX = 1 << 14
_UNPACKED_BYTES_MAX = 1 << 20


def batches(data: bytes) -> None:
    """Read bytes as batches, and unpack them; their records are the kernels' work."""
    with contextlib.suppress(ProtocolError):
        for position, header in iterate_batches(data):
            batch_crc(data, position, header.size_bytes)
            record_section(data, position, header, _UNPACKED_BYTES_MAX)


def parameters(data: bytes) -> None:
    """Read bytes as the query of a request for JSON."""
    with contextlib.suppress(Problem, ValueError):
        query = URL("http://h/?" + data.decode("latin-1")).query
        asked: Any = SimpleNamespace(query=query, transport=None)
        found = Parameters(asked, ("topic", "partition", "exact"))
        found.text("topic"), found.number("partition"), found.flag("exact", default=False)


def settings(data: bytes) -> None:
    """Read | option u16 | text | as the value of a setting, of a topic's and a broker's."""
    if len(data) < 2:
        return
    option = _OPTIONS[int.from_bytes(data[:2], "big") % len(_OPTIONS)]
    text = data[2:].decode("utf-8", "replace")
    with contextlib.suppress(ConfigError):
        option.read(text)
    values = dict(one.partition("=")[::2] for one in text.split(",")[:500])
    with contextlib.suppress(ConfigError):
        check_dynamic(values, per_broker=True)
        resolve_broker([Layer(Source.DYNAMIC_BROKER, values, {})])
    with contextlib.suppress(ConfigError):
        resolve_topic(values, [])


def jaas(data: bytes) -> None:
    """Read bytes as the login module of a listener."""
    with contextlib.suppress(ConfigError):
        parse_jaas(data.decode("utf-8", "replace"))


def expressions(data: bytes) -> None:
    """Compile bytes as a regular expression, and match at once what is matched at once."""
    import re2

    with contextlib.suppress(re2.error):
        pattern = compile_expression(data.decode("utf-8", "replace"))
        if is_quick(pattern, _NAMES):
            matched(pattern, _NAMES)


def subscriptions(data: bytes) -> None:
    """Read bytes as what clients a subscription is for, and look at one."""
    text = data.decode("utf-8", "replace")
    with contextlib.suppress(ConfigError, InvalidSubscription):
        read_subscription({"match": text}).matches(dict.fromkeys(ATTRIBUTES, "a" * 999))


def telemetry(data: bytes) -> None:
    """Read | codec u8 | bytes | as metrics that a client pushes."""
    if data:
        with contextlib.suppress(InvalidPayload, PayloadTooLarge):
            read_push(data[1:], Codec(data[0] % len(Codec)), _PUSH_BYTES_MAX)


def names(data: bytes) -> None:
    """Read bytes as the subject of a certificate."""
    with contextlib.suppress(ValueError):
        rfc2253_name(data)


COSTS: dict[str, Target] = {
    one.__name__: one
    for one in (
        targets.request, targets.frames, targets.compression, targets.logins, batches,
        parameters, settings, jaas, expressions, subscriptions, telemetry, names,
    )
}  # fmt: skip
# Where a target begins that has no corpus, and what is put into its inputs.
_SEEDS: dict[str, list[bytes]] = {
    "parameters": [b"topic=a&partition=1&exact=true", b"topic=%41%42+c&topic=b"],
    "settings": [
        b"\0\x01compact,delete", b"\0\x05cleanup.policy=compact,retention.ms=1",
        b"\x01\x01a:1,b:2", b"\0\x07log.retention.mz=1,log.retention.my=2",
    ],
    "jaas": [b'a.b.PlainLoginModule required user_a="b" user_b="c\\"d";', b"a required b='c';"],
    "expressions": [b"app-.*|b[a-z]+", b"(.*a){30}", b"(?i)\\pL+x{3,9}", b"(a?){20}b"],
    "subscriptions": [b"client_id=app-.*", b"client_id=(a+)+b,client_software_name=x"],
    "names": [bytes.fromhex("310c300a06035504030c03616263")],
    "telemetry": [b"\0\x0a\x06\x12\x04\x12\x02\x0a\0"],
}  # fmt: skip
_TOKENS = [
    b"(", b")", b".*", b"{1000}", b"a?", b"|", b"[a-z]", b"(.*a)*", b"+", b"\\pL", b",", b"=",
    b":", b" ", b'"', b"\\", b"%41", b"&", b"\0", b"\xff", b"\x80", b"\x7f", b"a", b"1", b"://",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cost:
    """What an input costs."""

    data: bytes
    time_s: float
    memory_bytes: int = 0

    @property
    def time_per_byte(self) -> float:
        """What it costs a byte, in seconds."""
        return self.time_s / (_LEAST_BYTES + len(self.data))

    @property
    def is_bounded(self) -> bool:
        """Return whether it is within the bound."""
        size = len(self.data)
        return (
            self.time_s <= TIME_S + TIME_S_PER_BYTE * size
            and self.memory_bytes <= MEMORY_BYTES + MEMORY_PER_BYTE * size
        )

    def __str__(self) -> str:
        return (
            f"{self.time_per_byte * 1e6:.2f} us a byte: {len(self.data)} bytes, "
            f"{self.time_s * 1e3:.1f} ms, {self.memory_bytes} bytes of memory, {self.data[:200]!r}"
        )


def time_of(target: Target, data: bytes) -> Cost:
    """Measure an input's time: the least of three, where the first is out of bounds."""
    least = float("inf")
    for _ in range(3):
        begun = time.thread_time()
        target(data)
        least = min(least, time.thread_time() - begun)
        if Cost(data, least).is_bounded:
            break
    return Cost(data, least)


def cost_of(target: Target, data: bytes) -> Cost:
    """Measure an input's time and the memory of Python's objects."""
    timed = time_of(target, data)
    tracemalloc.start()
    try:
        target(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return Cost(data, timed.time_s, peak)


def covered(data: bytes) -> None:
    """Fail where | which target u8 | input | costs far more than it may."""
    if data:
        target = list(COSTS.values())[data[0] % len(COSTS)]
        cost = time_of(target, data[1:])
        bound = Cost(data[1:], cost.time_s / _COVERAGE_FACTOR)
        assert bound.is_bounded, f"{target.__name__}: {cost}"


def seeds(name: str) -> list[bytes]:
    """Return what a search for a target begins with."""
    kept = [path.read_bytes() for path in sorted((_CORPUS / name).glob("*"))]
    return [*kept, *_SEEDS.get(name, ())]


class Search:
    """Looks for the input of a target that costs the most a byte."""

    def __init__(self, target: Target, begin: Iterable[bytes], seed: int = 0) -> None:
        self._target, self._random = target, random.Random(seed)
        target(b"")  # loads what loads late
        for data in begin:
            target(data)
        self._pool = sorted(
            (cost_of(target, data) for data in begin), key=_order, reverse=True
        )[:_POOL_MAX]
        self.count = 0

    @property
    def worst(self) -> Cost:
        """The input that costs the most a byte, of those that were found."""
        return self._pool[0]

    def unbounded(self) -> list[Cost]:
        """Return the inputs that cost more than they may."""
        return [one for one in self._pool if not one.is_bounded]

    def run(self, is_over: Callable[[], bool]) -> None:
        """Search until it is over, or an input is out of bounds."""
        while not is_over() and not self.unbounded():
            self.count += 1
            data = self._changed(self._pick().data)
            cost = time_of(self._target, data)
            if len(self._pool) < _POOL_MAX or _order(cost) > _order(self._pool[-1]):
                self._pool.append(cost_of(self._target, data))
                self._pool.sort(key=_order, reverse=True)
                del self._pool[_POOL_MAX:]

    def _pick(self) -> Cost:
        """Return an input to go on with, rather one that costs much."""
        at = min(self._random.randrange(len(self._pool)), self._random.randrange(len(self._pool)))
        return self._pool[at]

    def _changed(self, data: bytes) -> bytes:
        chance = self._random
        made = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            start = chance.randint(0, len(made))
            end = min(len(made), start + chance.choice((1, 2, 4, 16, 64, 1024)))
            kind = chance.randrange(6)
            if kind == 0 and start < len(made):
                made[start] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
            elif kind == 1:
                del made[start:end]
            elif kind == 2:  # what costs once may cost as often as it is there
                made[start:start] = made[start:end] * chance.choice((1, 2, 8, 64, 512))
            elif kind == 3:
                made[start:start] = chance.choice(_TOKENS) * chance.choice((1, 1, 3, 100))
            elif kind == 4:
                other = self._pick().data
                made[start:end] = other[chance.randint(0, len(other)) :]
            elif kind == 5:
                made[start:start] = chance.randbytes(chance.randint(1, 8))
            del made[SIZE_MAX:]
        return bytes(made)


def search_for(name: str, seconds: float, seed: int = 0) -> Search:
    """Search for a while."""
    search = Search(COSTS[name], seeds(name), seed)
    end_s = time.monotonic() + seconds
    search.run(lambda: time.monotonic() >= end_s)
    return search


def _order(cost: Cost) -> float:
    return cost.time_per_byte


if __name__ == "__main__":
    found = search_for(sys.argv[1], float(sys.argv[2]))
    print(f"{sys.argv[1]}: {found.count} inputs; the dearest: {found.worst}")
    sys.exit(1 if found.unbounded() else 0)
