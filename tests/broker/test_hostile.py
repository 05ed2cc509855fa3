"""What is sent to do harm is refused, in bounded memory, with and without authentication.

Lies about lengths and counts within a batch are compared with Kafka in test_append_against_kafka;
bytes of no meaning are in test_any_bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import pytest

from bench.processes import OdradekProcess
from odradek.config.topic import TopicConfig
from odradek.protocol.batches import Record
from odradek.protocol.compression import Codec, compress
from odradek.protocol.errors import ErrorCode
from odradek.protocol.frames import encode_request
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from tests.broker.doors import DOORS, Door
from tests.broker.kafka_peer import Peer
from tests.broker.memory import LOADING_TOPIC, load_kernels, peak_bytes, reset_peak
from tests.broker.raw_batches import RawBatch, RawRecord, section
from tests.protocol.legacy_messages import encode_entry, encode_wrapper
from tests.support.forking import ForkedOdradek
from tests.support.requests import creating, describing, producing

pytestmark = pytest.mark.slow

TOPIC = "harmed"
# Twice the bound on what a batch may unpack to, and what it takes besides to look into one.
GROWTH_MAX_BYTES = 3 * TopicConfig().odradek_append_decompressed_bytes_max
# Just what fits into the largest batch that a producer may send.
_BOMB_BYTES = {
    Codec.GZIP: 900 << 20,
    Codec.SNAPPY: 18 << 20,
    Codec.LZ4: 200 << 20,
    Codec.ZSTD: 900 << 20,
}
NOW_MS = 1_700_000_000_000
REFUSED = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.INVALID_TIMESTAMP,
}
PATHS = (
    "..", ".", "../up", "a/../../b", "/etc/passwd", "a\0b", "a\\b", "C:", "~", "-", "a b",
    "\uff41", "é", "a" * 250, "", "%2e%2e%2f", "x\n", "$HOME", "nul\r",
)  # fmt: skip
# "-" is a name like any other, and %2e%2e has a character that no name may have.
LEGAL = {"-"}


@pytest.fixture(scope="module", params=DOORS, ids=str)
def door(request: pytest.FixtureRequest) -> Door:
    """A kind of listener."""
    return DOORS[request.param]


@pytest.fixture(scope="module")
def broker(door: Door, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OdradekProcess]:
    """A broker with a topic, that has loaded what it needs to look into batches."""
    running = ForkedOdradek(tmp_path_factory.mktemp("broker"), door.settings, log_level="DEBUG")
    running.start()
    with door.connect(running.port) as peer:
        made = peer.ask(creating(TOPIC), 5)
        assert [one.error_code for one in made.topics] == [0]
        for codec in Codec:
            assert _produce(peer, RawBatch(codec=codec, base_timestamp=NOW_MS).encode()) == 0
    load_kernels(running, door.client_settings)
    yield running
    running.stop()
    assert "Traceback" not in running.log_text()


@pytest.fixture
def peer(door: Door, broker: OdradekProcess) -> Iterator[Peer]:
    """A connection; another one is served after the test."""
    with door.connect(broker.port) as connected:
        yield connected
    with door.connect(broker.port) as connected:
        assert _produce(connected, RawBatch(base_timestamp=NOW_MS).encode()) == 0


@pytest.mark.parametrize("codec", [one for one in Codec if one is not Codec.NONE])
@pytest.mark.parametrize("count", [1, 1000, 2**31 - 1])
def test_a_bomb_is_refused_in_bounded_memory(
    broker: OdradekProcess, peer: Peer, codec: Codec, count: int
) -> None:
    bomb = _bomb(codec)
    before = reset_peak(broker)
    batch = RawBatch(
        codec=codec, packed=bomb, count=count, last_offset_delta=count - 1, base_timestamp=NOW_MS
    )
    assert _produce(peer, batch.encode()) in REFUSED
    assert peak_bytes(broker) - before < GROWTH_MAX_BYTES


@pytest.mark.parametrize("codec", [one for one in Codec if one is not Codec.NONE])
def test_a_batch_within_a_batch_is_refused(peer: Peer, codec: Codec) -> None:
    inner = RawBatch(base_timestamp=NOW_MS).encode()
    for _ in range(3):
        outer = RawBatch(codec=codec, packed=compress(codec, inner), base_timestamp=NOW_MS)
        inner = outer.encode()
        assert _produce(peer, inner) in REFUSED


@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers_within_wrappers_are_refused(peer: Peer, magic: int) -> None:
    record = Record(0, NOW_MS, b"k", b"v")
    wrapped = encode_wrapper(magic, Codec.GZIP, [record])
    for _ in range(30):
        wrapped = encode_entry(
            magic, Record(0, NOW_MS, None, compress(Codec.GZIP, wrapped)), Codec.GZIP
        )
    assert _produce(peer, wrapped, version=3) in REFUSED


@pytest.mark.parametrize("count", [0, 2, 1000, 2**31 - 1, -1, -(2**31)])
@pytest.mark.parametrize("codec", Codec)
def test_a_count_that_lies_is_refused(peer: Peer, count: int, codec: Codec) -> None:
    batch = RawBatch(codec=codec, count=count, base_timestamp=NOW_MS)
    assert _produce(peer, batch.encode()) in REFUSED


@pytest.mark.parametrize("name", PATHS)
def test_no_name_leaves_the_log_directory(
    broker: OdradekProcess, peer: Peer, name: str
) -> None:
    before = _files_outside(broker)
    made = peer.ask(creating(name), 5)
    is_legal = name in LEGAL
    codes = {one.error_code for one in made.topics}
    assert codes == {0 if is_legal else ErrorCode.INVALID_TOPIC_EXCEPTION}
    (found,) = peer.ask(describing(name, creates=True), 8).topics
    assert is_legal or found.error_code != 0
    if not is_legal:
        batch = RawBatch(base_timestamp=NOW_MS).encode()
        assert _produce(peer, batch, topic=name) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert _files_outside(broker) == before
    inside = {path.name for path in broker.data.iterdir() if path.is_dir()}
    known = {TOPIC, LOADING_TOPIC} | {one for one in LEGAL if is_legal or "--0" in inside}
    assert inside == {f"{one}-0" for one in known}


@pytest.mark.parametrize("size", [0, 1, 7, 2**31 - 1, -1, -(2**31)])
def test_a_frame_whose_size_lies_costs_its_connection_alone(
    door: Door, broker: OdradekProcess, size: int
) -> None:
    before = reset_peak(broker)
    with door.connect(broker.port) as client:
        frame = encode_request(ApiVersionsRequest(), 0, 1, None)
        client.socket.sendall(struct.pack(">i", size) + frame[4:])
        client.socket.shutdown(1)
        while client.socket.recv(1 << 16):
            pass
    with door.connect(broker.port) as client:
        assert client.ask(ApiVersionsRequest(), 0).error_code == 0
    assert peak_bytes(broker) - before < GROWTH_MAX_BYTES


def _produce(peer: Peer, batch: bytes, *, version: int = 7, topic: str = TOPIC) -> int:
    (answered,) = peer.ask(producing(topic, batch, acks=1), version).responses
    code: int = answered.partition_responses[0].error_code
    return code


def _bomb(codec: Codec) -> bytes:
    """Return a record that is as large as its codec can make it of what a batch may hold."""
    size = _BOMB_BYTES[codec]
    head = section([RawRecord(value=bytes(100), value_length=size, size=size + 16)])
    if codec is Codec.GZIP:  # it is the largest by far, and of pieces that do not refer back
        chunk, count = bytes(1 << 20), size >> 20
        packer = zlib.compressobj(9, wbits=31)
        first = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
        piece = packer.compress(chunk) + packer.flush(zlib.Z_FULL_FLUSH)
        end = packer.flush()[:-8]  # without its CRC and size, which are of one piece
        crc = zlib.crc32(head)
        for _ in range(count):
            crc = zlib.crc32(chunk, crc)
        return first + piece * count + end + struct.pack("<II", crc, len(head) + size)
    return compress(codec, head + bytes(size))


def _files_outside(broker: OdradekProcess) -> set[str]:
    home = broker.directory
    return {str(one) for one in (*home.iterdir(), *home.parent.iterdir())}
