"""Kafka's DumpLogSegments over whole data directories: what it finds wrong in our files.

It says so on standard error, in sections that begin with a line naming the file:

    Mismatches in :FILE             an offset index entry that the log does not bear out
    Found timestamp mismatch in :   a time index entry, the same
    Found out of order timestamp in :
    Non-consecutive offsets in      a gap, as cleaning leaves them; it also takes the first
                                    offset of any segment but the first for a gap after -1

An index that is no index ends it with an exception; damaged batches show in its output.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.processes import kafka_tool
from odradek.storage.segment import INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX

TOOL = "org.apache.kafka.tools.DumpLogSegments"
OFFSETS_TOPIC = "__consumer_offsets"
# Cleaned, so that there may be gaps between offsets.
CLEANED_ALWAYS = (OFFSETS_TOPIC, "__transaction_state")

_GAP = re.compile(r"  (-?\d+) is followed by \d+")
_DAMAGE = re.compile(r".*(?:isvalid: false|invalid bytes|Found \d+ invalid).*")


@dataclass(frozen=True, slots=True)
class Dump:
    """What the tool printed of some files, and what of it is wrong."""

    text: str
    wrong: tuple[str, ...]

    @property
    def batch_count(self) -> int:
        """How many intact batches it met."""
        return self.text.count("isvalid: true")

    @property
    def record_count(self) -> int:
        """How many records it printed."""
        return len(re.findall(r"^\| offset: ", self.text, re.M))


def dump(files: Sequence[Path], *flags: str, with_gaps: Collection[str] = ()) -> Dump:
    """Run the tool once over files; topics `with_gaps` may lack offsets."""
    assert files
    paths = ",".join(map(str, files))
    done = kafka_tool([TOOL, *flags, "--files", paths], timeout_s=300, check=False)
    wrong = [match[0] for match in _DAMAGE.finditer(done.stdout)]
    wrong += _wrong_lines(done.stderr.splitlines(), with_gaps)
    if done.returncode:
        wrong.append(f"the tool ended with {done.returncode}")
    return Dump(done.stdout, tuple(wrong))


def dump_each(files: Sequence[Path], *flags: str) -> dict[Path, str]:
    """Return what the tool prints to standard output of each file, in one run."""
    sections = re.split(r"^Dumping (.*)\n", dump(files, *flags).text, flags=re.MULTILINE)
    return dict(zip(map(Path, sections[1::2]), sections[2::2], strict=True))


def segment_files(data: Sequence[Path], *kinds: str) -> list[Path]:
    """Return the files of some kinds of all partitions below data directories."""
    return sorted(
        path
        for directory in data
        for path in directory.glob("*-*/*")
        if path.suffix in kinds and not path.parent.name.endswith("-delete")
    )


def check_data(*data: Path, with_gaps: Collection[str] = ()) -> Dump:
    """Let the tool look at every file of data directories; fail when it finds anything wrong.

    Returns what it printed of the batches and records. Transaction indexes and the records of
    transactions' markers are read as any others.
    """
    gapped = {*with_gaps, *CLEANED_ALWAYS}
    batches = dump(segment_files(data, LOG), "--deep-iteration", with_gaps=gapped)
    assert not batches.wrong, "\n".join(batches.wrong)
    assert batches.batch_count, "there were no batches"
    indexes = segment_files(data, INDEX, TIME_INDEX)
    sanity = dump(indexes, "--index-sanity-check")
    assert not sanity.wrong, "\n".join(sanity.wrong)
    unchecked = [
        path
        for path in indexes
        if f"{path} passed sanity check." not in sanity.text
        and f"{path} is empty." not in sanity.text
    ]
    assert not unchecked, unchecked
    verified = dump(indexes, "--verify-index-only")
    assert not verified.wrong, "\n".join(verified.wrong)
    for kinds in ((SNAPSHOT,), (TXN_INDEX,)):
        others = segment_files(data, *kinds)
        if others:
            wrong = dump(others).wrong
            assert not wrong, "\n".join(wrong)
    logs = segment_files(data, LOG)
    offsets = [path for path in logs if path.parent.name.startswith(OFFSETS_TOPIC)]
    if offsets:
        decoded = dump(offsets, "--offsets-decoder", with_gaps=gapped)
        assert not decoded.wrong, "\n".join(decoded.wrong)
    return batches


def _wrong_lines(lines: Iterable[str], with_gaps: Collection[str]) -> list[str]:
    wrong: list[str] = []
    may_have_gaps = False
    for line in lines:
        section = re.match(r"Non-consecutive offsets in :?(.*)", line)
        gap = _GAP.fullmatch(line)
        if section:
            topic = Path(section[1]).parent.name.rpartition("-")[0]
            may_have_gaps = topic in with_gaps
        elif not (gap and (gap[1] == "-1" or may_have_gaps)):
            wrong.append(line)
    return wrong
