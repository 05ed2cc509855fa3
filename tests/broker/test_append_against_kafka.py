"""What may be appended, beside Apache Kafka: the same raw batches, the same fate.

Every batch goes to topics of many settings on both brokers. Compared are the error code, the
records that are named, whether the broker's clock is told, the log start offset, and what is
read back: to the byte where the batch is stored as it came, else record by record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.protocol.batches import (
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    Record,
)
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ErrorCode
from tests.broker.append_cases import CASES, STAMPED, TOPICS, Batch
from tests.broker.append_mutations import mutations
from tests.broker.append_peers import Outcome, Peer, Topics, both
from tests.broker.beside_kafka import BesideKafka
from tests.broker.raw_batches import RawRecord

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(600)]

Peers = tuple[Peer, Peer]
VERSIONS = (8, 9, 12, 13)  # those that have messages, by which differences are told
LAST = VERSIONS[-1]
LENGTH, ATTRIBUTES = slice(8, 12), slice(21, 23)


@dataclass(frozen=True, slots=True)
class Case:
    """A batch in a topic, and what each broker made of it."""

    octets: bytes
    topic: str
    ours: Outcome
    theirs: Outcome

    @property
    def attributes(self) -> int:
        """The attributes that the batch came with."""
        return int.from_bytes(self.octets[ATTRIBUTES], "big")

    def we_refuse(self, code: ErrorCode, text: str = "") -> bool:
        """Return whether we refuse it with a code, and a message that has some text."""
        return self.ours.error_code == code and text in (self.ours.message or "")


INVALID = ErrorCode.INVALID_RECORD
UNFORESEEN = ErrorCode.UNKNOWN_SERVER_ERROR

# What is different, and why. The list may only shrink: each line has to be met by the table.
KNOWN: dict[str, Callable[[Case], bool]] = {
    # Kafka drops what follows the first batch and is less than another, without a word: a
    # producer whose second batch was cut off would never know. Of bytes that claim a size that
    # they have not, it says various things.
    "not one batch": lambda case: case.we_refuse(INVALID, "exactly one batch"),
    # Kafka goes on to judge, and to count, batches that claim to be smaller than their header.
    "smaller than a header": lambda case: (
        case.we_refuse(ErrorCode.CORRUPT_MESSAGE, "no batch has such a header")
        and case.theirs.error_code in (INVALID, UNFORESEEN)
        and int.from_bytes(case.octets[LENGTH], "big", signed=True) < HEADER_SIZE - LOG_OVERHEAD
    ),
    # Kafka takes offset deltas that are not 0, 1, 2, ...: consumers of an uncompressed batch
    # then get offsets twice, or those of other records. (Compressed, it renumbers the records
    # or fails for want of their keys, which it has not read.)
    "offsets of its own": lambda case: case.we_refuse(INVALID, "(offset gap)"),
    # Kafka reads past the sizes of compressed records without a look at them, but consumers
    # stop at a record whose size is wrong, and can never get past it.
    "sizes of compressed records": lambda case: (
        (case.theirs.error_code == 0 or case.theirs.record_errors != ())
        and case.attributes & 7 != 0
        and not is_repacked(case.attributes, case.topic)
        and case.we_refuse(INVALID, "is malformed")
    ),
    # Kafka does not look at what follows the compressed records, and other readers may take it
    # for more of them (see protocol/compression.py).
    "more than the compressed records": lambda case: (
        case.theirs.error_code == 0 and case.we_refuse(INVALID, "decompress")
    ),
    # Kafka fails, and says only so, over what it did not foresee: records that do not
    # decompress, unknown codecs, sizes past 32 bits, timestamps past 64. None of the codes is
    # tried again.
    "unforeseen": lambda case: (
        case.theirs.error_code == UNFORESEEN
        and case.ours.error_code in (INVALID, ErrorCode.INVALID_TIMESTAMP)
    ),
    # Kafka cannot pack again what it does store as it comes: timestamps and producer ids below
    # -1, and deltas of timestamps past 64 bits. Here one topic takes what the other takes.
    "cannot be packed again": lambda case: (
        case.theirs.error_code == UNFORESEEN
        and case.ours.error_code == 0
        and is_repacked(case.attributes, case.topic)
    ),
    # Kafka packs a header's key again as text, and what was no UTF-8 is lost.
    "header keys that are no text": lambda case: (
        case.ours.stored is not None
        and case.theirs.stored is not None
        and case.ours.stored.header == case.theirs.stored.header
        and as_text(case.ours.stored.records) == as_text(case.theirs.stored.records)
    ),
    # Kafka takes the stamp of a producer where the topic has no stamps, looks at nothing but
    # that one time, and stores the records with times that it never looked at.
    "stamped by the producer": lambda case: (
        case.attributes & LOG_APPEND_TIME_BIT != 0
        and case.we_refuse(ErrorCode.INVALID_TIMESTAMP)
    ),
    # Kafka takes a producer id without an epoch, and then takes its every sequence.
    "no epoch": lambda case: case.we_refuse(ErrorCode.INVALID_PRODUCER_EPOCH, "without an epoch"),
}


def is_repacked(attributes: int, topic: str) -> bool:
    """Return whether the broker compresses a batch again for a topic."""
    wanted = {**TOPICS, **SEQUENCED}[topic].get("compression.type", "producer")
    codecs = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
    return wanted != "producer" and codecs[wanted] != attributes & 7


def as_text(records: Sequence[Record]) -> list[Record]:
    """Read header keys as Java does."""

    def text(key: str) -> str:
        return key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    return [
        replace(record, headers=tuple((text(key), value) for key, value in record.headers))
        for record in records
    ]


def is_same(case: Case) -> bool:
    """Return whether a client sees no difference."""
    ours, theirs = case.ours, case.theirs
    if is_repacked(case.attributes, case.topic) and ours.stored and theirs.stored:
        ours = replace(ours, stored=replace(ours.stored, octets=b""))
        theirs = replace(theirs, stored=replace(theirs.stored, octets=b""))
    return ours == theirs


def differences(
    peers: Peers,
    octets: bytes,
    version: int = LAST,
    names: Sequence[str] = tuple(TOPICS),
    met: Counter[str] | None = None,
) -> Iterator[str]:
    """Send a batch to both brokers, and say where they differ but for what is known."""
    ours, theirs = (peer.send(octets, names, version) for peer in peers)
    for name in names:
        case = Case(octets, name, ours[name], theirs[name])
        if is_same(case):
            continue
        reason = next((reason for reason, holds in KNOWN.items() if holds(case)), None)
        if reason is None:
            yield f"{name} v{version}:\n  we    {ours[name]}\n  Kafka {theirs[name]}"
        elif met is not None:
            met[reason] += 1


@pytest.fixture(scope="module")
def peers(beside_kafka: BesideKafka) -> Iterator[Peers]:
    with both(beside_kafka, TOPICS) as running:
        for peer in running:
            peer.prepare(SEQUENCED)
        yield running


def check_ends(peers: Peers) -> None:
    """Check that the logs end where what was accepted ends."""
    for peer in peers:
        assert peer.end_offsets(list(peer.ends)) == peer.ends


def test_the_table(peers: Peers) -> None:
    found: dict[str, list[str]] = {}
    met: Counter[str] = Counter()
    for label, octets in CASES.items():
        if seen := list(differences(peers, octets, met=met)):
            found[label] = seen
    assert not found
    assert set(met) == set(KNOWN), "a difference is gone: take it off the list"
    check_ends(peers)


@pytest.mark.parametrize("label", ["good", "of codec 4", "CRC 0", "no key, zstd", "count 0"])
def test_each_version(peers: Peers, label: str) -> None:
    for version in range(3, LAST + 1):
        assert not list(differences(peers, CASES[label], version))


def test_each_level_of_each_codec(peers: Peers) -> None:
    levels = {
        f"{codec}-at-{level}": {
            "compression.type": codec, f"compression.{codec}.level": str(level),
        }
        for codec, choice in (
            ("gzip", (-1, 1, 9)), ("lz4", (1, 3, 9, 17)), ("zstd", (-131072, -1, 1, 3, 19)),
        )
        for level in choice
    }  # fmt: skip
    for peer in peers:
        peer.prepare(levels)
    for codec in Codec:
        octets = Batch([RawRecord(value=b"value" * 100)] * 100, codec).encode()
        ours, theirs = (peer.send(octets, list(levels), LAST) for peer in peers)
        for name in levels:
            mine, other = ours[name].stored, theirs[name].stored
            assert mine is not None and other is not None
            assert (mine.header, mine.records) == (other.header, other.records)


@settings(max_examples=600, derandomize=True, database=None)
@given(octets=mutations(), version=st.sampled_from(VERSIONS))
def test_mutations(peers: Peers, octets: bytes, version: int) -> None:
    assert not list(differences(peers, octets, version))


@pytest.mark.interop
@pytest.mark.timeout(1800)
@settings(max_examples=20_000)
@given(octets=mutations(), version=st.sampled_from(VERSIONS))
def test_more_mutations(peers: Peers, octets: bytes, version: int) -> None:
    assert not list(differences(peers, octets, version))
    check_ends(peers)


# --- idempotent producers -----------------------------------------------------------------------

SEQUENCED: Topics = {
    "numbered": {},
    "numbered-stamped": STAMPED,
    "numbered-zstd": {"compression.type": "zstd"},
}
PRODUCER_IDS = count(1_000_000)
SEQUENCES = 2**31
WAYS = ("next", "next", "next", "again", "gap", "part", "start", "anywhere", "backwards")
STEP = st.tuples(
    st.sampled_from(WAYS),
    st.sampled_from([0, 0, 0, 0, 1, -1, 3]),  # epochs from the last one
    st.integers(1, 3),  # records
    st.integers(0, 6),  # batches back, or sequences skipped
)
# So many batches that some are forgotten, and then any.
STEPS = st.builds(
    lambda good, any_steps: [("next", 0, size, 0) for size in good] + any_steps,
    st.lists(st.integers(1, 3), max_size=7),
    st.lists(STEP, min_size=1, max_size=8),
)
STARTS = st.sampled_from([0, 0, 5, SEQUENCES - 1, SEQUENCES - 2, SEQUENCES - 3])


def check_sequences(
    peers: Peers, start: int, steps: Sequence[tuple[str, int, int, int]], trim_after: int
) -> None:
    """Let a new producer write batch after batch, and compare what becomes of each."""
    producer_id = next(PRODUCER_IDS)
    epoch, following = 2, start
    sent: list[tuple[int, int]] = []  # sequences and record counts
    for number, (way, epochs, size, back) in enumerate(steps):
        if number == trim_after:
            for peer in peers:
                peer.delete_records(list(SEQUENCED))
        sequence = {
            "gap": following + back,
            "backwards": following - back,
            "start": 0,
            "anywhere": back * 1000,
        }.get(way, following) % SEQUENCES
        if way in ("again", "part") and sent:
            sequence, size = sent[max(0, len(sent) - 1 - back)]
            size = max(1, size - (way == "part"))
        octets = Batch(
            [RawRecord()] * size,
            producer_id=producer_id,
            producer_epoch=epoch + epochs,
            base_sequence=sequence,
        ).encode()
        ours, theirs = (peer.send(octets, list(SEQUENCED), LAST) for peer in peers)
        for name in SEQUENCED:
            mine, other = without_time(ours[name]), without_time(theirs[name])
            assert is_same(Case(octets, name, mine, other)), (name, way, mine, other)
        if ours["numbered"].stored is not None:
            epoch, following = epoch + epochs, (sequence + size) % SEQUENCES
            sent.append((sequence, size))


def without_time(outcome: Outcome) -> Outcome:
    """Leave out whether a repeated batch is answered with a time.

    Kafka answers it with its largest timestamp, where a client expects the broker's time or
    none.
    """
    return replace(outcome, is_stamped=outcome.is_stamped and not outcome.behind)


@pytest.mark.parametrize("trim_after", [9, 100])
@pytest.mark.parametrize("start", [0, 5, SEQUENCES - 1, SEQUENCES - 2, SEQUENCES - 10])
def test_the_same_sequences_are_remembered_as_in_kafka(
    peers: Peers, start: int, trim_after: int
) -> None:
    steps = [("next", 0, 1 + at % 3, 0) for at in range(8)]
    steps += [(way, 0, 1, back) for way in ("again", "part", "gap") for back in range(1, 8)]
    steps += [("again", -1, 1, 0), ("next", 1, 1, 0), ("again", 1, 1, 0), ("start", 1, 2, 0)]
    steps += [("again", 0, 1, back) for back in range(8)]
    steps += [("start", -1, 1, 0), ("next", 0, 1, 0), ("again", 0, 1, 1)]
    check_sequences(peers, start, steps, trim_after)


@settings(max_examples=60, derandomize=True, database=None)
@given(start=STARTS, steps=STEPS, trim_after=st.integers(1, 40))
def test_sequences(
    peers: Peers, start: int, steps: list[tuple[str, int, int, int]], trim_after: int
) -> None:
    check_sequences(peers, start, steps, trim_after)


@pytest.mark.interop
@pytest.mark.timeout(1800)
@settings(max_examples=3000)
@given(start=STARTS, steps=STEPS, trim_after=st.integers(1, 40))
def test_more_sequences(
    peers: Peers, start: int, steps: list[tuple[str, int, int, int]], trim_after: int
) -> None:
    check_sequences(peers, start, steps, trim_after)
