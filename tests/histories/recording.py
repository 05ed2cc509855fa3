"""Histories of real processes, as files of JSON lines that clients in any language can write.

Each process writes a file of its own, in UTF-8, a JSON object a line. A line begins an operation,
or ends one by its id. It is written by one append, without a buffer, before the request is sent
or after its answer has come: a killed client leaves a file that can be read, but for a last half
line. An operation that never ended may have taken effect at any time.

    time   client p                                client r
           |  {"id":1,"time_s":4.10,               |
           |   "begin":"append","client":"p",      |
           |   "topic":"t","partition":0,          |
           |   "values":["p-0","p-1"]}             |
           |            |                          |  {"id":1,"time_s":4.12,"begin":"read",
           |            | request, answer          |   "client":"r","topic":"t","partition":0,
           |            v                          |   "committed":true}
           |  {"id":1,"time_s":4.15,               |
           |   "outcome":"done","offset":7}        |
           v                                       v  {"id":1,"time_s":4.18,"outcome":"done",
                                                       "records":[[7,2,"p-0"],[8,2,"p-1"]]}

Members of each line: `id`, an integer or string, unique in the file; `time_s`, seconds of a
monotonic clock that all clients share (on one machine CLOCK_MONOTONIC, as time.monotonic(),
System.nanoTime() / 1e9). A beginning has `begin`, the kind of operation, and `client`, a name; an
end has `outcome`: "done", answered without an error; "undone", refused for good, so that it has no
effect; "unknown" says no more than a missing end. Members with a * may be left out.

    begin              its members                          members of an end that is done
    topic              topic, keeps_reads*, compacted*,     -
                       delete_retention_s*, retained*,
                       keeps_deletions*
    transaction        producer, number                     -; it ends by commit or abort
    append             topic, partition, values,            offset*: of the first record
                       tombstones*, delivery*,
                       transaction*
    commit, abort      transaction                          -
    read               topic, partition, committed          records, high_watermark*, epoch*,
                                                            node*, log_start*
    scan               topic, partition, committed,         records, log_start, log_end,
                       final*                               high_watermark*, epoch*, node*
    delete_records     topic, partition, offset             log_start
    commit_offset      group, topic, partition, offset,     -
                       position*, transaction*
    fetch_offset       group, topic, partition              offset: -1 if there is none
    share_fetch        group, topic, partition              records: [offset, count, value]
    share_acknowledge  group, topic, partition, first,      -
                       last, type
    metadata           -                                    leaders: [topic, topic id, partition,
                                                            epoch, node]
    disrupt            name, node*: a trouble that a test   -
                       makes, of one broker or of all
    problem            text: seen at once by a client       -

- `topic` declares promises (`history.Topic`); one without a declaration is local.
- `values` names the records of a batch, "<producer>-<number>" with numbers that grow within a
  producer; `history.key_of` gives their keys. A record has its name as its value. One of
  `tombstones` (names, too) has the value null, and its name in the record header "name".
- `delivery` is "idempotent" (or left out), "once" (no retries), or "retried" (retries without a
  producer id: records may be there twice and out of order). With acks=1 it is done only where
  no disk can lose a record that was written; with acks=0 its outcome is unknown.
- `transaction` is the id of the operation that began it, in the same file. `commit` ends as done
  if it is committed, and as undone if it was aborted; `abort` ends as done. An abort without an
  answer leaves it open.
- `records` are arrays: offset, leader epoch (-1 if unknown), name; those of aborted transactions
  are left out if `committed`. Markers and batches without records have no entry.
- A `read` gives the records of one answer; `log_start` is left out if a follower gave it.
  A `high_watermark` counts together with `epoch`, that of the leader as the reader knows it, and
  with `node`, the broker, where it is not the leader. Without an epoch it is compared with those
  of the same client alone, which then must not go back to a former leader.
- A `scan` reads a partition from its log start to its end: `log_end` is the offset at which the
  reader found no more, having asked after all records before it. One with `final` is made once all
  others have ended, both with and without `committed`, and no transaction is open.
- `position` says that the group has read all records before the offset.
- A record of a share group is [offset, delivery count, name]; `type` is "accept", "release" or
  "reject", of all records from `first` to `last`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.histories.history import History
from tests.histories.playing import Player


class UnreadableRecording(Exception):
    """A file has a line that is no line of a history."""


class Recorder:
    """Writes the file of a process; its threads may share it."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Raise FileExistsError for a file that is there."""
        self._file = path.open("xb", buffering=0)
        self._clock, self._lock, self._count = clock, threading.Lock(), 0

    def begin(self, kind: str, client: str, **members: object) -> int:
        """Note that an operation begins; return its id."""
        with self._lock:
            self._count += 1
            count = self._count
            self._write({"id": count, "begin": kind, "client": client, **members})
        return count

    def end(self, number: int, outcome: str = "done", **members: object) -> None:
        """Note that an operation has ended."""
        with self._lock:
            self._write({"id": number, "outcome": outcome, **members})

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, line: dict[str, object]) -> None:
        line["time_s"] = round(self._clock(), 6)
        self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")


def read_recordings(paths: Sequence[Path]) -> History:
    """Merge the files of several clients into one history. Raises UnreadableRecording.

    Of lines with the same time, beginnings come first: the operations may have overlapped.
    """
    lines = [(number, line) for number, path in enumerate(paths) for line in _lines(path)]
    lines.sort(key=lambda one: (one[1]["time_s"], "outcome" in one[1]))
    player = Player()
    for number, line in lines:
        try:
            player.play(number, line)
        except (KeyError, TypeError, ValueError) as error:
            what = f"{type(error).__name__}: {error}"
            raise UnreadableRecording(f"{paths[number]}: {line}: {what}") from error
    return player.history


def _lines(path: Path) -> list[dict[str, Any]]:
    *whole, _half = path.read_bytes().split(b"\n")
    found: list[dict[str, Any]] = []
    for number, text in enumerate(whole, 1):
        try:
            line = json.loads(text)
            if not isinstance(line["time_s"], int | float) or "id" not in line:
                raise ValueError("without a time or an id")
        except (KeyError, TypeError, ValueError) as error:
            raise UnreadableRecording(f"{path}:{number}: {error}") from error
        found.append(line)
    return found
