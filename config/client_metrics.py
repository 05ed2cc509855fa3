"""What a client metrics subscription says: which metrics are pushed, how often, by whom (KIP-714).

    metrics       prefixes of metric names, "*" for all
    interval.ms   how often matching clients push
    match         attribute=pattern, ...: all have to match; none matches every client

Names, bounds and sentences are those of Kafka's ClientMetricsConfigs.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from config.errors import ConfigError
from config.option import Option
from config.resolution import Entry, Source, Synonym
from config.values import Kind, render, words

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
    Option(METRICS, Kind.LIST, (), "Prefixes of the names of wanted metrics; * is for all.",
           valid=words(empty=True)),
    Option(INTERVAL_MS, Kind.INT, INTERVAL_MS_DEFAULT, "How often clients push their metrics."),
    Option(MATCH, Kind.LIST, (), "Which clients push: attribute=pattern, of which all must match.",
           valid=words(empty=True)),
)  # fmt: skip
CLIENT_METRICS_OPTION: Mapping[str, Option] = {one.name: one for one in CLIENT_METRICS_OPTIONS}

# How Python writes what Java's patterns have and its own have not.
_NAMED_GROUP = re.compile(r"\(\?<([A-Za-z]\w*)>")
_NAMED_REFERENCE = re.compile(r"\\k<([A-Za-z]\w*)>")
_POSIX_CLASS = re.compile(r"\\p\{(\w+)\}")
_POSIX = {
    "Lower": "[a-z]", "Upper": "[A-Z]", "Alpha": "[a-zA-Z]", "Digit": "[0-9]",
    "Alnum": "[a-zA-Z0-9]", "XDigit": "[0-9a-fA-F]", "Space": r"[ \t\n\x0b\f\r]",
    "Blank": r"[ \t]", "ASCII": r"[\x00-\x7f]",
}  # fmt: skip


class InvalidSubscription(Exception):
    """A subscription that Kafka refuses as an invalid request rather than an invalid setting."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription as it is matched with clients; `match` maps attributes to patterns."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, re.Pattern[str]]

    def matches(self, attributes: Mapping[str, str]) -> bool:
        """Tell whether a client is meant, by its attributes."""
        return all(
            pattern.fullmatch(attributes[name]) is not None
            for name, pattern in self.match.items()
        )


def read_subscription(values: Mapping[str, str]) -> Subscription:
    """Make a subscription of its settings; raise ConfigError or InvalidSubscription."""
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
    """Return what DescribeConfigs says of each option of a subscription."""
    return {one.name: _entry(one, values.get(one.name)) for one in CLIENT_METRICS_OPTIONS}


def _list(name: str, values: Mapping[str, str]) -> tuple[str, ...]:
    value = CLIENT_METRICS_OPTION[name].read(values.get(name, ""))
    assert isinstance(value, tuple)
    return value


def _read_match(texts: Iterable[str]) -> Mapping[str, re.Pattern[str]]:
    found: dict[str, re.Pattern[str]] = {}
    for text in texts:
        parts = text.split("=")
        while parts and not parts[-1]:  # Java's split() drops what is empty at the end
            parts.pop()
        name = parts[0].strip() if parts else ""
        if len(parts) != 2 or name not in ATTRIBUTES:
            raise ConfigError(f"Illegal client matching pattern: {text}")
        found[name] = _compile(parts[1].strip(), text)
    return found


def _compile(pattern: str, text: str) -> re.Pattern[str]:
    """Compile a pattern of Java's; what Python would read in another way is refused."""
    ours = _NAMED_GROUP.sub(r"(?P<\1>", pattern)
    ours = _NAMED_REFERENCE.sub(r"(?P=\1)", ours)
    ours = _POSIX_CLASS.sub(lambda found: _POSIX.get(found[1], found[0]), ours)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile(ours)
    except (re.error, FutureWarning, OverflowError, RecursionError) as error:
        raise ConfigError(f"Illegal client matching pattern: {text}") from error


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
