"""Clean shared topics on the bucket by Spark, beside their brokers.

The job takes the cleaning of partitions over from their brokers for a while (a lease), reads
segments from the bucket, writes new ones there, and has the leaders exchange them. Producers and
consumers go on. Partitions are cleaned some at a time; one that was cleaned stays so if
the job fails afterwards. `pipeline.cleaning` describes the work.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace

import click
from pyspark.sql import SparkSession

from odradek.broker.ids import Partition
from odradek.broker.shared.leased import LeasedLog, Leases, find_shared
from odradek.broker.shared.leased_terms import Proposal
from odradek.broker.shared.snapshot import SharedLogs, SnapshotError
from odradek.dataclass import dataclass
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.options import (
    catalog_of_environment,
    errors_in_one_line,
    run_command,
    session_options,
    shared_options,
)
from odradek.pipeline.segment_selection import parse_options
from odradek.pipeline.session import SessionOptions, open_session
from odradek.pipeline.shared_segments import place_of

# Leases that are taken at once, and the bytes that are cleaned together, for each core.
_LEASES, _WAVE_BYTES = 16, 4 << 30
_CORES_MIN = 4
_LOOK_S = 0.5
# A leader looks for leases each second, unless it is very busy, or there is none.
_PATIENCE_S = 60.0
_TRIES = 3


@dataclass(slots=True)
class Outcomes:
    """The fates of partitions, by their names."""

    cleaned: dict[str, Proposal] = field(default_factory=dict)
    unchanged: dict[str, str] = field(default_factory=dict)  # with the leader's reason
    failed: dict[str, str] = field(default_factory=dict)


def clean_topics(
    spark: SparkSession,
    place: SharedLogs,
    names: dict[Partition, str],
    say: Callable[[str], None] = lambda line: None,
) -> Outcomes:
    """Clean shared partitions, given with their names.

    Raises PipelineError if the catalog cannot be read or changed.
    """
    outcomes = Outcomes()
    count = _LEASES * _cores(spark)
    try:
        with Leases(place) as leases:
            waiting = sorted(names, key=lambda key: names[key])
            for _ in range(_TRIES):
                again: list[Partition] = []
                while waiting:
                    some, waiting = waiting[:count], waiting[count:]
                    again += _Round(spark, place, leases, names, outcomes, say).clean(some)
                waiting = again
            for key in waiting:
                outcomes.failed[names[key]] = "its leader or its segments changed again and again"
    except SnapshotError as error:
        raise PipelineError(str(error)) from error
    return outcomes


def find_partitions(
    place: SharedLogs, wants: Callable[[str, int], bool]
) -> dict[Partition, str]:
    """Return the shared partitions that are wanted, by topic and number, and their names.

    Raises PipelineError if there is none.
    """
    try:
        names = find_shared(place, wants)
    except SnapshotError as error:
        raise PipelineError(str(error)) from error
    if not names:
        raise PipelineError("no shared topic is selected: see --topic and --partition")
    return names


class _Round:
    """Takes some leases, cleans the logs, and gives the leases back."""

    def __init__(
        self,
        spark: SparkSession,
        place: SharedLogs,
        leases: Leases,
        names: dict[Partition, str],
        outcomes: Outcomes,
        say: Callable[[str], None],
    ) -> None:
        self._spark, self._place, self._leases = spark, place, leases
        self._wave_bytes = _WAVE_BYTES * _cores(spark)
        self._names, self._outcomes, self._say = names, outcomes, say

    def clean(self, partitions: Sequence[Partition]) -> list[Partition]:
        """Clean partitions; return those that changed meanwhile, to be cleaned again."""
        refused = self._take(partitions)
        for key in refused:
            self._fail(key, "another job cleans it, or it is no shared partition any more")
        again: list[Partition] = []
        granted = self._granted(set(partitions) - refused)
        for logs in _waves(granted, self._wave_bytes):
            again += self._clean(logs)
        self._leases.give_back(set(partitions) - refused)
        return again

    def _take(self, partitions: Sequence[Partition]) -> set[Partition]:
        """Take leases, once those of a job that was killed have ended; return those refused."""
        end_s, refused = time.monotonic() + _PATIENCE_S, self._leases.take(partitions)
        if refused:
            names = ", ".join(sorted(self._names[key] for key in refused))
            self._say(f"waits for the leases of another job: {names}")
        while refused and time.monotonic() < end_s:
            time.sleep(_LOOK_S)
            refused = self._leases.take(refused)
        return refused

    def _granted(self, waiting: set[Partition]) -> list[LeasedLog]:
        """Wait until the leaders have granted leases, or refused them."""
        end_s, granted = time.monotonic() + _PATIENCE_S, set[Partition]()
        while waiting and time.monotonic() < end_s:
            standing = self._leases.standing()
            for key in list(waiting):
                if key in standing.lost:
                    self._fail(key, "it was deleted")
                elif key in standing.answers:
                    self._outcomes.unchanged[self._names[key]] = standing.answers[key]
                    self._say(f"{self._names[key]}: {standing.answers[key]}")
                elif key in standing.granted:
                    granted.add(key)
                else:
                    continue
                waiting.discard(key)
            time.sleep(_LOOK_S if waiting else 0)
        for key in waiting:
            self._fail(key, "no broker that leads it has answered: start its brokers")
        logs = self._leases.logs(granted)
        for key in granted - {log.partition for log in logs}:
            self._fail(key, "it was deleted")
        return sorted(logs, key=lambda log: self._names[log.partition])

    def _clean(self, logs: Sequence[LeasedLog]) -> list[Partition]:
        from odradek.pipeline.cleaning import clean_logs

        size_mb = sum(log.size_bytes for log in logs) / 1e6
        self._say(f"reads {len(logs)} partitions with {size_mb:,.0f} MB")
        begun_s, proposed = time.monotonic(), {}
        again: list[Partition] = []
        for one in clean_logs(self._spark, self._place, logs):
            key = one.log.partition
            if one.proposal is None:
                self._fail(key, one.failure)
            elif self._leases.propose(one.log, one.proposal):
                proposed[key] = one
            else:
                self._say(f"{self._names[key]}: its leader has changed, tries again")
                again.append(key)
        took_s = max(time.monotonic() - begun_s, 0.001)
        self._say(f"wrote in {took_s:,.1f} s, {size_mb / took_s:,.1f} MB/s")
        answers = self._answers(set(proposed))
        for key, one in proposed.items():
            assert one.proposal is not None
            answer = answers.get(key)
            if answer == "":
                self._outcomes.cleaned[self._names[key]] = one.proposal
                self._say(_described(self._names[key], one.log, one.proposal))
            elif answer is None:
                self._say(f"{self._names[key]}: its lease was lost, tries again")
                again.append(key)
            else:
                self._fail(key, answer)
        return again

    def _answers(self, waiting: set[Partition]) -> dict[Partition, str]:
        """Wait for the answers to proposals; those whose leases were lost have none."""
        end_s, found = time.monotonic() + _PATIENCE_S, {}
        sessions: dict[Partition, int] = {}
        while waiting and time.monotonic() < end_s:
            standing = self._leases.standing()
            for key in list(waiting):
                if key in standing.answers:
                    found[key] = standing.answers[key]
                elif key in standing.granted:
                    session = standing.granted[key]
                    if sessions.setdefault(key, session) == session:
                        continue
                elif key not in standing.lost:
                    continue
                waiting.discard(key)
            time.sleep(_LOOK_S if waiting else 0)
        return found

    def _fail(self, key: Partition, reason: str) -> None:
        name = self._names[key]
        self._outcomes.failed[name] = reason
        self._say(f"{name}: FAILED: {reason}")


def _cores(spark: SparkSession) -> int:
    cores: int = max(spark.sparkContext.defaultParallelism, _CORES_MIN)
    return cores


def _waves(logs: Sequence[LeasedLog], bytes_max: int) -> Iterator[list[LeasedLog]]:
    """Yield logs that are cleaned together."""
    wave: list[LeasedLog] = []
    for log in logs:
        if wave and sum(one.size_bytes for one in wave) + log.size_bytes > bytes_max:
            yield wave
            wave = []
        wave.append(log)
    if wave:
        yield wave


def _described(name: str, log: LeasedLog, proposal: Proposal) -> str:
    counters, replaced = proposal.counters, sum(len(one.old) for one in proposal.replacements)
    return (
        f"{name}: cleaned up to offset {log.terms.first_uncleanable_offset}: "
        f"{counters.start_bytes / 1e6:,.1f} MB and {counters.start_records:,} records became "
        f"{counters.end_bytes / 1e6:,.1f} MB and {counters.end_records:,}; {replaced} of "
        f"{len(log.rows)} segments replaced by {len(proposal.replacements)}"
    )


@click.command("clean")
@shared_options
@click.option("--topic", help="Clean only this topic; separate several by commas.")
@click.option(
    "--partition", "partitions", help="Clean only this partition; separate several by commas."
)
@session_options
def clean_command(
    *,
    shared: dict[str, str],
    topic: str | None,
    partitions: str | None,
    session: SessionOptions,
) -> None:
    """Clean shared topics on the bucket, beside their brokers."""
    given = {"topic": topic, "partition": partitions}
    selected = {name: text for name, text in given.items() if text}
    with errors_in_one_line(debug=session.debug):
        options = parse_options((shared or catalog_of_environment()) | selected)
        place, _ = place_of(options)
        names = find_partitions(place, options.selection.includes_partition)
        with open_session(replace(session, packages=())) as spark:
            outcomes = clean_topics(spark, place, names, click.echo)
    click.echo(
        f"cleaned {len(outcomes.cleaned)} partitions, left {len(outcomes.unchanged)} as they are, "
        f"failed {len(outcomes.failed)}"
    )
    for name, reason in sorted(outcomes.failed.items()):
        click.echo(f"{name}: {reason}", err=True)
    if outcomes.failed:
        sys.exit(1)


def main(argv: Sequence[str]) -> int:
    """Run the command on its arguments and return its exit code."""
    return run_command(clean_command, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
