"""Whatever bytes come, a log takes them as a sound batch, or is as if they had never come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.config.topic import TopicConfig
from odradek.protocol.batches import check_crc, read_header
from odradek.protocol.records import validate_records
from odradek.protocol.records_plain import validate_records_plain
from odradek.storage import validation
from odradek.storage.errors import StorageError
from odradek.storage.log import Log
from tests.broker.append_cases import CASES, HOUR_MS, NOW_MS
from tests.broker.append_mutations import mutations
from tests.profiles import examples
from tests.simulation.crashfs import CrashFileSystem
from tests.storage.partition import COMPACT, SMALL, Partition

DATA = Path("/data")
CONFIGS: dict[str, TopicConfig] = {
    "plain": SMALL,
    "compact": replace(SMALL, cleanup_policy=COMPACT),
    "stamped": replace(SMALL, message_timestamp_type="LogAppendTime"),
    "zstd": replace(SMALL, compression_type="zstd"),
    "uncompressed": replace(SMALL, compression_type="uncompressed", max_message_bytes=150),
    "tight": replace(
        SMALL,
        message_timestamp_before_max_ms=HOUR_MS,
        message_timestamp_after_max_ms=2**63 - 1,
        max_decompressed_message_bytes=80,
    ),
}
TWINS = {"plain twin": validate_records_plain, "kernel": validate_records}


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> Iterator[str]:
    """Check records by the compiled kernel, or by its twin."""
    before = validation._validate
    validation._validate = TWINS[request.param]
    yield request.param
    validation._validate = before


def traces(log: Log) -> object:
    """All that an append could have changed."""
    return (
        log.log_end_offset,
        log.log_start_offset,
        log.size_bytes,
        [(one.size_bytes, one.max_timestamp, one.next_offset) for one in log.segments],
        [(one.offset_index.last(), one.time_index.last()) for one in log.segments],
        [(one.producer_id, one.epoch, tuple(one.batches)) for one in log.producers],
    )


def check_sound(partition: Partition) -> None:
    """Check every batch of a log, that offsets have no gap, and that times are found."""
    records = []
    for batch in partition.batches():
        header = read_header(batch.data)
        check_crc(batch.data, 0, len(batch.data))
        assert [one.offset for one in batch.records] == list(
            range(batch.base_offset, batch.last_offset + 1)
        )
        assert header.max_timestamp == max(-1, *(one.timestamp for one in batch.records))
        records += batch.records
    log = partition.log
    assert [one.offset for one in records] == list(range(log.log_end_offset))
    for time in {one.timestamp for one in records if one.timestamp >= 0}:
        found = log.offset_for_timestamp(time)
        assert found is not None
        assert found.offset == next(one.offset for one in records if one.timestamp >= time)


def append_all(name: str, octets: list[bytes]) -> None:
    fs = CrashFileSystem()
    partition = Partition(fs, config=CONFIGS[name])
    log = partition.log
    for one in octets:
        before, files, end = traces(log), fs.files(DATA), log.log_end_offset
        try:
            done = log.append(one, now_ms=NOW_MS)
        except StorageError:
            done = None
        if done is None or done.is_duplicate:
            assert traces(log) == before
            assert fs.files(DATA) == files
        else:
            assert log.log_end_offset == done.last_offset + 1 == end + read_header(one).count
    check_sound(partition)
    # Not closed: all segments are read again, and nothing of them is found to be damaged.
    end = log.log_end_offset
    survived = partition.next_life()
    assert survived.log.log_end_offset == end
    check_sound(survived)


@pytest.mark.parametrize("name", CONFIGS)
def test_any_bytes(name: str, twin: str) -> None:
    @settings(max_examples=examples(30))
    @given(octets=st.lists(mutations(), max_size=4))
    def check(octets: list[bytes]) -> None:
        append_all(name, octets)

    check()


@pytest.mark.parametrize("name", CONFIGS)
def test_every_known_kind_of_wrong_batch(name: str, twin: str) -> None:
    append_all(name, [octets for octets in CASES.values() if len(octets) < 10_000])


@given(octets=st.one_of(mutations(), st.sampled_from(sorted(CASES.values()))))
def test_kernel_and_twin_agree_on_each(octets: bytes) -> None:
    verdicts: list[object] = []
    before = validation._validate
    try:
        for validate in TWINS.values():
            validation._validate = validate
            for config in CONFIGS.values():
                try:
                    checked = validation.check_batch(
                        octets, config, NOW_MS, "t-0", from_client=True
                    )
                    verdicts.append((checked.header, bytes(checked.data)))
                except StorageError as error:
                    verdicts.append((type(error), str(error), vars(error)))
    finally:
        validation._validate = before
    half = len(CONFIGS)
    assert verdicts[:half] == verdicts[half:]
