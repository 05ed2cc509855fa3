"""The topic of a measurement: the user's, or one that is created for it and deleted after it."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from odradek.cli.arguments import Name
from odradek.cli.client import REQUEST_TIMEOUT_S, Admin
from odradek.cli.completion import complete_topics
from odradek.cli.interruption import Interruption
from odradek.cli.refusals import Act
from odradek.cli.topics import wait_until_known
from odradek.dataclass import dataclass

F = TypeVar("F", bound=Callable[..., None])
PREFIX = "odradek-perf-"


@dataclass(frozen=True, slots=True)
class Place:
    """Where to measure: a topic by its name, or with None one with a number of partitions."""

    name: str | None
    partitions: int | None

    @contextmanager
    def topic(self, admin: Admin) -> Iterator[str]:
        """Yield the topic's name; a topic that was created for this is deleted at the end.

        Raises CommandError.
        """
        if self.name is not None:
            admin.require_topic(self.name, for_records=True)
            yield self.name
            return
        name = PREFIX + uuid.uuid4().hex[:12]
        try:
            _create(admin, name, self.partitions)
            yield name
        finally:
            with Interruption():  # a second Ctrl-C would leave the topic behind
                _delete(admin, name)


def topic_options(command: F) -> F:
    """Add the options for the topic; the command gets a Place."""

    @click.argument("topic", required=False, type=Name(), shell_complete=complete_topics)
    @click.option("--topic", "named", type=Name(), shell_complete=complete_topics,
                  help="The topic, which is kept. [default: one that is created for the "
                  "measurement, and deleted after it]")  # fmt: skip
    @click.option("--partitions", type=click.IntRange(1), help="The number of partitions of the "
                  "topic that is created. [default: the broker's]")  # fmt: skip
    @functools.wraps(command)
    def run(
        *args: Any, topic: str | None, named: str | None, partitions: int | None, **kwargs: Any
    ) -> None:
        if topic is not None and named is not None:
            raise click.UsageError("give the topic once, as --topic or without it")
        place = Place(named or topic, partitions)
        if place.name is not None and partitions is not None:
            raise click.UsageError("--partitions is for a topic that is created: leave out TOPIC")
        command(*args, place=place, **kwargs)

    return run  # type: ignore[return-value]


def _create(admin: Admin, name: str, partitions: int | None) -> None:
    from confluent_kafka.admin import NewTopic

    made = [NewTopic(name, partitions or -1, -1)]
    futures = admin.client.create_topics(made, request_timeout=REQUEST_TIMEOUT_S)
    what = f"create topic {name} (--topic NAME measures with another one)"
    admin.wait(futures[name], Act(what, f"CREATE on topic {name}"))
    wait_until_known(admin, [name])


def _delete(admin: Admin, name: str) -> None:
    from confluent_kafka import KafkaException

    future = admin.client.delete_topics([name], request_timeout=REQUEST_TIMEOUT_S)[name]
    if isinstance(error := future.exception(REQUEST_TIMEOUT_S + 5), KafkaException):
        if error.args[0].name() == "UNKNOWN_TOPIC_OR_PART":
            return  # it was not created
        admin.wait(future, Act(f"delete topic {name}", f"DELETE on topic {name}"))
    wait_until_known(admin, [], gone=[name])
