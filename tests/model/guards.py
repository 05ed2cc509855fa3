"""The guards of the protocol, each with its place in the code, and the assumptions of the model.

An action asks `Rules` whether a guard holds; a test takes away one at a time.
"""

from __future__ import annotations

from typing import NamedTuple


class Rules(NamedTuple):
    """The guards that are in force."""

    acks_after_commit: bool = True
    commits_in_session: bool = True
    commits_by_sequence: bool = True
    commits_in_order: bool = True
    uploads_before_commit: bool = True
    discards_the_inline: bool = True
    watermark_is_committed: bool = True
    epoch_rises_with_end: bool = True
    epoch_rises_with_handover: bool = True
    producers_come_back: bool = True
    snapshots_are_at_end: bool = True
    opens_after_changes: bool = True
    serves_within_lease: bool = True
    closes_before_handover: bool = True
    waits_for_outcome: bool = True
    stores_what_is_committed: bool = True
    stores_as_leader: bool = True
    uploads_before_naming: bool = True
    exchanges_current_rows: bool = True
    exchange_can_be_repeated: bool = True
    frees_what_is_stored: bool = True
    frees_for_all: bool = True
    deletes_the_unnamed: bool = True
    deletes_after_delay: bool = True
    collects_of_closed_sessions: bool = True
    stores_in_epoch: bool = True
    answer_can_be_repeated: bool = True
    # Assumptions about the world, see ASSUMPTIONS.
    catalog_keeps_commits: bool = True
    clocks_run_alike: bool = True


class Guard(NamedTuple):
    """A guard: its words, and the functions in which the code has it."""

    words: str
    places: tuple[str, ...]


_CATALOG, _SHARED = "odradek.broker.catalog", "odradek.broker.shared"

GUARDS = {
    "acks_after_commit": Guard(
        "a producer with acks=all is answered after the commit of its batch",
        (
            "odradek.broker.wal.wal:Wal.committed",
            "odradek.broker.durability.group_commit:GroupCommit.flush",
        ),
    ),
    "commits_in_session": Guard(
        "an entry is committed only while its session is open",
        (f"{_CATALOG}.wal_rows:commit_entries",),
    ),
    "commits_by_sequence": Guard(
        "a commit that is repeated adds nothing",
        (f"{_CATALOG}.wal_rows:commit_entries",),
    ),
    "commits_in_order": Guard(
        "entries are committed in the order of their sequences",
        ("odradek.broker.wal.wal:Wal._commit",),
    ),
    "uploads_before_commit": Guard(
        "the object of an entry is there before its commit",
        ("odradek.broker.wal.wal:Wal._upload",),
    ),
    "discards_the_inline": Guard(
        "the object of a slow upload is deleted at once only if the row has the entry's body",
        ("odradek.broker.wal.wal:Wal._upload",),
    ),
    "watermark_is_committed": Guard(
        "consumers read up to the commits",
        (
            "odradek.storage.readable_log:ReadableLog.read",
            f"{_SHARED}.logs:SharedLogs._committed",
        ),
    ),
    "epoch_rises_with_end": Guard(
        "the epoch rises when the session of a leader is closed",
        (f"{_CATALOG}.statements:CatalogStatements.replace_shared_leader",),
    ),
    "epoch_rises_with_handover": Guard(
        "the epoch rises with a handover",
        (f"{_CATALOG}.hosts:HostStatements.hand_over",),
    ),
    "producers_come_back": Guard(
        "a log that is built knows its producers",
        (f"{_SHARED}.building:Builder._begin", f"{_SHARED}.building:append_run"),
    ),
    "snapshots_are_at_end": Guard(
        "a sealed segment is stored with the producers at its end",
        (f"{_SHARED}.packing:_sources",),
    ),
    "opens_after_changes": Guard(
        "a log is opened again once no change of its rows is under way",
        (f"{_SHARED}.uploads:Uploads.release", f"{_SHARED}.logs:SharedLogs._build"),
    ),
    "serves_within_lease": Guard(
        "a broker serves nothing after its lease, which it counts by its own clock",
        (
            f"{_CATALOG}.membership:Membership._extend",
            "odradek.broker.network.dispatch:Dispatcher.serve",
        ),
    ),
    "closes_before_handover": Guard(
        "a log is handed over once all its batches are committed",
        (
            "odradek.broker.reassignment.closing:Closing.close",
            "odradek.broker.reassignment.handovers:Handovers._exchange",
        ),
    ),
    "waits_for_outcome": Guard(
        "a leader opens a log again only when the outcome of its handover is known",
        (
            "odradek.broker.reassignment.closing:Closing._learn_outcome",
            f"{_CATALOG}.store:CatalogStore.wait_for_changes",
        ),
    ),
    "stores_what_is_committed": Guard(
        "only committed records are stored as segments",
        (f"{_SHARED}.tails:Tail.parts",),
    ),
    "stores_as_leader": Guard(
        "only the leader changes rows, while its session is open",
        (f"{_CATALOG}.segment_rows:check_led",),
    ),
    "uploads_before_naming": Guard(
        "the object of segments is there before a row names it",
        (f"{_SHARED}.uploads:Uploads._upload",),
    ),
    "exchanges_current_rows": Guard(
        "an exchange replaces only rows that are the current ones",
        (
            f"{_CATALOG}.segment_rows:exchange_segments",
            f"{_SHARED}.exchanging:exchange_stored",
        ),
    ),
    "exchange_can_be_repeated": Guard(
        "an exchange that is repeated changes nothing",
        (f"{_CATALOG}.segment_rows:exchange_segments", f"{_SHARED}.row_changes:RowChanges.commit"),
    ),
    "frees_what_is_stored": Guard(
        "the WAL forgets an entry once segments have its records",
        (f"{_CATALOG}.wal_trimming:trim_wal",),
    ),
    "frees_for_all": Guard(
        "the WAL forgets an entry once no partition needs it",
        (f"{_CATALOG}.wal_trimming:trim_wal",),
    ),
    "deletes_the_unnamed": Guard(
        "an object is deleted only if no row names it",
        (f"{_CATALOG}.garbage_rows:due_garbage",),
    ),
    "deletes_after_delay": Guard(
        "an object is deleted only after the delay",
        (f"{_CATALOG}.garbage_rows:due_garbage", f"{_SHARED}.janitor:Janitor.delete_garbage"),
    ),
    "collects_of_closed_sessions": Guard(
        "an orphan is an object of a closed session",
        (f"{_SHARED}.orphans:find_leftovers", f"{_CATALOG}.object_rows:read_sessions"),
    ),
    "stores_in_epoch": Guard(
        "a leader that gets a partition back changes no rows by an upload from before",
        (f"{_CATALOG}.segment_rows:check_led", f"{_SHARED}.uploads:Uploads._upload"),
    ),
    "answer_can_be_repeated": Guard(
        "an exchange for a job can be repeated after the job has given its lease back",
        (
            f"{_CATALOG}.segment_rows:exchange_segments",
            f"{_SHARED}.leasing:Leasing._exchange",
        ),
    ),
}

ASSUMPTIONS = {
    "catalog_keeps_commits": "the database keeps each commit that it has answered",
    "clocks_run_alike": "a lease has ended by its broker's clock when others close the session",
}
"""They are not the code's to hold. Without one of them a promise is broken: docs/guarantees.md."""

def without(name: str) -> Rules:
    """Return the rules without one of them."""
    return Rules()._replace(**{name: False})
