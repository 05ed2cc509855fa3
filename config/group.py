"""The settings of a group: the options of consumer, share and streams groups.

The broker's options `group.<kind>.min...` and `max...` bound a group's own settings. An option
that the group does not set has the value of the broker's option `group.<option>`. Names, bounds,
error texts and the order of checks are those of Kafka's GroupConfig.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from odradek.config.errors import ConfigError, raise_any
from odradek.config.option import Option
from odradek.config.resolution import Entry, Source, Synonym
from odradek.config.values import (
    INT64_MAX,
    Kind,
    Validator,
    Value,
    at_least,
    invalid,
    one_of,
    render,
)

# The texts that Java's Duration.parse() reads: days, hours, minutes and seconds, each with an
# optional sign.
_DURATION = re.compile(
    r"([-+]?)P(?=.)(?:([-+]?\d{1,19})D)?(?:T(?=.)(?:([-+]?\d{1,19})H)?(?:([-+]?\d{1,19})M)?"
    r"(?:([-+]?\d{1,19})(?:[.,](\d{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
_UNITS_S = (24 * 60 * 60, 60 * 60, 60, 1)
_BY_DURATION = "by_duration:"


def _check_offset_reset(name: str, value: Value) -> None:
    text = str(value)
    if text in ("earliest", "latest"):
        return
    if text.startswith(_BY_DURATION) and _duration_ns(text.removeprefix(_BY_DURATION)) is not None:
        return
    raise invalid(
        name,
        value,
        f"Invalid value `{text}` for configuration {name}. The value must be either "
        "'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
    )


def reset_duration_ms(reset: str) -> int:
    """Return how long before now a group with the offset reset `by_duration:` begins to read."""
    duration_ns = _duration_ns(reset.removeprefix(_BY_DURATION))
    assert duration_ns is not None, "the setting was checked"
    return duration_ns // 10**6


def _duration_ns(text: str) -> int | None:
    """Parse a duration in Java's form; return None for other texts and negative durations."""
    found = _DURATION.fullmatch(text)
    if not found:
        return None
    sign, *numbers, fraction = found.groups()
    parts = [int(one or 0) * unit for one, unit in zip(numbers, _UNITS_S, strict=True)]
    nanoseconds = int((fraction or "").ljust(9, "0"))
    if (numbers[-1] or "").startswith("-"):
        nanoseconds = -nanoseconds
    total = sum(parts) * 10**9 + nanoseconds
    fits = all(abs(one) <= INT64_MAX for one in (*parts, sum(parts)))
    total = -total if sign == "-" else total
    return total if fits and total >= 0 else None


def _number(name: str, default: int, low: int, doc: str) -> Option:
    return Option(name, Kind.INT, default, doc, valid=at_least(low), dynamic="cluster-wide")


def _timings(kind: str) -> tuple[Option, ...]:
    return (
        _number(
            f"{kind}.session.timeout.ms", 45_000, 1,
            f"How long a member of a {kind} group may be silent before it is considered dead.",
        ),
        _number(
            f"{kind}.heartbeat.interval.ms", 5_000, 1,
            f"How often the members of a {kind} group send heartbeats.",
        ),
        _number(
            f"{kind}.assignment.interval.ms", 1_000, 0,
            f"The shortest time between two assignments of a {kind} group.",
        ),
    )  # fmt: skip


