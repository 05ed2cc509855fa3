"""Positions in partitions: the beginning, the end, an offset, a time, or the last few records."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

import click

from odradek.cli.answer import print_json
from odradek.cli.arguments import partitions_option, topics_option
from odradek.cli.client import REQUEST_TIMEOUT_S
from odradek.cli.refusals import Act, CommandError
from odradek.dataclass import dataclass

if TYPE_CHECKING:
    from odradek.cli.client import Admin

F = TypeVar("F", bound=Callable[..., None])

Partition = tuple[str, int]
_FORMS = (
    "beginning, end, an offset (42), the last few (-10), a time (@2026-11-22T10:00:00Z, @MS)"
)
_BETWEEN_LEADERS = ("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE")
# Longer than an election takes; a partition whose brokers are down is reported then.
_ELECTION_S, _PAUSE_S = 5.0, 0.05


class Kind(Enum):
    """The kind of a position."""

    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Position:
    """A place in each of several partitions: an offset, milliseconds, or a count with LAST."""

    kind: Kind
    number: int = 0


BEGINNING = Position(Kind.BEGINNING)
END = Position(Kind.END)


class PositionType(click.ParamType[Position]):
    """A position on the command line; a time without a zone is UTC, as in Kafka's tools."""

    name = "position"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Position:
        """Parse the text of a position."""
        if isinstance(value, Position):
            return value
        text = str(value)
        if text in ("beginning", "end"):
            return Position(Kind(text))
        if re.fullmatch(r"\d{1,18}", text):
            return Position(Kind.OFFSET, int(text))
        if re.fullmatch(r"-\d{1,18}", text):
            return Position(Kind.LAST, int(text[1:]))
        if re.fullmatch(r"@\d{1,18}", text):
            return Position(Kind.TIMESTAMP, int(text[1:]))
        try:
            at = datetime.fromisoformat(text.removeprefix("@"))
            if text[0] != "@":
                raise ValueError(text)
        except ValueError:
            self.fail(f"{text!r} is none of: {_FORMS}", param, ctx)
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        return Position(Kind.TIMESTAMP, int(at.timestamp() * 1000))


def move_options(help: str) -> Callable[[F], F]:
    """Return the options of a command that moves a group's offsets; `help` is about its topics.

    The command gets `topics`, `numbers` of partitions, `position` and `dry_run`.
    """

    def add(command: F) -> F:
        for option in (
            click.option(
                "--dry-run", is_flag=True, help="Show the new offsets, but change nothing."
            ),
            click.option(
                "--to",
                "position",
                type=PositionType(),
                required=True,
                metavar="POSITION",
                help="beginning, end, an offset (42), before the last few of each partition "
                "(-10), or a time (@2026-11-22T10:00:00Z, @MILLISECONDS).",
            ),
            partitions_option("Move"),
            topics_option(help, required=True),
        ):
            command = option(command)
        return command

    return add


def resolve(
    admin: Admin,
    partitions: Mapping[str, Iterable[int]],
    position: Position,
    *,
    is_committed: bool = False,
) -> dict[Partition, int]:
    """Request the offsets of a position, which always lie between the partitions' ends.

    With `is_committed` the end is the last stable offset. A time after the last record becomes
    the end, an offset past the end the end, and an offset before the beginning the beginning.
    """
    wanted = [(topic, one) for topic, ids in partitions.items() for one in ids]
    if not wanted:
        return {}
    if position.kind is Kind.BEGINNING:
        return _ask(admin, wanted, BEGINNING, is_committed)
    end = _ask(admin, wanted, END, is_committed)
    if position.kind is Kind.END:
        return end
    if position.kind is Kind.TIMESTAMP:
        found = _ask(admin, wanted, position, is_committed)
        return {one: end[one] if at < 0 else at for one, at in found.items()}
    start = _ask(admin, wanted, BEGINNING, is_committed)
    number, is_last = position.number, position.kind is Kind.LAST
    asked = {one: end[one] - number if is_last else number for one in wanted}
    return {one: min(max(at, start[one]), end[one]) for one, at in asked.items()}


def print_moved(
    group: str,
    before: Mapping[Partition, int | None],
    after: Mapping[Partition, int],
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Print how a group's offsets are moved."""
    moved = [
        {"topic": topic, "partition": number, "before": before.get((topic, number)), "after": at}
        for (topic, number), at in sorted(after.items())
    ]
    if as_json:
        return print_json({"group": group, "dry_run": dry_run, "offsets": moved})
    from odradek.cli.tables import print_rows

    columns = ["Topic", "Partition>", "Before>", "After>"]
    print_rows(columns, [tuple(one.values()) for one in moved])
    if dry_run:
        click.echo("\nNothing was changed.")


def _ask(
    admin: Admin, wanted: list[Partition], position: Position, is_committed: bool
) -> dict[Partition, int]:
    """Request offsets, again while a partition is between two leaders.

    A new topic of Kafka is known some time before its leaders know that they lead.
    """
    deadline_s = time.monotonic() + _ELECTION_S
    while True:
        try:
            return _ask_once(admin, wanted, position, is_committed)
        except CommandError as error:
            if not _is_passing(error) or time.monotonic() > deadline_s:
                raise
        time.sleep(_PAUSE_S)


def _ask_once(
    admin: Admin, wanted: list[Partition], position: Position, is_committed: bool
) -> dict[Partition, int]:
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    makers: dict[Kind, Callable[[], OffsetSpec]] = {
        Kind.BEGINNING: OffsetSpec.earliest,
        Kind.END: OffsetSpec.latest,
        Kind.TIMESTAMP: lambda: OffsetSpec.for_timestamp(position.number),
    }
    spec = makers[position.kind]()
    futures = admin.client.list_offsets(
        {TopicPartition(topic, one): spec for topic, one in wanted},
        isolation_level=IsolationLevel.READ_COMMITTED
        if is_committed
        else IsolationLevel.READ_UNCOMMITTED,
        request_timeout=REQUEST_TIMEOUT_S,
    )
    found: dict[Partition, int] = {}
    for partition, future in futures.items():
        topic, number = partition.topic, partition.partition
        act = Act(f"find offsets of {topic}-{number}", f"DESCRIBE on topic {topic}")
        found[topic, number] = admin.wait(future, act).offset
    return found


def _is_passing(error: CommandError) -> bool:
    from confluent_kafka import KafkaException

    cause = error.__cause__
    return isinstance(cause, KafkaException) and cause.args[0].name() in _BETWEEN_LEADERS
