"""odradek records: deletes the first records of partitions."""

from __future__ import annotations

from typing import Any

import click

from odradek.cli.answer import print_json
from odradek.cli.arguments import Name, dry_run_option, partitions_option, yes_option
from odradek.cli.client import REQUEST_TIMEOUT_S, Admin, Connection, broker_options, json_option
from odradek.cli.completion import complete_topics
from odradek.cli.positions import BEGINNING, Partition, Position, PositionType, resolve
from odradek.cli.refusals import Act, CommandError
from odradek.cli.words import count

# Kafka's answer for a topic without cleanup.policy=delete.
_POLICY = "POLICY_VIOLATION"


@click.group()
def records() -> None:
    """Delete the first records of partitions."""


@records.command()
@click.argument("topic", type=Name(), shell_complete=complete_topics)
@partitions_option("Delete in")
@click.option(
    "--before",
    "position",
    required=True,
    type=PositionType(),
    metavar="POSITION",
    help="The first position that stays: an offset (42), a time (@2026-11-22T10:00:00Z), end, or "
    "the last few records (-10).",
)
@dry_run_option
@yes_option
@json_option
@broker_options
def delete(
    topic: str,
    numbers: tuple[int, ...],
    position: Position,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    connection: Connection,
) -> None:
    """Delete the records of a topic before a position, in all partitions or in some.

    Asks for confirmation, unless --yes is given. Readers begin at the position from then on; the
    space is freed a little later, a segment at a time.

    Example: odradek records delete clicks --before @2026-11-01 --dry-run
    """
    admin = connection.admin()
    chosen = {topic: admin.require_partitions(topic, numbers)}
    before = resolve(admin, chosen, BEGINNING)
    after = resolve(admin, chosen, position)
    moved = {one: at for one, at in after.items() if at > before[one]}
    total = sum(at - before[one] for one, at in moved.items())
    if moved and not dry_run:
        if not yes:
            question = f"Delete {count(total, 'offset')} of {topic} for good?"
            click.confirm(question, abort=True, err=True)
        after |= _deleted(admin, moved)
    rows = [
        {"topic": topic, "partition": number, "before": before[topic, number], "after": at}
        for (_, number), at in sorted(after.items())
    ]
    if as_json:
        return print_json({"dry_run": dry_run, "start_offsets": rows})
    from odradek.cli.tables import print_rows

    print_rows(["Topic", "Partition>", "Start>", "Start then>"], [tuple(r.values()) for r in rows])
    if dry_run or not moved:
        click.echo("\nNothing was changed.")


def _deleted(admin: Admin, wanted: dict[Partition, int]) -> dict[Partition, int]:
    from confluent_kafka import TopicPartition

    futures: dict[Any, Any] = admin.client.delete_records(
        [TopicPartition(topic, number, at) for (topic, number), at in wanted.items()],
        request_timeout=REQUEST_TIMEOUT_S,
    )
    found = {}
    for one, future in futures.items():
        act = Act(f"delete records of {one.topic}-{one.partition}", f"DELETE on topic {one.topic}")
        try:
            found[one.topic, one.partition] = admin.wait(future, act).low_watermark
        except CommandError as error:
            if _POLICY not in error.message:
                raise
            raise CommandError(
                f"topic {one.topic} is only compacted: its first records stay until others "
                "have their keys: write tombstones, or set cleanup.policy=compact,delete"
            ) from error
    return found