GROUP_OPTIONS = (
    *_timings("consumer"),
    *_timings("share"),
    _number(
        "share.record.lock.duration.ms", 30_000, 1_000,
        "How long a record stays locked for the member that acquired it.",
    ),
    _number("share.delivery.count.limit", 5, 2, "How many times a record may be delivered."),
    _number(
        "share.partition.max.record.locks", 2_000, 100,
        "How many records of a partition may be acquired at once.",
    ),
    Option(
        "share.auto.offset.reset", Kind.STRING, "latest",
        "Where a share group begins to read a partition: earliest, latest, or "
        "by_duration:<ISO 8601>, which is that long before now.",
        valid=Validator("", _check_offset_reset), dynamic="cluster-wide",
    ),
    Option(
        "share.isolation.level", Kind.STRING, "read_uncommitted",
        "Whether records of transactions are delivered before they are committed.",
        valid=one_of("read_committed", "read_uncommitted"), dynamic="cluster-wide",
    ),
    Option(
        "share.renew.acknowledge.enable", Kind.BOOLEAN, True,
        "Whether members may renew the lock of a record.", dynamic="cluster-wide",
    ),
    *_timings("streams"),
    _number("streams.num.standby.replicas", 0, 0, "How many standby replicas each task has."),
    _number(
        "streams.initial.rebalance.delay.ms", 3_000, 0,
        "How long a new streams group waits for more members before its first rebalance.",
    ),
)  # fmt: skip
GROUP_OPTION: Mapping[str, Option] = {option.name: option for option in GROUP_OPTIONS}

# The options that the broker bounds, in the order of Kafka's checks.
_BOUNDED = (
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "consumer.assignment.interval.ms",
    "share.heartbeat.interval.ms",
    "share.session.timeout.ms",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "share.assignment.interval.ms",
    "streams.heartbeat.interval.ms",
    "streams.session.timeout.ms",
    "streams.num.standby.replicas",
    "streams.assignment.interval.ms",
)


def check_group(values: Mapping[str, str], broker: Mapping[str, Entry]) -> None:
    """Check a group's own settings; raise ConfigError for those that Kafka would refuse.

    `broker` has the entries of the broker's options, which set the bounds.
    """
    unknown = next((name for name in values if name not in GROUP_OPTION), None)
    if unknown is not None:
        raise ConfigError(f"Unknown group config name: {unknown}")
    read = {
        option.name: option.read(values[option.name]) if option.name in values else option.default
        for option in GROUP_OPTIONS
    }
    raise_any(list(_problems(read, values, broker))[:1])


def group_entries(
    values: Mapping[str, str], broker: Mapping[str, Entry]
) -> Mapping[str, Entry]:
    """Return DescribeConfigs' answer for each option of a group."""
    return {
        option.name: _entry(option, values.get(option.name), broker) for option in GROUP_OPTIONS
    }


def _problems(
    read: Mapping[str, object], values: Mapping[str, str], broker: Mapping[str, Entry]
) -> Iterator[str]:
    for name in _BOUNDED:
        # A value that comes from the broker is not checked against the broker's bounds.
        if name not in values:
            continue
        value, lowest, highest = _integer(read[name]), _bound(name, "min"), _bound(name, "max")
        if lowest in broker and value < _integer(broker[lowest].value):
            yield f"{name} must be greater than or equal to {lowest}"
        if value > _integer(broker[highest].value):
            yield f"{name} must be less than or equal to {highest}"
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if _integer(read[session]) <= _integer(read[heartbeat]):
            yield f"{session} must be greater than {heartbeat}"


def _bound(name: str, end: str) -> str:
    kind, _, rest = name.partition(".")
    return f"group.{kind}.{end}.{rest.removeprefix('num.')}"


def _integer(value: object) -> int:
    return int(str(value))


def _entry(option: Option, text: str | None, broker: Mapping[str, Entry]) -> Entry:
    inherited = broker.get(f"group.{option.name}")
    synonyms = (
        inherited.synonyms
        if inherited
        else (Synonym(option.name, option.default_text, Source.DEFAULT),)
    )
    value = inherited.value if inherited else option.default_text
    if text is not None:
        value = render(option.read(text))
        synonyms = (Synonym(option.name, value, Source.GROUP), *synonyms)
    return Entry(
        name=option.name,
        value=value,
        source=synonyms[0].source,
        synonyms=synonyms,
        read_only=False,
        sensitive=False,
        kind=option.kind,
        doc=option.doc,
    )
