"""Which of the settings that were read again take the place of those in force."""

from __future__ import annotations

from odradek.config.effective import resolve_broker
from odradek.config.reloading import Difference, differences, plan_reload
from odradek.config.resolution import Layer, Source

STARTED = Layer(
    Source.STATIC_BROKER,
    {"log.retention.ms": "1000", "num.partitions": "3", "node.id": "1", "log.dirs": "/a"},
    {"log.retention.ms": "file line 1", "num.partitions": "file line 2"},
)


def read(**changes: str | None) -> Layer:
    values = {**STARTED.values, **{k.replace("_", "."): v for k, v in changes.items()}}
    kept = {name: value for name, value in values.items() if value is not None}
    return Layer(Source.STATIC_BROKER, kept, dict.fromkeys(kept, "file line 9"))


def test_options_that_may_change_are_taken_over_with_their_places() -> None:
    plan = plan_reload(STARTED, read(log_retention_ms="2000", message_max_bytes="5000"))
    assert plan.changed == ("log.retention.ms", "message.max.bytes")
    assert plan.awaiting_restart == ()
    assert plan.layer.values == {
        **STARTED.values, "log.retention.ms": "2000", "message.max.bytes": "5000"
    }  # fmt: skip
    assert plan.layer.origins["log.retention.ms"] == "file line 9"
    assert plan.layer.origins["num.partitions"] == "file line 2"


def test_an_option_that_is_gone_falls_back_to_its_default() -> None:
    plan = plan_reload(STARTED, read(log_retention_ms=None))
    assert "log.retention.ms" not in plan.layer.values
    assert "log.retention.ms" not in plan.layer.origins
    before, after = (resolve_broker([one]).entries for one in (STARTED, plan.layer))
    # The default is that of log.retention.hours, and this option has none of its own.
    assert list(differences(before, after)) == [Difference("log.retention.ms", "1000", None)]


def test_options_that_need_a_restart_stay_and_are_reported() -> None:
    plan = plan_reload(STARTED, read(num_partitions="5", log_dirs=None, node_id="1"))
    assert plan.awaiting_restart == ("log.dirs", "num.partitions")
    assert plan.layer.values == STARTED.values
    # It is reported again as long as the file has the new value.
    assert plan_reload(plan.layer, read(num_partitions="5")).awaiting_restart == (
        "num.partitions",
    )


def test_nothing_changes_without_a_change() -> None:
    plan = plan_reload(STARTED, read())
    assert not plan.changed and not plan.awaiting_restart
    assert plan.layer.values == STARTED.values


def test_secrets_are_in_no_difference() -> None:
    old = resolve_broker([Layer(Source.STATIC_BROKER, {"ssl.key.password": "old"})]).entries
    new = resolve_broker([Layer(Source.STATIC_BROKER, {"ssl.key.password": "new"})]).entries
    assert list(differences(old, new)) == []


def test_settings_of_a_listener_wait_for_a_restart_as_the_options_do() -> None:
    prefix = "listener.name.external."
    fixed = (
        f"{prefix}oauthbearer.sasl.oauthbearer.jwks.endpoint.url",
        f"{prefix}ssl.principal.mapping.rules",
    )
    values = {**dict.fromkeys(fixed, "x"), f"{prefix}ssl.keystore.location": "/b.pem"}
    plan = plan_reload(STARTED, read(**values))
    assert plan.awaiting_restart == fixed
    assert plan.changed == (f"{prefix}ssl.keystore.location",)


def test_providers_have_given_their_values_when_the_settings_are_read() -> None:
    plan = plan_reload(STARTED, read(config_providers="file", config_providers_file_class="X"))
    assert plan.awaiting_restart == ()
