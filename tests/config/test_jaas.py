"""A JAAS text is read as Kafka's classes read it; a report of its faults does not quote it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.errors import ConfigError
from odradek.config.jaas import LoginModule, parse_jaas
from tests.config.conftest import Ask

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r") + '"'


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]{1,9}", fullmatch=True), st.text(st.characters(codec="utf-8"))
    )
)
def test_quoted_options_are_read_back(options: dict[str, str]) -> None:
    pairs = " ".join(f"{name}={quoted(text)}" for name, text in options.items())
    assert parse_jaas(f"{MODULE} required {pairs};") == LoginModule(MODULE, options)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "names no login module"),
        (MODULE, "no control flag"),
        (f"{MODULE} mandatory;", "no control flag"),
        (f"{MODULE} required", "does not end with a semicolon"),
        (f"{MODULE} required user_a=s3cret", "does not end with a semicolon"),
        (f"{MODULE} required user_a=1234;", "without a value at character 66"),
        (f'{MODULE} required user_a="s3cret;', "without a value at character 66"),
        (f"{MODULE} required user_a=s3cret@home;", "no option name at character 79"),
        (f"{MODULE} required user_a=s3 cret;", "without a value at character 76"),
        (f"{MODULE} required; {MODULE} required;", "has 2 login modules"),
    ],
)
def test_a_mistake_is_reported_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as error:
        parse_jaas(text)
    assert "s3" not in str(error.value)
    assert "cret" not in str(error.value)


def test_secrets_are_not_in_a_repr() -> None:
    assert "s3cret" not in repr(parse_jaas(f"{MODULE} required user_a=s3cret;"))


@pytest.mark.kafka
def test_texts_mean_what_they_mean_to_kafka(ask_kafka: Ask) -> None:
    chance = random.Random(3)
    words = ["user_a", "b", "-c", "a.b", "$x", "1a", "12", "-1", "\u00e9", "required", "OPTIONAL"]
    marks = ["=", "=", ";", " ", "\n", "//x\n", "/* y */", '"', "'", "\\", '"q r"', "'s'", "@"]
    quotes = ['"a\\"b"', '"\\101\\7"', '"\\u0041"', '"\\t\\q"', "'it''s'", '"x\ny"', "/z\n"]
    texts = [
        "a required "[: chance.choice((0, 11, 11, 11))]
        + "".join(chance.choices(words + marks + quotes, k=chance.randrange(9)))
        + chance.choice((";", ";", ""))
        for _ in range(20_000)
    ]
    # A quote that is left open runs to the end of its line in Java: here it is an error.
    for text, theirs in zip(texts, ask_kafka(jaas=texts)["jaas"], strict=True):
        try:
            read = parse_jaas(text)
        except ConfigError:
            assert theirs is None or _has_open_quote(text), (text, theirs)
            continue
        assert [read.name, dict(read.options)] == theirs, text


def _has_open_quote(text: str) -> bool:
    return any(mark in text for mark in "\"'")
