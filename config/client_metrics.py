"""A client metrics subscription: which clients push which metrics, and how often (KIP-714).

    metrics       prefixes of metric names, "*" for all
    interval.ms   how often matching clients push
    match         attribute=pattern, ...: all must match; an empty list matches every client

Patterns are Java's as far as RE2 supports them. RE2 matches in time linear in the attribute's
length. With Python's `re`, as with Java's, a pattern of ten bytes takes years for a client id of
fifty.

Names, bounds and error texts are those of Kafka's ClientMetricsConfigs.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from odradek.config.errors import ConfigError
from odradek.config.option import Option
from odradek.config.resolution import Entry, Source, Synonym
from odradek.config.values import Kind, render, words
from odradek.dataclass import dataclass

METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"
ALL_METRICS = "*"
INTERVAL_MS_DEFAULT = 5 * 60 * 1000
_INTERVAL_MS_MIN, _INTERVAL_MS_MAX = 100, 60 * 60 * 1000

ATTRIBUTES = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)

CLIENT_METRICS_OPTIONS = (
    Option(METRICS, Kind.LIST, (), "Prefixes of the names of the metrics; * means all.",
           valid=words(empty=True)),
    Option(INTERVAL_MS, Kind.INT, INTERVAL_MS_DEFAULT, "How often clients push their metrics."),
    Option(MATCH, Kind.LIST, (), "The clients that push: attribute=pattern, which must all match.",
           valid=words(empty=True)),
)  # fmt: skip
CLIENT_METRICS_OPTION: Mapping[str, Option] = {one.name: one for one in CLIENT_METRICS_OPTIONS}

# Java's syntax that RE2 and Python write in another way.
_NAMED_GROUP = re.compile(r"\(\?<([A-Za-z]\w*)>")
_POSIX_CLASS = re.compile(r"\\p\{(\w+)\}")
_POSIX = {
    "Lower": "[a-z]", "Upper": "[A-Z]", "Alpha": "[a-zA-Z]", "Digit": "[0-9]",
    "Alnum": "[a-zA-Z0-9]", "XDigit": "[0-9a-fA-F]", "Space": r"[ \t\n\x0b\f\r]",
    "Blank": r"[ \t]", "ASCII": r"[\x00-\x7f]",
}  # fmt: skip


# Memory of a compiled pattern: some 3,000 steps, each up to 13 ns per byte of an attribute.
_MEMORY_MAX = 2**16
# A longer attribute matches no pattern. Client ids may have 32,767 bytes.
_ATTRIBUTE_MAX = 1_000


class InvalidSubscription(Exception):
    """A subscription that Kafka refuses as an invalid request rather than an invalid setting."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription, ready to be matched with clients; `match` maps attributes to patterns."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, Any]  # compiled by RE2

    def matches(self, attributes: Mapping[str, str]) -> bool:
        """Return whether the subscription is for a client with these attributes."""
        return all(
            len(attributes[name]) <= _ATTRIBUTE_MAX
            and pattern.fullmatch(attributes[name]) is not None
            for name, pattern in self.match.items()
        )


def read_subscription(values: Mapping[str, str]) -> Subscription:
    """Read a subscription's settings; raise ConfigError or InvalidSubscription."""
    for name in values:
        if name not in CLIENT_METRICS_OPTION:
            raise InvalidSubscription(f"Unknown client metrics configuration: {name}")
    metrics = _list(METRICS, values)
    interval_ms = CLIENT_METRICS_OPTION[INTERVAL_MS].read(
        values.get(INTERVAL_MS, str(INTERVAL_MS_DEFAULT))
    )
    patterns = _list(MATCH, values)
    assert isinstance(interval_ms, int)
    if not _INTERVAL_MS_MIN <= interval_ms <= _INTERVAL_MS_MAX:
        raise InvalidSubscription(
            f"Invalid value {interval_ms} for {INTERVAL_MS}, interval must be between "
            f"{_INTERVAL_MS_MIN} and {_INTERVAL_MS_MAX} (1 hour)"
        )
    return Subscription(metrics, interval_ms, _read_match(patterns))


def client_metrics_entries(values: Mapping[str, str]) -> Mapping[str, Entry]:
    """Return DescribeConfigs' answer for each option of a subscription."""
    return {one.name: _entry(one, values.get(one.name)) for one in CLIENT_METRICS_OPTIONS}


def _list(name: str, values: Mapping[str, str]) -> tuple[str, ...]:
    value = CLIENT_METRICS_OPTION[name].read(values.get(name, ""))
    assert isinstance(value, tuple)
    return value


def _read_match(texts: Iterable[str]) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        parts = text.split("=")
        while parts and not parts[-1]:  # Java's split() drops empty parts at the end
            parts.pop()
        name = parts[0].strip() if parts else ""
        if len(parts) != 2 or name not in ATTRIBUTES:
            raise ConfigError(f"Illegal client matching pattern: {text}")
        found[name] = _compile(parts[1].strip(), text)
    return found


def _compile(pattern: str, text: str) -> Any:
    """Compile one of Java's patterns; refuse one that Python or RE2 would read differently."""
    import re2  # only where there are subscriptions

    ours = _NAMED_GROUP.sub(r"(?P<\1>", pattern)
    ours = _POSIX_CLASS.sub(lambda found: _POSIX.get(found[1], found[0]), ours)
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_MAX
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(ours)  # warns of nested sets, whose brackets RE2 takes for letters
        return re2.compile(ours, options)
    except (re.error, FutureWarning, OverflowError, RecursionError) as error:
        raise ConfigError(f"Illegal client matching pattern: {text}") from error
    except re2.error as error:
        (message,) = error.args
        reason = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
        raise ConfigError(
            f"Illegal client matching pattern: {text}. RE2 cannot match it: {reason}. Write it "
            "without references and assertions, or shorter"
        ) from error
    finally:
        re2.purge()


def _entry(option: Option, text: str | None) -> Entry:
    value = option.default_text if text is None else render(option.read(text))
    is_set = text is not None
    return Entry(
        name=option.name,
        value=value,
        source=Source.CLIENT_METRICS if is_set else Source.DEFAULT,
        synonyms=(Synonym(option.name, value, Source.CLIENT_METRICS),) if is_set else (),
        read_only=False,
        sensitive=False,
        kind=option.kind,
        doc=option.doc,
    )
