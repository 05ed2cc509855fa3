"""Plays the lines of recordings, in the order of their times, into a history."""

from __future__ import annotations

from typing import Any

from tests.histories.history import (
    Acknowledgement,
    Append,
    Deletion,
    Disruption,
    Event,
    History,
    Led,
    OffsetCommit,
    OffsetFetch,
    Outcome,
    Place,
    Read,
    Scan,
    ShareAck,
    ShareDelivery,
    Start,
    Topic,
    Transaction,
    Watermark,
)

Line = dict[str, Any]
Id = tuple[int, int | str]
_DELIVERIES = ("idempotent", "once", "retried")


class Player:
    """Makes a history of lines; `recording` describes them."""

    def __init__(self) -> None:
        self.history = History()
        self._begun: dict[Id, Line] = {}
        # The events of the operations that have begun; reads have some of their own at their end.
        self._events: dict[Id, Any] = {}

    def play(self, file: int, line: Line) -> None:
        """Take the next line of a file. Raises KeyError and ValueError for one that is wrong."""
        number: Id = file, line["id"]
        if "begin" in line:
            if number in self._begun:
                raise ValueError("an operation with this id has begun before")
            self._begun[number] = line
            event = getattr(self, "_begin_" + _known(line["begin"], _BEGINS))(file, line)
            if event is not None:
                self._events[number] = self._note(event, line)
            return
        begun = self._begun[number]
        outcome = Outcome(line["outcome"])
        event = self._events.get(number)
        if event is not None:
            event.done_at, event.done_s = self.history.tick(), line["time_s"]
            if hasattr(event, "outcome"):
                event.outcome = outcome
        kind = begun["begin"]
        if (outcome is Outcome.DONE and kind in _ENDS) or kind in ("commit", "abort"):
            getattr(self, f"_end_{kind}")(begun, line, event, outcome, number)

    def _note(self, event: Event, line: Line) -> Event:
        event.time_s = line["time_s"]
        noted: Event = self.history.add(event)
        return noted

    # --- beginnings ----------------------------------------------------------------------------

    def _begin_topic(self, file: int, line: Line) -> None:
        self.history.topics[line["topic"]] = Topic(
            line.get("keeps_reads", False),
            line.get("compacted", False),
            line.get("delete_retention_s", 0.0),
            line.get("retained", False),
            line.get("keeps_deletions", True),
        )

    def _begin_problem(self, file: int, line: Line) -> None:
        self.history.troubles.append(line["text"])

    def _begin_transaction(self, file: int, line: Line) -> Event:
        return Transaction(line["producer"], line["number"])

    def _begin_append(self, file: int, line: Line) -> Event:
        values = tuple(line["values"])
        for one in values:
            int(one.rpartition("-")[2])
        delivery = _known(line.get("delivery", "idempotent"), _DELIVERIES)
        return Append(
            values[0].rpartition("-")[0],
            _place(line),
            values,
            is_plain=delivery != "idempotent",
            transaction=self._transaction(file, line),
            is_repeated=delivery == "retried",
            tombstones=frozenset(line.get("tombstones", ())),
        )

    def _begin_commit(self, file: int, line: Line) -> None:
        transaction = self._events[file, line["transaction"]]
        transaction.commit_at = transaction.commit_at or self.history.tick()

    def _begin_abort(self, file: int, line: Line) -> None:
        self._events[file, line["transaction"]]

    def _begin_read(self, file: int, line: Line) -> None:
        line["at"] = self.history.tick()

    _begin_scan = _begin_fetch_offset = _begin_metadata = _begin_share_fetch = _begin_read

    def _begin_delete_records(self, file: int, line: Line) -> Event:
        return Deletion(_place(line), line["offset"])

    def _begin_commit_offset(self, file: int, line: Line) -> Event:
        return OffsetCommit(
            line["group"],
            _place(line),
            line["offset"],
            self._transaction(file, line),
            is_position=line.get("position", False),
        )

    def _begin_share_acknowledge(self, file: int, line: Line) -> Event:
        kind = Acknowledgement(line["type"])
        bounds = line["first"], line["last"]
        return ShareAck(line["group"], line["client"], _place(line), *bounds, kind)

    def _begin_disrupt(self, file: int, line: Line) -> Event:
        return Disruption(line["name"], line.get("node", -1))

    def _transaction(self, file: int, line: Line) -> Transaction | None:
        if "transaction" not in line:
            return None
        found: Transaction = self._events[file, line["transaction"]]
        return found

    # --- ends ----------------------------------------------------------------------------------

    def _end_append(self, begun: Line, line: Line, event: Any, *_: object) -> None:
        event.offset = line.get("offset", -1)

    def _end_commit(self, begun: Line, line: Line, _: Any, outcome: Outcome, number: Id) -> None:
        self._settle(number[0], begun, line, outcome)

    def _end_abort(self, begun: Line, line: Line, _: Any, outcome: Outcome, number: Id) -> None:
        if outcome is Outcome.DONE:
            self._settle(number[0], begun, line, Outcome.UNDONE)

    def _settle(self, file: int, begun: Line, line: Line, outcome: Outcome) -> None:
        transaction = self._events[file, begun["transaction"]]
        self.history.end(transaction, outcome)
        transaction.done_s = line["time_s"]

    def _end_read(self, begun: Line, line: Line, *_: object) -> list[Read]:
        place, history = _place(begun), self.history
        # As in a simulation, the moment of an answer: a commit that was asked for later is not
        # an excuse for a record that was read.
        at = history.tick()
        found = [
            Read(
                begun["client"], place, offset, epoch, value, begun["committed"],
                at=at, time_s=line["time_s"],
            )
            for offset, epoch, value in line["records"]
        ]  # fmt: skip
        history.reads += found
        if "high_watermark" in line:
            known = line.get("epoch", -1), line["high_watermark"], line.get("node", -1)
            self._note_between(Watermark(begun["client"], place, *known), begun, line)
        if "log_start" in line:
            self._note_between(Start(place, line["log_start"]), begun, line)
        return found

    def _end_scan(self, begun: Line, line: Line, *_: object) -> None:
        reads, place = self._end_read(begun, line), _place(begun)
        bounds, committed = (line["log_start"], line["log_end"]), begun["committed"]
        scan = Scan(begun["client"], place, *bounds, committed, reads)
        self._note_between(scan, begun, line)
        if begun.get("final", False):
            final = self.history.final_committed if committed else self.history.final
            final[place] = reads
            starts, ends = self.history.final_starts, self.history.final_ends
            # Retention may go on between the two scans, and a transaction may still be open.
            starts[place] = max(bounds[0], starts.get(place, 0))
            ends[place] = max(bounds[1], ends.get(place, 0))

    def _end_delete_records(self, begun: Line, line: Line, *_: object) -> None:
        start = Start(_place(begun), line["log_start"], is_promise=True)
        self._note_between(start, line, line)

    def _end_fetch_offset(self, begun: Line, line: Line, *_: object) -> None:
        fetch = OffsetFetch(begun["group"], _place(begun), line["offset"])
        self._note_between(fetch, begun, line)

    def _end_share_fetch(self, begun: Line, line: Line, *_: object) -> None:
        for offset, count, value in line["records"]:
            names = begun["group"], begun["client"]
            delivery = ShareDelivery(*names, _place(begun), offset, value, count)
            self._note_between(delivery, begun, line)

    def _end_metadata(self, begun: Line, line: Line, *_: object) -> None:
        for topic, topic_id, partition, epoch, node in line["leaders"]:
            self._note_between(Led((topic_id, partition), epoch, node, topic), line, line)

    def _note_between(self, event: Event, begun: Line, line: Line) -> None:
        """Note an event that is known only at its end."""
        event.at, event.time_s = begun.get("at", 0), begun["time_s"]
        event.done_s = line["time_s"]
        self.history.add(event)
        event.done_at = self.history.at


def _place(line: Line) -> Place:
    return line["topic"], line["partition"]


def _known(word: str, words: tuple[str, ...]) -> str:
    if word not in words:
        raise ValueError(f"{word!r} is none of {', '.join(words)}")
    return word


_BEGINS = tuple(name.removeprefix("_begin_") for name in dir(Player) if name.startswith("_begin_"))
_ENDS = tuple(name.removeprefix("_end_") for name in dir(Player) if name.startswith("_end_"))
