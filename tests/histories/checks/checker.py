"""Checks a history as Jepsen's Kafka workload does, in time that grows with its length.

It needs nothing but the history, of a simulation or of real processes. `History.topics` has the
promises of its topics. Without a final read it finds less, and refuses nothing for that.

    lost            an acknowledged record is not there in the end, and nothing has removed it
    twice           a record is there more than once, or nobody has sent it there
    order           records of a producer are in a partition in another order than sent
    offsets         a record is not at the offset that was answered, or an offset has two records
    unstable        a record that somebody has read was not committed: its offset has another
                    record for a later reader, or none (topics that keep reads)
    aborted         a reader of committed records got an aborted one, or one before its commit
    atomic          a transaction is there in part
    latest          a reader of a compacted topic from its start lacks the latest value of a key
    tombstones      such a reader lacks a tombstone before its time, or a deleted value is back
    start           records that were deleted are there again, or some are gone that nobody
                    has deleted
    watermark       a high watermark went back
    group           a committed offset went back, is beyond all that was ever committed, or is
                    beyond the log's end
    shares          a record of a share group was settled twice, or delivered after that
    leaders         two brokers led a partition in one epoch
    sessions        a broker without a session has changed the catalog
    metadata        an acknowledged change is lost, or brokers disagree once all is quiet

A record may be gone that is before the log start offset, or, in a compacted topic, before
another record of its key.
"""

from __future__ import annotations

import itertools

from tests.histories.checks.brokers import (
    find_changes_without_session,
    find_lost_changes,
    find_rivals,
)
from tests.histories.checks.compaction import find_obsolete
from tests.histories.checks.final import Final
from tests.histories.checks.groups import (
    find_commits_beyond,
    find_lost_commits,
    find_shared_twice,
)
from tests.histories.checks.offsets import (
    find_displaced,
    find_lowered,
    find_lowered_watermarks,
    find_moved,
    find_unsorted,
    find_unstable,
)
from tests.histories.checks.problem import Problem
from tests.histories.checks.records import find_disorder, find_lost, find_repeated
from tests.histories.checks.transactions import find_aborted, find_torn
from tests.histories.history import History


def check(history: History) -> list[Problem]:
    """Return the problems of a history, each once; none when all is well."""
    final = Final(history)
    seen_at_once = (_trouble(one) for one in history.troubles)
    found = itertools.chain(
        seen_at_once,
        find_lost(history, final),
        find_repeated(history),
        find_disorder(history),
        find_moved(history),
        find_displaced(history),
        find_unsorted(history),
        find_unstable(history, final),
        find_aborted(history),
        find_torn(history, final),
        find_obsolete(history),
        find_lowered(history),
        find_lowered_watermarks(history),
        find_lost_commits(history),
        find_commits_beyond(history),
        find_shared_twice(history),
        find_rivals(history.led),
        find_changes_without_session(history.catalog_changes),
        find_lost_changes(history),
    )
    # The last readers' records are among all that were read, too.
    return list({str(one): one for one in found}.values())


def _trouble(text: str) -> Problem:
    """Return a problem that was noted as a text: "kind: sentence", or a sentence."""
    kind, colon, sentence = text.partition(": ")
    return Problem(kind, sentence) if colon else Problem("", text)
