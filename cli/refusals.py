"""Explains in one line why a command failed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable
from typing import IO, Any

import click

from odradek.config.printable import printable
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode

_LACKS_RIGHT = "AUTHORIZATION_FAILED"
# Explanations where neither the broker's message nor the client's names the remedy.
MEANINGS = {
    "SECURITY_DISABLED": "this broker has no authorizer, so it keeps no ACLs: set "
    "authorizer.class.name",
    "_UNSUPPORTED_FEATURE": "this broker does not support it",
    "UNSUPPORTED_VERSION": "this broker does not support it",
    "_TIMED_OUT": "there was no answer in time",
    "_TRANSPORT": "the connection was lost",
    "INVALID_RECORD": "the broker rejects it; in a compacted topic every record needs a key",
    "NON_EMPTY_GROUP": "it has members: stop them first",
    "UNKNOWN_MEMBER_ID": "it has members: stop them first",
    "_AUTHENTICATION": "the broker does not accept these credentials",
}
_WHERE_AND_WHEN = re.compile(r"^\S+/(?:bootstrap|\d+): | \((?:after|connect failed).*$")
_ATTEMPT = re.compile(r"^(?:Connect to \S+ failed|Failed to resolve '[^']*'): ")


class CommandError(click.ClickException):
    """A command failed: exit status 1, with a message of one line."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the line to standard error."""
        click.echo(f"odradek: {printable(self.message)}", file=file, err=file is None)


class Denied(CommandError):
    """The client lacks a right."""


class Unavailable(CommandError):
    """A broker does not serve a request, or the client that sends it cannot log in."""


@dataclass(frozen=True, slots=True)
class Act:
    """A request to a broker ("delete topic prices"), and the right that it needs."""

    what: str
    right: str = ""


def refused(error: Any, act: Act, reason: str | None = None) -> CommandError:
    """Return the exception for a KafkaError; `reason` is the client's last connection error."""
    return _kind(error.name())(f"could not {act.what}: {explain(error, act.right, reason)}")


@dataclass(frozen=True, slots=True)
class AnswerError:
    """An error code in an answer, and the broker's message, with the methods of a KafkaError."""

    code: int
    message: str | None = None

    def name(self) -> str:
        """Return Kafka's name of the code."""
        return ErrorCode.of(self.code).name

    def str(self) -> str:
        """Return the broker's message, or the meaning of the code."""
        return (self.message or ErrorCode.of(self.code).sentence).rstrip(".")


def check(code: int, act: Act, message: str | None = None) -> None:
    """Raise CommandError when an answer has an error code."""
    if code:
        raise refused(AnswerError(code, message), act)


def no_topic(name: str, known: Collection[str], hint: str | None = None) -> str:
    """Return the message for a topic that does not exist."""
    if not known:
        hint = hint or ": there are none that you may see"
    similar = did_you_mean(name, known)
    return f"there is no topic {name}{similar or hint or ': odradek topics list shows all topics'}"


def no_partition(topic: str, number: int, count: int) -> str:
    """Return the message for a partition that a topic does not have."""
    return f"{topic} has no partition {number}: it has {count}, from 0"


def no_broker(number: int, known: Iterable[int]) -> str:
    """Return the message for a broker that a cluster does not have."""
    numbers = ", ".join(map(str, sorted(known)))
    return f"there is no broker {number}: the brokers are {numbers}"


def explain(error: Any, right: str = "", reason: str | None = None) -> str:
    """Return the meaning of a KafkaError, and its name."""
    name: str = error.name()
    if name.endswith(_LACKS_RIGHT) and right:
        return f"this needs the right {right} ({name})"
    text = _one_line(error.str()).removeprefix("Broker: ").removeprefix("Local: ")
    text = MEANINGS.get(name, text)
    if reason and name in ("_TIMED_OUT", "_TRANSPORT"):
        text = f"{text}: {reason}"
    return f"{text} ({name})" if not name.startswith("_") else text


def connection_reason(text: str) -> str:
    """Return the reason why a connection fails, without librdkafka's addresses and times."""
    text = _ATTEMPT.sub("", _WHERE_AND_WHEN.sub("", _WHERE_AND_WHEN.sub("", _one_line(text))))
    return text.split(": possibly", 1)[0]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question with the most similar names, or ""."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f": did you mean {' or '.join(near)}?" if near else ""


def _kind(name: str) -> type[CommandError]:
    if name.endswith(_LACKS_RIGHT):
        return Denied
    return Unavailable if name == "UNSUPPORTED_VERSION" else CommandError


def _one_line(text: str) -> str:
    return " ".join(text.split())
