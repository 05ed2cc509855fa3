"""Segments in the bucket, exchanges of them, the freeing of the WAL, and garbage.

All records of a partition have one key, so a cleaning keeps the last one of those it reads.
"""

from __future__ import annotations

from tests.model.guards import Rules
from tests.model.sessions import Steps
from tests.model.states import (
    NONE,
    Bounds,
    Catalog,
    Change,
    Key,
    Log,
    Row,
    World,
    has_open_session,
    named_keys,
    noted,
    replaced,
    spend,
    with_broker,
    with_catalog,
    with_log,
)


class Refused(Exception):
    """The catalog refuses a change of rows."""


class Storing:
    """Actions of leaders that store logs, of jobs that clean, and of the janitor."""

    def __init__(self, bounds: Bounds, rules: Rules) -> None:
        self._bounds, self._rules = bounds, rules

    # --- making -------------------------------------------------------------------------------

    def store(self, world: World) -> Steps:
        """A leader uploads the part of a log that is not stored, sealed or still active."""
        for number, broker in enumerate(world.brokers):
            if broker.change is not None or not world.left.stores:
                continue
            for partition, log in enumerate(broker.logs):
                if log is None:
                    continue
                end = log.high_watermark if self._rules.stores_what_is_committed else log.end
                if end <= log.stored:
                    continue
                for is_open in (False, True):
                    row = self._part(log, partition, end, is_open, self._key(world, number))
                    change = Change(broker.session, log.epoch, row, ())
                    kind = "the active segment" if is_open else "a sealed segment"
                    line = f"broker {number} uploads {kind}, offsets {row.base} to {end - 1}"
                    yield from self._uploaded(world, number, "stores", line, "change", change)

    def _part(self, log: Log, partition: int, end: int, is_open: bool, key: Key) -> Row:
        batches = tuple(one for one in log.batches if log.active <= one[0] < end)
        last = batches[-1][1] if batches else log.last
        if is_open:
            before = [batch for offset, batch in log.batches if offset < log.active]
            before += [row.last for row in log.rows if row.end == log.active and not row.is_open]
            last = max(before, default=NONE)
        elif not self._rules.snapshots_are_at_end:
            last -= 1
        return Row(partition, log.active, end, key, batches, last, is_open)

    def clean(self, world: World) -> Steps:
        """A cleaner, or a job with a lease, uploads one segment in the place of sealed ones."""
        if not world.left.cleanings:
            return
        for number, broker in enumerate(world.brokers):
            for partition, log in enumerate(broker.logs):
                if log is None or log.target != NONE or broker.cleaned is not None:
                    continue
                old = tuple(one for one in log.rows if not one.is_open)
                batches = tuple(one for row in old for one in row.batches)
                if len(batches) < 2 and len(old) < 2:
                    continue
                key = self._key(world, number)
                row = Row(
                    partition, old[0].base, old[-1].end, key, batches[-1:], old[-1].last, False
                )
                by_job = self._bounds.has_jobs
                change = Change(broker.session, log.epoch, row, old, by_job)
                after = world
                if by_job:
                    if world.catalog.lease != NONE:
                        continue
                    after = with_catalog(world, lease=broker.session, is_answered=False)
                line = f"{'a job' if by_job else 'the cleaner'} of broker {number} uploads offsets"
                line += f" {row.base} to {row.end - 1}, cleaned"
                yield from self._uploaded(after, number, "cleanings", line, "cleaned", change)

    def _key(self, world: World, number: int) -> Key:
        broker = world.brokers[number]
        return "segments", broker.session, broker.number

    def _uploaded(
        self, world: World, number: int, work: str, line: str, field: str, change: Change
    ) -> Steps:
        """Take the steps of an upload. If its answer is lost, nothing names the object."""
        key = change.row.key
        counted = with_broker(spend(world, work), number, number=world.brokers[number].number + 1)
        there = counted._replace(bucket=counted.bucket | {key})
        made = counted if not self._rules.uploads_before_naming else there
        yield line, with_broker(made, number, **{field: change})
        if self._bounds.has_orphans:
            if world.left.lost:
                yield f"{line}: the answer is lost", spend(there, "lost")
            if world.left.late:
                late = counted._replace(late=counted.late | {key})
                yield f"{line}: it has no answer yet", spend(late, "late")

    # --- changing rows --------------------------------------------------------------------------

    def exchange(self, world: World) -> Steps:
        """A leader begins to exchange rows, if it has them: `exchange_stored`."""
        for number, broker in enumerate(world.brokers):
            cleaned = broker.cleaned
            if cleaned is None or broker.change is not None or broker.session == NONE:
                continue
            log = broker.logs[cleaned.row.partition]
            is_current = log is not None and set(cleaned.old) <= set(log.rows)
            if cleaned.is_leased and cleaned.session != broker.session:
                is_current = False
            after = with_broker(world, number, cleaned=None)
            if log is not None and (is_current or not self._rules.exchanges_current_rows):
                change = cleaned._replace(session=broker.session, epoch=log.epoch)
                yield (
                    f"broker {number} begins an exchange",
                    with_broker(after, number, change=change),
                )
            else:
                yield f"broker {number} gives a cleaning up", _dropped(after, cleaned)

    def change_rows(self, world: World) -> Steps:
        """A leader changes rows in the catalog, or repeats that."""
        if world.catalog.doubt is not None:
            return  # Engine.exclude_changes
        for number, broker in enumerate(world.brokers):
            change = broker.change
            if change is None:
                continue
            kind = "exchanges rows" if change.old else "adds a row"
            line = f"broker {number} {kind}, offsets {change.row.base} to {change.row.end - 1}"
            done = with_broker(world, number, change=None)
            try:
                catalog = self._changed(world.catalog, change)
            except Refused as error:
                yield f"{line}: refused, {error}", _dropped(done, change)
                continue
            after = _with_removed(done._replace(catalog=catalog), world.catalog, change)
            yield line, self._followed(after, number, change)
            if world.left.lost and catalog != world.catalog:
                doubtful = with_broker(after, number, change=change._replace(is_in_doubt=True))
                yield f"{line}: the answer is lost", spend(doubtful, "lost")

    def _changed(self, catalog: Catalog, change: Change) -> Catalog:
        row, rules = change.row, self._rules
        session, place = catalog.sessions[change.session], catalog.places[row.partition]
        if rules.stores_as_leader:
            if not session.is_open:
                raise Refused("its session is closed")
            if place.leader != session.broker:
                raise Refused("it does not lead")
            if place.epoch != change.epoch and rules.stores_in_epoch:
                raise Refused("another broker has led since")
        if change.old:
            return self._exchanged(catalog, change)
        if place.stored < row.base:
            raise Refused("there would be a gap")
        before = [one for one in catalog.rows if _place(one) == _place(row)]
        if before and before[0].end > row.end:
            raise Refused("the present row has later records")
        unnamed = [one.key for one in before if one.key != row.key]
        rows = tuple(sorted([*(one for one in catalog.rows if one not in before), row]))
        place = place._replace(stored=max(place.stored, row.end))
        return catalog._replace(
            rows=rows,
            places=replaced(catalog.places, row.partition, place),
            notes=noted(catalog, unnamed),
        )

    def _exchanged(self, catalog: Catalog, change: Change) -> Catalog:
        row, rules = change.row, self._rules
        at_place = [one for one in catalog.rows if _place(one) in map(_place, change.old)]
        is_current = [one.key for one in at_place] == [one.key for one in change.old]
        is_repetition = row in catalog.rows and rules.exchange_can_be_repeated
        if not is_current and is_repetition:
            after = catalog
        elif not is_current and rules.exchanges_current_rows:
            raise Refused("the rows are no longer current")
        else:
            rows = [one for one in catalog.rows if one not in at_place]
            unnamed = [one.key for one in at_place]
            after = catalog._replace(
                rows=tuple(sorted([*rows, row])), notes=noted(catalog, unnamed)
            )
        if change.is_leased and not (is_repetition and rules.answer_can_be_repeated):
            if catalog.lease != change.session:
                raise Refused("the job has given its lease back")
            after = after._replace(is_answered=True)
        return after

    def _followed(self, world: World, number: int, change: Change) -> World:
        """Let the leader's view have the change, if it still has the log."""
        row = change.row
        log = world.brokers[number].logs[row.partition]
        if log is None:
            return world
        gone = {one.base for one in change.old} or {row.base}
        rows = tuple(sorted([*(one for one in log.rows if one.base not in gone), row]))
        log = log._replace(rows=rows)
        if not change.old:
            log = log._replace(
                stored=max(log.stored, row.end), active=log.active if row.is_open else row.end
            )
        else:
            kept = [one for one in log.batches if not row.base <= one[0] < row.end]
            log = log._replace(batches=tuple(sorted([*kept, *row.batches])))
        return with_log(world, number, row.partition, log)

    def give_back(self, world: World) -> Steps:
        """A job that has its answer gives the lease back."""
        if world.catalog.is_answered:
            yield (
                "the job gives its lease back",
                with_catalog(world, lease=NONE, is_answered=False),
            )

    # --- garbage --------------------------------------------------------------------------------

    def trim(self, world: World) -> Steps:
        """The WAL forgets an entry whose records segments have."""
        if not self._bounds.has_garbage:
            return
        catalog = world.catalog
        choose = all if self._rules.frees_for_all else any
        for entry in catalog.entries:
            needless = [self._needless(world, one.partition) for one in entry.runs]
            if choose(run.end <= end for run, end in zip(entry.runs, needless, strict=True)):
                after = with_catalog(
                    world,
                    entries=tuple(one for one in catalog.entries if one != entry),
                    notes=noted(catalog, [entry.key] if entry.is_object else []),
                )
                yield f"the WAL forgets entry {entry.sequence} of session {entry.session}", after

    def _needless(self, world: World, partition: int) -> int:
        if self._rules.frees_what_is_stored:
            return world.catalog.places[partition].stored
        return len(world.truth[partition])

    def pass_delay(self, world: World) -> Steps:
        """The delay passes for a note: it is longer than any reading or repetition."""
        if not self._bounds.has_garbage:
            return
        for key, is_due in sorted(world.catalog.notes):
            if not is_due and not _is_read(world, key):
                notes = (world.catalog.notes - {(key, False)}) | {(key, True)}
                yield f"the note on {_named(key)} is old", with_catalog(world, notes=notes)

    def look_for_garbage(self, world: World) -> Steps:
        """The janitor takes an object that is due; a note on one that rows name is removed."""
        if world.doomed is not None or not self._bounds.has_garbage:
            return
        named = {row.key for row in world.catalog.rows}
        for key, is_due in sorted(world.catalog.notes):
            if not is_due and self._rules.deletes_after_delay:
                continue
            if key in named and self._rules.deletes_the_unnamed:
                notes = world.catalog.notes - {(key, is_due)}
                yield f"the note on {_named(key)} goes", with_catalog(world, notes=notes)
            else:
                yield f"the janitor takes {_named(key)}", world._replace(doomed=key)

    def delete(self, world: World) -> Steps:
        """An object is deleted, and its note removed."""
        if world.doomed is not None:
            key = world.doomed
            notes = world.catalog.notes - {(key, True), (key, False)}
            after = world._replace(doomed=None, bucket=world.bucket - {key})
            yield f"{_named(key)} is deleted", with_catalog(after, notes=notes)

    def find_orphan(self, world: World) -> Steps:
        """An operator has an object deleted that nothing names, of a session that is closed."""
        if not self._bounds.has_orphans or world.doomed is not None:
            return
        known = named_keys(world.catalog) | {key for key, _ in world.catalog.notes}
        for key in sorted(world.bucket - known):
            is_open = world.catalog.sessions[key[1]].is_open
            if not (is_open and self._rules.collects_of_closed_sessions):
                yield f"the check takes {_named(key)}, an orphan", world._replace(doomed=key)


def _place(row: Row) -> tuple[int, int]:
    return row.partition, row.base


def _named(key: Key) -> str:
    kind, session, number = key
    return f"{kind}/{session}/{number}"


def _dropped(world: World, change: Change) -> World:
    """Let an object be deleted that the catalog has refused to name."""
    return with_catalog(world, notes=noted(world.catalog, [change.row.key]))


def _is_read(world: World, key: Key) -> bool:
    """Return whether a broker has looked an object up, and its session is open."""
    for number, broker in enumerate(world.brokers):
        if not has_open_session(world, number):
            continue
        openings = [one for one in broker.openings if one is not None]
        if any(row.key == key for one in openings for row in one.rows):
            return True
        if broker.change is not None and any(row.key == key for row in broker.change.old):
            return True
    return False


def _with_removed(world: World, before: Catalog, change: Change) -> World:
    """Note the offsets that an exchange has removed."""
    if not change.old or world.catalog.rows == before.rows:
        return world
    kept = {offset for offset, _ in change.row.batches}
    gone = {
        (change.row.partition, offset)
        for row in change.old
        for offset, _ in row.batches
        if offset not in kept
    }
    return world._replace(removed=world.removed | gone)
