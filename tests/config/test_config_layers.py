"""Settings as they are written: in a properties file, the environment, the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.errors import ConfigError
from odradek.config.layers import (
    EXCLUDED_VARIABLES,
    from_environment,
    from_pairs,
    static_layer,
)
from odradek.config.properties import from_properties
from odradek.config.resolution import Source

# Surrogates are no characters, and Java's properties cannot hold one by itself either.
texts = st.text(st.characters(exclude_categories=["Cs"]))


def escape(text: str, *, also: str) -> str:
    """Write a text so that a properties file holds it, everything special escaped."""
    named = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}
    written = [named.get(c, f"\\{c}" if c in also else c) for c in text]
    # A blank at the very beginning would be skipped.
    return "".join(f"\\{c}" if c == " " and not number else c for number, c in enumerate(written))


def plain(settings: dict[str, tuple[str, str]]) -> dict[str, str]:
    return {name: value for name, (value, _) in settings.items()}


@given(
    st.dictionaries(texts, texts),
    st.sampled_from(["=", ":", " = ", "\t:\f", " : "]),
    st.sampled_from(["\n", "\r", "\r\n", "\n\n# a comment = none\n", "\n \t! another\r"]),
)
def test_a_properties_file_reads_back_what_was_written(
    settings: dict[str, str], separator: str, end: str
) -> None:
    text = "".join(
        f"  {escape(key, also='=:#! ')}{separator}{escape(value, also='#!')}{end}"
        for key, value in settings.items()
    )
    assert plain(from_properties(text)) == settings


@given(texts)
def test_any_text_is_a_properties_file_or_says_which_line_is_not(text: str) -> None:
    try:
        from_properties(text, "f")
    except ConfigError as error:
        assert all(" line " in problem for problem in error.problems)


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("a:b", {"a": "b"}),
        ("a b=c", {"a": "b=c"}),
        ("a", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("# a=b\n!c=d\n \t\f\n", {}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\r\n\tc\\\n\nd=e", {"a": "bc", "d": "e"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\n#c", {"a": "b#c"}),
        ("\\\n# a", {}),
        ("a\\\n# b", {"a#": "b"}),
        ("a=b\\", {"a": "b"}),
        ("a\\ b=c", {"a b": "c"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a=\\u0041\\t\\q", {"a": "A\tq"}),
        ("a=\\ud83d\\ude00", {"a": "\N{GRINNING FACE}"}),
        ("a=1\na=2", {"a": "2"}),
        ("=b", {"": "b"}),
    ],
)
def test_properties_mean_what_they_mean_in_java(text: str, settings: dict[str, str]) -> None:
    assert plain(from_properties(text)) == settings


def test_a_setting_knows_the_line_that_it_begins_on() -> None:
    text = "# one\n\na=1\nb=2\\\n  3\nc=4\n"
    origins = {name: origin for name, (_, origin) in from_properties(text, "f").items()}
    assert origins == {"a": "f line 3", "b": "f line 4", "c": "f line 6"}


def test_a_malformed_escape_is_reported_with_its_line() -> None:
    with pytest.raises(ConfigError) as refused:
        from_properties("a=1\nb=\\u12\nc=\\uxyzw", "f")
    assert refused.value.problems == (
        "f line 2: Malformed \\uxxxx encoding.",
        "f line 3: Malformed \\uxxxx encoding.",
    )


names = st.from_regex(r"[a-z0-9]+([._-][a-z0-9]+)*", fullmatch=True)


@given(names, texts)
def test_every_name_can_be_set_by_a_variable(name: str, value: str) -> None:
    marks = {".": "_", "_": "__", "-": "___"}
    variable = "KAFKA_" + "".join(marks.get(c, c.upper()) for c in name)
    if variable not in EXCLUDED_VARIABLES and value:
        expected = {name: (value, f"environment {variable}")}
        assert from_environment({variable: value, "PATH": "/bin"}) == expected


def test_variables_that_are_for_the_image_are_no_settings() -> None:
    environment = dict.fromkeys(EXCLUDED_VARIABLES, "x")
    assert from_environment(environment) == {}


def test_the_cluster_id_of_kafkas_images_is_read() -> None:
    assert plain(from_environment({"CLUSTER_ID": "abc"})) == {"odradek.cluster.id": "abc"}


def test_listeners_follow_from_the_advertised_ones_unless_they_are_said() -> None:
    environment = {"KAFKA_ADVERTISED_LISTENERS": "A://broker:19092,B://localhost:9092"}
    derived = "A://0.0.0.0:19092,B://0.0.0.0:9092"
    assert static_layer(environment=environment).values["listeners"] == derived
    empty = {**environment, "KAFKA_LISTENERS": ""}
    assert static_layer(environment=empty).values["listeners"] == derived
    said = {**environment, "KAFKA_LISTENERS": "A://:1"}
    assert static_layer(environment=said).values["listeners"] == "A://:1"
    pairs = ["listeners=A://:2"]
    assert static_layer(environment=environment, pairs=pairs).values["listeners"] == "A://:2"


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path,
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("a=file\nb=file\nc=file\n")
    environment = {"KAFKA_B": "environment", "KAFKA_C": "environment"}
    layer = static_layer(file, environment, ["c=set=it"])
    assert layer.source is Source.STATIC_BROKER
    assert layer.values == {"a": "file", "b": "environment", "c": "set=it"}
    assert layer.origins == {
        "a": f"{file} line 1",
        "b": "environment KAFKA_B",
        "c": "--set",
    }


def test_a_file_of_any_bytes_is_read_as_java_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes(b"# \xff\xfe\na=\xe9\n")
    assert static_layer(file).values == {"a": "\u00e9"}


def test_all_mistakes_in_the_settings_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        static_layer(tmp_path / "none", {}, ["a", "=b", "c=d"])
    missing, *pairs = refused.value.problems
    assert missing == f"cannot read {tmp_path / 'none'}: No such file or directory"
    assert pairs == ["--set a: write it as key=value", "--set : write it as key=value"]


def test_the_last_of_equal_pairs_counts() -> None:
    assert plain(from_pairs(["a=1", " a = 2"])) == {"a": " 2"}
