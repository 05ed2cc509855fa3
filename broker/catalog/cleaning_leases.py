"""Leases of the cleaning of shared partitions: a job cleans them, and no broker does meanwhile.

    the job                                  the leader of the partition
    takes a lease
                                             grants it: no cleaner works on the log, and the terms
                                             say which part of it is cleaned, and how
    stores new segments, and proposes them
                                             exchanges them, and answers in the same transaction;
                                             or answers why not
    gives the lease back

1. Only the leader changes the rows of segments, as for its own cleaner.
2. A lease is granted in a session. With the session it ends: its objects are orphans then.
3. Leases go with their partitions: when the topic is deleted, or becomes local.
4. A job that lives raises its beat. A leader that has not seen it rise for long ends the lease.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from odradek.broker.catalog.engines import Engine
from odradek.broker.catalog.key_lists import query_for
from odradek.broker.catalog.segment_rows import Leadership, check_led
from odradek.broker.ids import Partition
from odradek.broker.metadata.statements import Connection

TABLES = """
    CREATE TABLE cleaning_lease (
        topic_id BLOB NOT NULL,
        number   INTEGER NOT NULL,
        job      TEXT NOT NULL,
        beat     INTEGER NOT NULL,
        session  INTEGER NOT NULL,
        terms    BLOB,
        proposal BLOB,
        answer   TEXT,
        PRIMARY KEY (topic_id, number)
    );
"""
NOT_GRANTED = 0


class Lease(NamedTuple):
    """A lease as leaders see it; `session` is that in which it was granted, or NOT_GRANTED."""

    partition: Partition
    job: str
    beat: int
    session: int
    has_proposal: bool
    has_answer: bool


class OwnLease(NamedTuple):
    """A lease as its job sees it. An answer without text means that the proposal was accepted."""

    partition: Partition
    session: int
    answer: str | None


class GrantedTerms(NamedTuple):
    """A granted lease, with the terms that its leader has set in a session."""

    partition: Partition
    session: int
    terms: bytes


# --- the job --------------------------------------------------------------------------------


def take(
    connection: Connection, engine: Engine, job: str, partitions: Collection[Partition]
) -> set[Partition]:
    """Take leases; return those partitions of which other jobs have leases, or which are gone."""
    engine.exclude_changes(connection)
    shared = query_for(
        connection,
        "SELECT topic_id, number FROM partition JOIN (KEYS) AS given ON topic_id = given.column1"
        " AND number = given.column2 WHERE host = ''",  # any host: the bucket has it
        partitions,
    )
    taken = connection.execute("SELECT topic_id, number FROM cleaning_lease")
    free = {(bytes(topic_id), number) for topic_id, number in shared}
    free -= {(bytes(topic_id), number) for topic_id, number in taken}
    free &= set(partitions)
    connection.execute_many(
        "INSERT INTO cleaning_lease (topic_id, number, job, beat, session) VALUES (?, ?, ?, 0, ?)",
        [(*one, job, NOT_GRANTED) for one in sorted(free)],
    )
    return set(partitions) - free


def leases_of(connection: Connection, job: str) -> list[OwnLease]:
    """Return the leases of a job."""
    rows = connection.execute(
        "SELECT topic_id, number, session, answer FROM cleaning_lease WHERE job = ?", (job,)
    )
    return [
        OwnLease((bytes(topic_id), number), session, answer)
        for topic_id, number, session, answer in rows
    ]


def granted_terms(
    connection: Connection, job: str, partitions: Collection[Partition]
) -> list[GrantedTerms]:
    """Return the terms of those leases of a job that are granted, and not answered."""
    rows = query_for(
        connection,
        "SELECT topic_id, number, session, terms FROM cleaning_lease"
        " JOIN (KEYS) AS given ON topic_id = given.column1 AND number = given.column2"
        " AND job = given.column3 WHERE terms IS NOT NULL AND answer IS NULL",
        [(*one, job) for one in partitions],
    )
    return [
        GrantedTerms((bytes(topic_id), number), session, bytes(terms))
        for topic_id, number, session, terms in rows
    ]


def beat(connection: Connection, engine: Engine, job: str) -> None:
    """Show that a job lives."""
    engine.exclude_changes(connection)
    connection.execute("UPDATE cleaning_lease SET beat = beat + 1 WHERE job = ?", (job,))


def propose(
    connection: Connection,
    engine: Engine,
    job: str,
    partition: Partition,
    session: int,
    proposal: bytes,
) -> bool:
    """Propose an exchange; return whether the job still has the lease that was granted."""
    engine.exclude_changes(connection)
    rows = connection.execute(
        "UPDATE cleaning_lease SET proposal = ? WHERE topic_id = ? AND number = ? AND job = ?"
        " AND session = ? AND answer IS NULL RETURNING number",
        (proposal, *partition, job, session),
    )
    return bool(rows)


def give_back(
    connection: Connection, engine: Engine, job: str, partitions: Collection[Partition]
) -> None:
    """End leases of a job."""
    engine.exclude_changes(connection)
    connection.execute_many(
        "DELETE FROM cleaning_lease WHERE topic_id = ? AND number = ? AND job = ?",
        [(*one, job) for one in sorted(partitions)],
    )


# --- leaders --------------------------------------------------------------------------------


def all_leases(connection: Connection) -> list[Lease]:
    """Return all leases."""
    rows = connection.execute(
        "SELECT topic_id, number, job, beat, session, proposal IS NOT NULL, answer IS NOT NULL"
        " FROM cleaning_lease"
    )
    return [
        Lease((bytes(topic_id), number), job, beats, session, bool(proposal), bool(answer))
        for topic_id, number, job, beats, session, proposal, answer in rows
    ]


def grant(
    connection: Connection, engine: Engine, led: Leadership, lease: Lease, terms: bytes
) -> None:
    """Grant a lease, or grant it again. Raises SessionClosed and NotLed."""
    engine.exclude_changes(connection)
    connection.execute(
        "UPDATE cleaning_lease SET session = ?, terms = ?, proposal = NULL, answer = NULL"
        " WHERE topic_id = ? AND number = ? AND job = ?",
        (led.session, terms, *lease.partition, lease.job),
    )
    check_led(connection, led)


def read_proposal(connection: Connection, lease: Lease) -> bytes | None:
    """Return the proposal of a lease that is still there."""
    rows = connection.execute(
        "SELECT proposal FROM cleaning_lease WHERE topic_id = ? AND number = ? AND job = ?",
        (*lease.partition, lease.job),
    )
    return bytes(rows[0][0]) if rows and rows[0][0] is not None else None


def answer(connection: Connection, lease: Lease, text: str) -> bool:
    """Answer a job; return whether its lease was still there. Without text, it is a consent."""
    rows = connection.execute(
        "UPDATE cleaning_lease SET answer = ? WHERE topic_id = ? AND number = ? AND job = ?"
        " RETURNING number",
        (text, *lease.partition, lease.job),
    )
    return bool(rows)


def end_silent(connection: Connection, lease: Lease) -> bool:
    """End a lease whose job has not raised its beat; return whether it had not."""
    rows = connection.execute(
        "DELETE FROM cleaning_lease WHERE topic_id = ? AND number = ? AND job = ? AND beat = ?"
        " RETURNING number",
        (*lease.partition, lease.job, lease.beat),
    )
    return bool(rows)
