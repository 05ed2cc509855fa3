"""The proof of cleanings that turn messages of magic 0 and 1 into batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cleaner.errors import VerificationFailed
from odradek.protocol.batch_records import decode_records
from odradek.protocol.batches import Record
from odradek.protocol.compression import Codec
from tests.cleaner.once import SETTINGS
from tests.cleaner.test_clean_model import new_world
from tests.cleaner.test_old_formats import fill
from tests.cleaner.test_proof import (
    Cleaned,
    Mutation,
    add_to_header,
    at_batch,
    change_records,
    cleaned,
    set_header,
    uncompressed,
    unstamped,
)
from tests.cleaner.worlds import World
from tests.storage.old_logs import random_log, write


@pytest.mark.slow
@given(
    seed=st.integers(0, 1 << 30),
    magics=st.sampled_from([(0,), (1,), (0, 1), (0, 1, 2)]),
    chunk_bytes=st.sampled_from([70, 400, 1 << 20]),
    map_bytes=st.sampled_from([1, 1 << 20]),
    roll_after=st.integers(0, 15),
)
def test_the_cleaning_of_an_old_log_is_proved(
    seed: int, magics: list[int], chunk_bytes: int, map_bytes: int, roll_after: int
) -> None:
    how = replace(
        SETTINGS, chunk_bytes=chunk_bytes, map_bytes_max=map_bytes, must_verify=True
    )
    with new_world() as world:
        fill(world, random_log(seed, 15, magics), roll_after)
        for _ in range(3):
            world.clean(how)
            world.now_ms += 100
            world.append([(b"x", b"y")])
            world.roll()


def old(path: Path) -> Cleaned:
    """The output for old messages: a shared batch, a wrapper, a tombstone, an empty header."""
    world = World(path)
    fill(
        world,
        [
            write(1, Codec.NONE, [Record(0, 5, b"a", b"1")]),
            write(1, Codec.NONE, [Record(1, 6, b"b", b"1")]),
            write(0, Codec.NONE, [Record(2, 7, b"c", b"1")]),
            write(1, Codec.GZIP, [Record(3, 8, b"d", b"1"), Record(4, 9, b"a", b"2")]),
            write(1, Codec.NONE, [Record(5, 9, b"e", None)]),
            write(1, Codec.GZIP, [Record(6, 9, None, b"no key")]),
        ],
    )
    return cleaned(world)


MUTATIONS: dict[str, Mutation] = {
    "a record is dropped": change_records(0, lambda records: records[1:]),
    "the last record of a batch is dropped": change_records(1, lambda records: records[:1]),
    "a value differs": change_records(1, lambda r: [r[0], replace(r[1], value=b"3")]),
    "an obsolete record is there": change_records(0, lambda r: [Record(0, 5, b"a", b"1"), *r]),
    "a batch is dropped": lambda batches: [batches[0], *batches[2:]],
    "the empty batch is dropped": lambda batches: batches[:-1],
    "all is dropped": lambda batches: [],
    "another codec": at_batch(1, uncompressed),
    "another leader epoch": add_to_header(1, "leader_epoch"),
    "a producer": set_header(0, producer_id=3),
    "a sequence": set_header(1, base_sequence=0),
    "another largest timestamp": add_to_header(1, "max_timestamp"),
    "no delete horizon": at_batch(2, unstamped),
    "another last offset": add_to_header(3, "last_offset_delta", 1),
}


def test_the_rest_of_old_messages_is_proved(tmp_path: Path) -> None:
    one = old(tmp_path)
    assert [len(decode_records(batch)) for batch in one.batches()] == [2, 2, 1, 0]
    one.prove()


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_wrong_rest_of_old_messages_is_refused(tmp_path: Path, name: str) -> None:
    one = old(tmp_path)
    before = one.batches()
    after = MUTATIONS[name](list(before))
    assert after != before
    one.write(after)
    with pytest.raises(VerificationFailed):
        one.prove()
