"""A few kilobytes of records never hold the event loop: work that is large goes to a thread.

Each batch here took the loop seconds before: what it costs is not in its bytes but in what they
say. The CPU time of the loop's own thread is measured, so that a busy machine changes nothing.
"""

from __future__ import annotations

import random
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
import zstandard

from bench.processes import OdradekProcess
from odradek.protocol.compression import Codec, compress
from odradek.protocol.records_plain import encode_varint
from tests.broker.doors import DOORS
from tests.broker.kafka_peer import Peer
from tests.broker.memory import load_kernels, peak_bytes, reset_peak
from tests.broker.raw_batches import RawBatch, RawRecord
from tests.support.asking import create_topics
from tests.support.forking import ForkedOdradek
from tests.support.requests import creatable, producing

pytestmark = pytest.mark.slow

DOOR = DOORS["open"]
NOW_MS = 1_700_000_000_000
# Each of the requests below held the loop for 1.5 to 50 s; a request may take 20 ms of it,
# several times that on a machine that is busy with other things.
LOOP_SECONDS_MAX = 0.4
# Two batches are looked at together, each of up to odradek.append.decompressed.bytes.max.
GROWTH_MAX_BYTES = 400 << 20
MILLIONS = 1_000_000
# Within what message.timestamp.after.max.ms lets pass, and never too late.
FUTURE_MS = 600_000
PATIENCE_S = 100.0
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "punctual": {"message.timestamp.before.max.ms": "1000"},
    "lz4-high": {"compression.type": "lz4", "compression.lz4.level": "17"},
    "gzip-high": {"compression.type": "gzip", "compression.gzip.level": "9"},
}


def _batch(records: bytes, count: int = 1, codec: Codec = Codec.ZSTD, **more: int) -> bytes:
    packed = _zstd(records) if codec is Codec.ZSTD else compress(codec, records)
    return RawBatch(
        codec=codec,
        packed=packed,
        count=count,
        last_offset_delta=count - 1,
        **{"base_timestamp": NOW_MS, **more},
    ).encode()


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=3).compress(data)


def _with_headers(count: int, key: bytes | None = b"k", timestamp_delta: int = 0) -> bytes:
    return RawRecord(
        key=key, header_count=count, headers=bytes(2 * count), timestamp_delta=timestamp_delta
    ).encode(0)


@cache
def _tiny_records(count: int) -> bytes:
    """Return records of as few bytes as can be, each with an empty key."""
    parts = []
    for index in range(count):
        body = b"\x00\x00" + encode_varint(index) + b"\x00\x01\x00"  # no value
        parts.append(encode_varint(len(body)) + body)
    return b"".join(parts)


def _xerial_of_nothing() -> bytes:
    head = struct.pack(">8sii", b"\x82SNAPPY\x00", 1, 1)
    return head + (struct.pack(">i", 1) + b"\x00") * 200_000


def _zstd_of_nothing() -> bytes:
    return _zstd(b"") * 100_000


def _zstd_blocks_of_nothing() -> bytes:
    return b"\x28\xb5\x2f\xfd\x00\x58" + b"\x00\x00\x00" * 333_000 + b"\x01\x00\x00"


def _gzip_of_nothing() -> bytes:
    return zlib.compress(b"", wbits=31) * 50_000


def _many_members(codec: Codec, packed: Callable[[], bytes]) -> list[bytes]:
    batch = RawBatch(codec=codec, packed=packed(), base_timestamp=NOW_MS).encode()
    return [batch] * 40


