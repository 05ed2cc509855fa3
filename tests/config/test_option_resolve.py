"""How layers of settings become one config, and what the trace of it says."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.errors import ConfigError
from odradek.config.option import option, options, options_of, section, values_of
from odradek.config.resolution import Entry, Layer, Source, Synonym, resolve
from odradek.config.values import Kind, at_least, class_name, int16, int32, int64, password


@options
class Sample:
    """One option of each type."""

    a_short: int16 = option("a.short", default=1, doc="A short.")
    an_int: int32 = option("an.int", default=2, valid=at_least(0), doc="An int.")
    a_long: int64 | None = option("a.long", default=None, dynamic="per-broker", doc="A long.")
    a_double: float = option("a.double", default=0.5, doc="A double.")
    a_boolean: bool = option("a.boolean", default=True, doc="A boolean.")
    a_string: str = option("a.string", default="x", doc="A string.")
    a_list: tuple[str, ...] = option("a.list", default=("b", "a"), doc="A list.")
    a_set: frozenset[str] = option("a.set", default=frozenset({"s"}), doc="A list, unordered.")
    a_class: class_name | None = option("a.class", default=None, doc="A class.")
    a_secret: password | None = option("a.secret", default=None, doc="A password.")


STATIC = Source.STATIC_BROKER


def test_the_annotation_names_kafkas_type() -> None:
    kinds = {spec.name: spec.kind for spec in options_of(Sample)}
    assert kinds == {
        "a.short": Kind.SHORT,
        "an.int": Kind.INT,
        "a.long": Kind.LONG,
        "a.double": Kind.DOUBLE,
        "a.boolean": Kind.BOOLEAN,
        "a.string": Kind.STRING,
        "a.list": Kind.LIST,
        "a.set": Kind.LIST,
        "a.class": Kind.CLASS,
        "a.secret": Kind.PASSWORD,
    }


def test_text_becomes_typed_values() -> None:
    values = {"a.short": "7", "a.boolean": "FALSE", "a.list": "q, p", "a.set": "q, p"}
    config = resolve(Sample, [Layer(STATIC, values)]).config
    assert config == Sample(
        a_short=7, a_boolean=False, a_list=("q", "p"), a_set=frozenset({"p", "q"})
    )


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Sample().an_int = 3  # type: ignore[misc]


@section
class Left:
    """A section."""

    on_the_left: int32 = option("on.the.left", default=1, doc="An int.")


@section
class Right:
    """Another section."""

    on_the_right: password | None = option("on.the.right", default=None, doc="A password.")


@options
class Whole(Left, Right):
    """A config of two sections and an option of its own."""

    its_own: str = option("its.own", default="x", doc="A string.")


def test_a_config_has_its_own_options_and_those_of_its_sections() -> None:
    names = ["its.own", "on.the.left", "on.the.right"]
    assert [spec.name for spec in options_of(Whole)] == names
    config = resolve(Whole, [Layer(STATIC, dict.fromkeys(names, "7"))]).config
    assert config == Whole(on_the_left=7, on_the_right="7", its_own="7")
    assert "on_the_right" not in repr(config)
    assert not vars(config), "all values are in slots"
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.on_the_left = 3  # type: ignore[misc]


def test_an_attribute_must_be_the_options_name() -> None:
    def declare() -> None:
        @options
        class Wrong:
            an_integer: int32 = option("an.int", default=1, doc="Not its name.")

    with pytest.raises(TypeError, match="an_int"):
        declare()


def test_an_integer_must_say_its_size() -> None:
    def declare() -> None:
        @options
        class Wrong:
            an_int: int = option("an.int", default=1, doc="Of no type of Kafka's.")

    with pytest.raises(TypeError, match="int32"):
        declare()


@given(st.dictionaries(st.sampled_from(list(Source)[1:]), st.integers(0, 99), max_size=4))
def test_the_source_of_the_lowest_number_wins(values: dict[Source, int]) -> None:
    layers = [Layer(source, {"an.int": str(value)}) for source, value in values.items()]
    resolved = resolve(Sample, layers)
    entry = resolved.entries["an.int"]
    if values:
        winner = min(values)
        assert (resolved.config.an_int, entry.source) == (values[winner], winner)
    else:
        assert (resolved.config.an_int, entry.source) == (2, Source.DEFAULT)
    assert [one.source for one in entry.synonyms] == sorted(values)


def test_an_entry_holds_all_that_describe_configs_asks_for() -> None:
    layers = [Layer(STATIC, {"a.list": "q , p"}), Layer(Source.DEFAULT, {"a.list": "b,a"})]
    assert resolve(Sample, layers).entries["a.list"] == Entry(
        name="a.list",
        value="q,p",
        source=STATIC,
        synonyms=(
            Synonym("a.list", "q , p", STATIC),
            Synonym("a.list", "b,a", Source.DEFAULT),
        ),
        read_only=True,
        sensitive=False,
        kind=Kind.LIST,
        doc="A list.",
    )


def test_a_dynamic_option_is_not_read_only() -> None:
    entries = resolve(Sample, []).entries
    assert [name for name, entry in entries.items() if not entry.read_only] == ["a.long"]


def test_a_secret_is_in_the_config_and_nowhere_in_the_trace() -> None:
    resolved = resolve(Sample, [Layer(STATIC, {"a.secret": "hunter2"})])
    assert resolved.config.a_secret == "hunter2"
    assert "hunter2" not in repr(resolved.entries)
    assert "hunter2" not in repr(resolved.config)
    assert resolved.entries["a.secret"].sensitive


def test_all_bad_values_are_reported_at_once_with_their_places() -> None:
    values = {"an.int": "-2", "a.boolean": "yes", "a.double": "1"}
    origins = {"an.int": "server.properties line 12"}
    with pytest.raises(ConfigError) as refused:
        resolve(Sample, [Layer(STATIC, values, origins)])
    assert set(refused.value.problems) == {
        "Invalid value -2 for configuration an.int: Value must be at least 0 "
        "(server.properties line 12)",
        "Invalid value yes for configuration a.boolean: Expected value to be either true or false",
    }


def test_the_values_that_differ_from_the_defaults_make_the_same_config() -> None:
    config = Sample(an_int=9, a_boolean=False, a_set=frozenset({"p", "q"}), a_long=4)
    assert values_of(config) == {
        "an.int": "9",
        "a.boolean": "false",
        "a.set": "p,q",
        "a.long": "4",
    }
    assert resolve(Sample, [Layer(STATIC, values_of(config))]).config == config
