"""What a topic's settings are, and what stands in for those that it does not make."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.effective import BROKER_OPTION, BROKER_OPTIONS, TOPIC_OPTION, resolve_topic
from odradek.config.errors import ConfigError
from odradek.config.option import DAY_MS, HOUR_MS, MINUTE_MS, options_of
from odradek.config.resolution import Layer, Source, Synonym
from odradek.config.topic import TopicConfig

STATIC = Source.STATIC_BROKER
RETENTION = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
UNITS_MS = dict(zip(RETENTION, (1, MINUTE_MS, HOUR_MS), strict=True))


def static(values: dict[str, str]) -> Layer:
    return Layer(STATIC, values, {name: f"line of {name}" for name in values})


def test_a_topic_without_settings_has_the_declared_defaults() -> None:
    assert resolve_topic({}).config == TopicConfig()


def test_a_topics_own_setting_wins_over_the_brokers() -> None:
    layers = [static({"log.segment.bytes": "2000000"})]
    assert resolve_topic({}, layers).config.segment_bytes == 2_000_000
    resolved = resolve_topic({"segment.bytes": "3000000"}, layers)
    assert resolved.config.segment_bytes == 3_000_000
    assert resolved.entries["segment.bytes"].synonyms == (
        Synonym("segment.bytes", "3000000", Source.TOPIC),
        Synonym("log.segment.bytes", "2000000", STATIC),
        Synonym("log.segment.bytes", "1073741824", Source.DEFAULT),
    )


@given(st.dictionaries(st.sampled_from(RETENTION), st.integers(-3, 10_000)))
def test_of_several_synonyms_the_finest_unit_wins(values: dict[str, int]) -> None:
    layers = [static({name: str(value) for name, value in values.items()})]
    resolved = resolve_topic({}, layers)
    winner = next((name for name in RETENTION if name in values), None)
    if winner is None:
        expected = 7 * DAY_MS
    else:
        expected = values[winner] * UNITS_MS[winner] if values[winner] >= 0 else -1
        assert resolved.entries["retention.ms"].synonyms[0].name == winner
        assert resolved.entries["retention.ms"].source is STATIC
    assert resolved.config.retention_ms == expected


def test_a_dynamic_setting_wins_over_a_static_one_of_a_finer_unit() -> None:
    layers = [
        static({"log.roll.ms": "5000"}),
        Layer(Source.DYNAMIC_DEFAULT_BROKER, {"log.roll.hours": "1"}),
    ]
    assert resolve_topic({}, layers).config.segment_ms == HOUR_MS


def test_a_topics_name_in_the_brokers_settings_means_nothing() -> None:
    layers = [static({"retention.ms": "5", "remote.storage.enable": "true"})]
    assert resolve_topic({}, layers).config == TopicConfig()


def test_a_bad_fallback_is_reported_under_the_name_it_was_written_with() -> None:
    with pytest.raises(ConfigError) as refused:
        resolve_topic({}, [static({"log.roll.ms": "0"})])
    assert str(refused.value) == (
        "Invalid value 0 for configuration segment.ms: Value must be at least 1 "
        "(from log.roll.ms, line of log.roll.ms)"
    )


def test_names_that_no_topic_has_are_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        resolve_topic({"retention": "5", "log.retention.ms": "5", "retention.ms": "x"})
    assert refused.value.problems == (
        "Unknown topic config name: retention",
        "Unknown topic config name: log.retention.ms",
    )


@given(st.integers(0, 2**63 - 1), st.integers(1, 2**63 - 1))
def test_the_least_lag_must_not_exceed_the_greatest(least: int, greatest: int) -> None:
    overrides = {"min.compaction.lag.ms": str(least), "max.compaction.lag.ms": str(greatest)}
    if least <= greatest:
        assert resolve_topic(overrides).config.max_compaction_lag_ms == greatest
    else:
        with pytest.raises(ConfigError, match="conflict topic config setting"):
            resolve_topic(overrides)


def test_a_topic_cannot_be_tiered() -> None:
    with pytest.raises(ConfigError, match="Tiered Storage functionality is disabled"):
        resolve_topic({"remote.storage.enable": "true"})


@pytest.mark.parametrize(
    ("policy", "compact", "delete"),
    [
        ("delete", False, True),
        ("compact", True, False),
        ("compact, delete", True, True),
        ("compact,compact", True, False),
        ("", False, False),
    ],
)
def test_the_cleanup_policy_says_who_cleans(policy: str, compact: bool, delete: bool) -> None:
    config = resolve_topic({"cleanup.policy": policy}).config
    assert (config.compact, config.delete) == (compact, delete)


def test_the_cleanup_policy_is_described_in_the_order_it_was_given() -> None:
    entries = resolve_topic({"cleanup.policy": "delete , compact,delete"}).entries
    assert entries["cleanup.policy"].value == "delete,compact"


def test_a_compacted_log_rolls_before_its_greatest_lag() -> None:
    config = TopicConfig(segment_ms=100, max_compaction_lag_ms=50)
    assert config.max_segment_ms == 100
    compacted = TopicConfig(
        segment_ms=100, max_compaction_lag_ms=50, cleanup_policy=frozenset({"compact"})
    )
    assert compacted.max_segment_ms == 50


def test_tests_may_have_tiny_segments() -> None:
    with pytest.raises(ConfigError, match="Value must be at least 1048576"):
        resolve_topic({"segment.bytes": "100"})
    resolved = resolve_topic({"internal.segment.bytes": "100"})
    assert resolved.config.segment_bytes == 100
    assert resolved.entries["segment.bytes"].value == "1073741824"
    assert resolved.entries["internal.segment.bytes"].value == "100"
    assert resolve_topic({}, [static({"internal.segment.bytes": "7"})]).config.segment_bytes == 7


def test_an_internal_option_is_described_only_where_it_is_set() -> None:
    assert "internal.segment.bytes" in TOPIC_OPTION
    assert "internal.segment.bytes" not in resolve_topic({}).entries


def test_no_topic_option_is_read_only() -> None:
    assert not [name for name, entry in resolve_topic({}).entries.items() if entry.read_only]


def test_every_fallback_is_an_option_of_the_broker_with_the_same_default() -> None:
    for option in options_of(TopicConfig):
        line = option.broker or ()
        assert all(fallback.name in BROKER_OPTION for fallback in line)
        texts = [(one, BROKER_OPTION[one.name].default_text) for one in line]
        converted = [one.convert(text) for one, text in texts if text is not None]
        if line and option.default_text is not None:
            assert option.read(converted[0]) == option.read(option.default_text)


def test_no_name_of_a_broker_option_is_declared_twice() -> None:
    assert len(BROKER_OPTION) == len(BROKER_OPTIONS)
