"""Plan the cleaning of topics from their segment files: for capacity, without a broker.

A plan has for each topic: the number of its keys and the share of garbage; the runs that Kafka's
cleaner would need with a given log.cleaner.dedupe.buffer.size, and Odradek's; the bytes that both
would read and write, and their memory; and the effect of each min.cleanable.dirty.ratio.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from odradek.pipeline.cleaner_model import KafkaCleaner
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.options import (
    errors_in_one_line,
    file_options,
    run_command,
    session_options,
)
from odradek.pipeline.plan_text import as_json, by_topic, lines_of
from odradek.pipeline.planning import PlanOptions, find_partitions, plan_topics
from odradek.pipeline.session import SessionOptions, open_session

_DEFAULTS = KafkaCleaner()


@click.command("plan")
@file_options
@click.option(
    "--dedupe-buffer-size",
    type=click.IntRange(min=1024),
    default=_DEFAULTS.dedupe_buffer_bytes,
    show_default=True,
    metavar="BYTES",
    help="The value of log.cleaner.dedupe.buffer.size.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=_DEFAULTS.threads,
    show_default=True,
    help="The value of log.cleaner.threads, which share the buffer.",
)
@click.option(
    "--load-factor",
    type=click.FloatRange(min=0, max=1, min_open=True),
    default=_DEFAULTS.load_factor,
    show_default=True,
    help="The value of log.cleaner.io.buffer.load.factor.",
)
@click.option(
    "--dirty-ratio",
    type=click.FloatRange(min=0, max=1),
    default=PlanOptions(_DEFAULTS).min_cleanable_ratio,
    show_default=True,
    help="The value of min.cleanable.dirty.ratio.",
)
@click.option(
    "--with-active", is_flag=True, help="Include the last segments, as if they were rolled now."
)
@click.option(
    "--from-start", is_flag=True, help="Plan as if nothing had been cleaned before."
)
@click.option(
    "--updates-per-second",
    type=click.FloatRange(min=0, min_open=True),
    help="Updates of a topic per second, from which to compute the time between runs.",
)
@click.option("--report", "report_file", metavar="FILE", help="Write the plan as JSON.")
@click.option("--plots", metavar="FOLDER", help="Draw a picture of each topic's plan.")
@session_options
def plan_command(
    *,
    source: dict[str, str],
    dedupe_buffer_size: int,
    threads: int,
    load_factor: float,
    dirty_ratio: float,
    with_active: bool,
    from_start: bool,
    updates_per_second: float | None,
    report_file: str | None,
    plots: str | None,
    session: SessionOptions,
) -> None:
    """Plan the cleaning of topics from segment files: keys, garbage, runs, memory, disk."""
    cleaner = KafkaCleaner(dedupe_buffer_size, threads, load_factor)
    options = PlanOptions(cleaner, dirty_ratio, with_active, from_start)
    with errors_in_one_line(debug=session.debug):
        find_partitions(source, options)  # before Java starts, which takes some seconds
        with open_session(replace(session, packages=())) as spark:
            plans = by_topic(plan_topics(spark, source, options), updates_per_second)
        for number, plan in enumerate(plans):
            for line in ["", *lines_of(plan, options)][number == 0 :]:
                click.echo(line)
        if report_file:
            _write(Path(report_file), as_json(plans, options))
        if plots:
            from odradek.pipeline.plan_plots import draw

            for plan in plans:
                click.echo(f"drew {draw(plan, plots)}")


def main(argv: Sequence[str]) -> int:
    """Run the command on its arguments and return its exit code."""
    return run_command(plan_command, argv)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text + "\n", "utf-8")
    except OSError as error:
        raise PipelineError(f"{path} cannot be written ({error.strerror})") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