def _chains(size: int) -> bytes:
    """Return data with very many places that look alike: compressors compare with each."""
    source = random.Random(3)
    letters = bytes(source.choice(b"aaaaaaab") for _ in range(70_000))
    return (letters * (size // len(letters) + 1))[:size]


ATTACKS: dict[str, tuple[str, Callable[[], list[bytes]]]] = {
    "headers without a key": (
        "compacted", lambda: [_batch(_with_headers(30 * MILLIONS, key=None))],
    ),
    "headers too late": (
        "punctual", lambda: [_batch(_with_headers(3 * MILLIONS, timestamp_delta=-2000))],
    ),
    "headers without a time": (
        "punctual",
        lambda: [
            _batch(
                RawRecord(timestamp_delta=-NOW_MS - 1).encode(0)
                + RawRecord(
                    timestamp_delta=-2000, header_count=5 * MILLIONS, headers=bytes(10 * MILLIONS)
                ).encode(1),
                2,
            )
        ],
    ),
    "sound headers": ("plain", lambda: [_batch(_with_headers(30 * MILLIONS))]),
    "sound records": ("plain", lambda: [_batch(_tiny_records(MILLIONS), MILLIONS)]),
    "records without a time": (
        "punctual", lambda: [_batch(_tiny_records(MILLIONS), MILLIONS, base_timestamp=-1)],
    ),
    "xerial blocks": ("plain", lambda: _many_members(Codec.SNAPPY, _xerial_of_nothing)),
    "zstd frames": ("plain", lambda: _many_members(Codec.ZSTD, _zstd_of_nothing)),
    "zstd blocks": ("plain", lambda: _many_members(Codec.ZSTD, _zstd_blocks_of_nothing)),
    "gzip members": ("plain", lambda: _many_members(Codec.GZIP, _gzip_of_nothing)),
    "recompressed to lz4": (
        "lz4-high", lambda: [_batch(RawRecord(value=_chains(2 << 20)).encode(0))],
    ),
    "recompressed to gzip": (
        "gzip-high", lambda: [_batch(RawRecord(value=_chains(2 << 20)).encode(0))],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def warm_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OdradekProcess]:
    """A broker whose kernels are loaded."""
    with running(tmp_path_factory.mktemp("broker")) as broker:
        load_kernels(broker, DOOR.client_settings)
        yield broker


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_batch_holds_the_loop_or_fills_the_memory(
    warm_broker: OdradekProcess, attack: str
) -> None:
    send(warm_broker, attack)


@pytest.mark.parametrize("attack", ["sound headers", "sound records", "headers without a key"])
def test_no_batch_holds_the_loop_before_the_kernels_are_loaded(
    tmp_path: Path, attack: str
) -> None:
    with running(tmp_path) as broker:
        send(broker, attack)


@contextmanager
def running(directory: Path) -> Iterator[OdradekProcess]:
    """Run a broker with the topics that the batches are for."""
    broker = ForkedOdradek(directory, {"message.max.bytes": "2000000"}, log_level="DEBUG")
    broker.start()
    with DOOR.connect(broker.port) as peer:
        for name, configs in TOPICS.items():
            create_topics(peer, creatable(name, 40, configs=configs))
    yield broker
    broker.stop()
    assert "Traceback" not in broker.log_text()


def send(broker: OdradekProcess, attack: str) -> None:
    """Produce the batches of an attack: within bounds of time and memory, and with answers."""
    topic, make = ATTACKS[attack]
    batches = make()
    _produce_one(broker, topic)
    before_bytes, before_s = reset_peak(broker), loop_seconds(broker)
    with DOOR.connect(broker.port) as peer:
        peer.socket.settimeout(PATIENCE_S)
        codes = _produce(peer, topic, batches)
    assert loop_seconds(broker) - before_s < LOOP_SECONDS_MAX
    assert peak_bytes(broker) - before_bytes < GROWTH_MAX_BYTES
    assert len(codes) == len(batches)
    _produce_one(broker, topic)


def loop_seconds(broker: OdradekProcess) -> float:
    """Return the CPU time of the event loop's thread, which is the process's first."""
    assert broker.process is not None
    pid = broker.process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def _produce_one(broker: OdradekProcess, topic: str) -> None:
    """Have a sound batch appended: all that serves a first request is loaded then."""
    with DOOR.connect(broker.port) as peer:
        now_ms = time.time_ns() // 1_000_000
        batch = RawBatch(base_timestamp=now_ms + FUTURE_MS, codec=Codec.ZSTD).encode()
        assert _produce(peer, topic, [batch]) == [0]


def _produce(peer: Peer, topic: str, batches: list[bytes]) -> list[int]:
    request = producing(topic, dict(enumerate(batches)), acks=1)
    (answered,) = peer.ask(request, 9).responses
    return [one.error_code for one in answered.partition_responses]
