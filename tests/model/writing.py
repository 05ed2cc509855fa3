"""The way of a record: appended, sealed in an entry, uploaded, committed, acknowledged."""

from __future__ import annotations

from tests.model.guards import Rules
from tests.model.sessions import Steps
from tests.model.states import (
    NONE,
    Bounds,
    Broker,
    Catalog,
    Entry,
    Log,
    Run,
    World,
    replaced,
    spend,
    with_broker,
    with_catalog,
    with_log,
)


class Writing:
    """Actions of producers, and of the WAL."""

    def __init__(self, bounds: Bounds, rules: Rules) -> None:
        self._bounds, self._rules = bounds, rules

    def produce(self, world: World) -> Steps:
        """A producer sends a batch, or sends it again, to a broker that serves the partition.

        A leader that knows the batch appends nothing.
        """
        for number, broker in enumerate(world.brokers):
            for partition, log in enumerate(broker.logs):
                if log is None or not is_served(world, number, log, self._rules):
                    continue
                acked = world.acked[partition]
                batch = acked if log.last == NONE else log.last + 1
                if acked <= batch < min(acked + self._bounds.in_flight, self._bounds.records):
                    after = self._appended(world, number, partition, log, batch)
                    yield f"broker {number} appends batch {batch} at offset {log.end}", after

    def _appended(self, world: World, number: int, partition: int, log: Log, batch: int) -> World:
        unsealed = {one.partition: one for one in world.brokers[number].unsealed}
        run = unsealed.get(partition, Run(partition, log.end, (), log.epoch))
        unsealed[partition] = run._replace(batches=(*run.batches, batch))
        world = with_broker(
            world, number, unsealed=tuple(one for _, one in sorted(unsealed.items()))
        )
        log = log._replace(batches=(*log.batches, (log.end, batch)), end=log.end + 1, last=batch)
        return with_log(world, number, partition, log)

    def seal(self, world: World) -> Steps:
        """A broker seals its open entry."""
        for number, broker in enumerate(world.brokers):
            if not broker.unsealed:
                continue
            for is_object in (False, True):
                if self._bounds.bodies == ("inline" if is_object else "object"):
                    continue
                sequence = broker.next_sequence
                entry = Entry(broker.session, sequence, broker.unsealed, is_object, not is_object)
                after = with_broker(
                    world,
                    number,
                    unsealed=(),
                    sealed=(*broker.sealed, entry),
                    next_sequence=sequence + 1,
                )
                kind = "an object" if is_object else "inline"
                yield f"broker {number} seals entry {sequence}, {kind}", after

    def upload(self, world: World) -> Steps:
        """A broker puts the object of an entry into the bucket; one that is there is its own."""
        for number, broker in enumerate(world.brokers):
            for at, entry in enumerate(broker.sealed):
                if entry.is_ready:
                    continue
                line = f"broker {number} puts the object of entry {entry.sequence}"
                there = world._replace(bucket=world.bucket | {entry.key})
                sealed = replaced(broker.sealed, at, entry._replace(is_ready=True))
                yield line, with_broker(there, number, sealed=sealed)
                if world.left.lost and entry.key not in world.bucket:
                    yield f"{line}: the answer is lost", spend(there, "lost")
                if world.left.late and entry.key not in world.bucket | world.late:
                    late = world._replace(late=world.late | {entry.key})
                    yield f"{line}: it has no answer yet", spend(late, "late")

    def hurry(self, world: World) -> Steps:
        """A broker lets the catalog have an entry whose upload is slow, done or not."""
        if not world.left.slow:
            return
        for number, broker in enumerate(world.brokers):
            for at, entry in enumerate(broker.sealed):
                if entry.is_ready:
                    continue
                line = f"broker {number} gives up the upload of entry {entry.sequence}"
                inline = entry._replace(is_object=False, is_ready=True)
                after = with_broker(
                    spend(world, "slow"), number, sealed=replaced(broker.sealed, at, inline)
                )
                yield f"{line}, which is done", after._replace(bucket=world.bucket | {entry.key})
                if entry.key not in world.bucket:
                    yield f"{line}, which comes later", after._replace(
                        late=world.late | {entry.key}
                    )

    def discard(self, world: World) -> Steps:
        """A broker deletes the object of an entry that the catalog has."""
        for number, broker in enumerate(world.brokers):
            own = [one for one in world.catalog.entries if one.session == broker.session]
            for entry in (*broker.sealed, *own):
                is_wanted = entry.is_object and self._rules.discards_the_inline
                if entry.key in world.bucket and not is_wanted:
                    line = f"broker {number} discards the object of entry {entry.sequence}"
                    yield line, world._replace(bucket=world.bucket - {entry.key})

    def arrive(self, world: World) -> Steps:
        """A PUT takes effect long after its sender has given it up."""
        for key in world.late:
            after = world._replace(late=world.late - {key}, bucket=world.bucket | {key})
            yield f"the late PUT of {key} takes effect", after

    def commit(self, world: World) -> Steps:
        """A broker commits all entries that are ready, or repeats a commit without an answer."""
        for number, broker in enumerate(world.brokers):
            entries = self._ready(broker)
            if not entries:
                continue
            line = f"broker {number} commits {len(entries)} of its entries"
            line += f" from {entries[0].sequence} on"
            catalog, problem = self._committed(world.catalog, broker, entries)
            if catalog is None:
                nothing = (None,) * self._bounds.partitions
                fresh = Broker(NONE, nothing, nothing, cleaned=broker.cleaned)
                after = world._replace(brokers=replaced(world.brokers, number, fresh))
                yield f"{line}: its session is closed", after
                continue
            after = world._replace(catalog=catalog)
            if catalog is not world.catalog:
                after = _noted_truth(after, entries, problem)
            yield line, self._settled(after, number, entries)
            if world.left.lost and catalog is not world.catalog:
                doubtful = with_broker(after, number, in_doubt=len(entries))
                yield f"{line}: the answer is lost", spend(doubtful, "lost")

    def _ready(self, broker: Broker) -> tuple[Entry, ...]:
        if broker.in_doubt:
            return broker.sealed[: broker.in_doubt]
        count = 0
        for one in broker.sealed:
            if not one.is_ready and self._rules.uploads_before_commit:
                break
            count += 1
        if not self._rules.commits_in_order and count < len(broker.sealed):
            return tuple(one for one in broker.sealed[count:] if one.is_ready)[:1]
        return broker.sealed[:count]

    def _committed(
        self, catalog: Catalog, broker: Broker, entries: tuple[Entry, ...]
    ) -> tuple[Catalog | None, str | None]:
        """Return the catalog after a commit, the same one after a repetition, None if refused."""
        first, count = entries[0].sequence, len(entries)
        session = catalog.sessions[broker.session]
        is_open = session.is_open or not self._rules.commits_in_session
        is_next = session.next_sequence == first or not (
            self._rules.commits_by_sequence and self._rules.commits_in_order
        )
        if is_open and is_next:
            problem = None
            if not session.is_open:
                problem = f"fence: an entry of session {broker.session} is committed after its end"
            session = session._replace(next_sequence=first + count)
            sessions = replaced(catalog.sessions, broker.session, session)
            rows = tuple(one._replace(is_ready=True) for one in entries)
            after = catalog._replace(sessions=sessions, entries=(*catalog.entries, *rows))
            return after, problem
        return (catalog if session.next_sequence == first + count else None), None

    def _settled(self, world: World, number: int, entries: tuple[Entry, ...]) -> World:
        broker = world.brokers[number]
        logs = list(broker.logs)
        for entry in entries:
            for run in entry.runs:
                log = logs[run.partition]
                if log is not None:
                    logs[run.partition] = log._replace(high_watermark=run.end)
        done = {one.sequence for one in entries}
        sealed = tuple(one for one in broker.sealed if one.sequence not in done)
        return with_broker(world, number, logs=tuple(logs), sealed=sealed, in_doubt=0)

    def acknowledge(self, world: World) -> Steps:
        """A producer gets the answer to its first batch that has none."""
        for number, broker in enumerate(world.brokers):
            for partition, log in enumerate(broker.logs):
                batch = world.acked[partition]
                if log is None or batch > log.last:
                    continue
                offsets = [offset for offset, one in log.batches if one == batch]
                # One that was removed since is below the others.
                offset = offsets[-1] if offsets else NONE
                if offset < log.built and not is_served(world, number, log, self._rules):
                    continue  # another leader has appended it: the producer asks again
                is_after = self._rules.acks_after_commit
                if offset < (log.high_watermark if is_after else log.end):
                    acked = replaced(world.acked, partition, batch + 1)
                    line = f"broker {number} acknowledges batch {batch} of partition {partition}"
                    yield line, world._replace(acked=acked)

    def roll_back(self, world: World) -> Steps:
        """The database fails over to a copy that lacks the last commit of the WAL."""
        if world.left.rollbacks and world.catalog.entries and not world.catalog.doubt:
            *entries, last = world.catalog.entries
            session = world.catalog.sessions[last.session]
            if session.next_sequence == last.sequence + 1:
                sessions = replaced(
                    world.catalog.sessions,
                    last.session,
                    session._replace(next_sequence=last.sequence),
                )
                after = with_catalog(
                    spend(world, "rollbacks"), sessions=sessions, entries=tuple(entries)
                )
                yield f"the catalog loses entry {last.sequence} of session {last.session}", after


def is_served(world: World, number: int, log: Log, rules: Rules) -> bool:
    """Return whether a broker serves a log: it leads, and its lease has not ended by its clock."""
    session = world.catalog.sessions[world.brokers[number].session]
    return log.target == NONE and (session.is_live or not rules.serves_within_lease)


def _noted_truth(world: World, entries: tuple[Entry, ...], problem: str | None) -> World:
    truth = list(world.truth)
    for entry in entries:
        for run in entry.runs:
            past = truth[run.partition]
            if run.base != len(past):
                problem = problem or (
                    f"offsets: partition {run.partition} ends at {len(past)}, and batches from "
                    f"{run.base} on are committed"
                )
            truth[run.partition] = (
                *past,
                *((batch, run.epoch, entry.session) for batch in run.batches),
            )
    return world._replace(truth=tuple(truth), problem=problem)
