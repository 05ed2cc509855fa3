"""odradek produce and consume with the schemas of a registry."""

from __future__ import annotations

import base64
import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.processes import OdradekProcess
from odradek.cli.place import REGISTRY_ENVIRONMENT
from odradek.cli.profiles import FILE_VARIABLE
from odradek.cli.registry import USER_INFO_ENVIRONMENT
from tests.cli.answering import answering
from tests.cli.commands import Commands, fresh
from tests.profiles import examples
from tests.support.forking import ForkedOdradek
from tests.support.registry import RunningRegistry

pytest.importorskip("avro")
pytest.importorskip("grpc_tools")

pytestmark = pytest.mark.slow
PRICE = {
    "type": "record",
    "name": "Price",
    "fields": [
        {"name": "amount", "type": "int"},
        {"name": "shop", "type": ["null", "string"], "default": None},
    ],
}
KEY = {"type": "string"}
ANY = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
PROTO = """
syntax = "proto3";
package shop;
message First { int32 n = 1; }
message Order { message Line { string name = 1; } }
"""
NOWHERE = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OdradekProcess]:
    process = ForkedOdradek(tmp_path_factory.mktemp("broker"))
    process.start()
    yield process
    process.stop()


@pytest.fixture
def topic(commands: Commands) -> str:
    name = fresh("schemas")
    commands.shown("topics", "create", name, "--partitions", "1")
    return name


@pytest.fixture
def at(registry: RunningRegistry) -> tuple[str, str]:
    """Return the option for the registry, which has the schemas of this file."""
    registry.add("cli-price", PRICE)
    registry.add("cli-key", KEY)
    registry.add("cli-proto", PROTO, "PROTOBUF")
    registry.add("cli-json", ANY, "JSON")
    return "--registry", registry.url


def rows(commands: Commands, topic: str, *arguments: str) -> list[dict[str, Any]]:
    shown = commands.shown("consume", topic, "--to", "end", "--json", *arguments)
    return [json.loads(line) for line in shown.splitlines()]


def octets(commands: Commands, topic: str, name: str = "value") -> list[bytes | None]:
    """Return the keys or values of a topic as they are stored."""
    found = []
    for row in rows(commands, topic):
        coded, text = row.get(f"{name}_base64"), row.get(name)
        if coded is not None:
            found.append(base64.b64decode(coded))
        else:
            found.append(None if text is None else text.encode())
    return found


def framed(number: int, data: bytes) -> bytes:
    return struct.pack(">bi", 0, number) + data


def put(commands: Commands, topic: str, *values: bytes) -> None:
    lines = (json.dumps({"value_base64": base64.b64encode(one).decode()}) for one in values)
    commands.shown("produce", topic, "--format", "json", text="\n".join(lines))


def test_values_by_a_schema_are_produced_and_shown(
    commands: Commands, topic: str, at: tuple[str, str], registry: RunningRegistry
) -> None:
    text = '{"amount": 5}\n{"amount": -1, "shop": "€\\n\u2028"}\n'
    commands.shown("produce", topic, *at, "--value-schema", "cli-price", text=text)
    number = registry.add("cli-price", PRICE)
    assert octets(commands, topic)[0] == framed(number, b"\x0a\x00")
    shown = commands.shown("consume", topic, "--to", "end", *at)
    assert shown.encode() == (
        b'{"amount":5,"shop":null}\n{"amount":-1,"shop":"\xe2\x82\xac\\n\\u2028"}\n'
    )
    for row, amount in zip(rows(commands, topic, *at), (5, -1), strict=True):
        assert row["value"]["amount"] == amount and row["value_schema_id"] == number
        assert row["key"] is None and "key_schema_id" not in row


def test_keys_have_schemas_of_their_own(
    commands: Commands, topic: str, at: tuple[str, str], registry: RunningRegistry
) -> None:
    schemas = ("--key-schema", "cli-key", "--value-schema", str(registry.add("cli-price", PRICE)))
    text = '"p1"|{"amount": 5}\n"p2"|{"amount": 6}\n'
    commands.shown("produce", topic, *at, *schemas, "--key-separator", "|", text=text)
    read = ("consume", topic, "--to", "end", *at)
    assert commands.shown(*read, "--format", "key-value") == (
        '"p1"\t{"amount":5,"shop":null}\n"p2"\t{"amount":6,"shop":null}\n'
    )
    # The sizes are those of the records.
    assert commands.shown(*read, "--format", r"%k %K %v %S\n", "--count", "1") == (
        '"p1" 8 {"amount":5,"shop":null} 7\n'
    )
    for key in ("p2", '"p2"'):
        assert commands.shown(*read, "--key", key) == '{"amount":6,"shop":null}\n'
    assert commands.shown(*read, "--key", "p3") == ""


def test_a_key_for_all_records_is_encoded(
    commands: Commands, topic: str, at: tuple[str, str]
) -> None:
    by_key = (*at, "--key-schema", "cli-key")
    commands.shown("produce", topic, *by_key, "--key", '"p"', text="plain\n")
    (row,) = rows(commands, topic, *at)
    assert (row["key"], row["value"]) == ("p", "plain")
    line = commands.refusal("produce", topic, *by_key, "--key", "p", text="plain\n")
    assert "--key: key is not JSON" in line
    assert len(rows(commands, topic)) == 1


def test_nulls_and_bytes_stay_as_they_are(
    commands: Commands, topic: str, at: tuple[str, str]
) -> None:
    schemas = (*at, "--key-schema", "cli-key", "--value-schema", "cli-price")
    lines = ("--key-separator", ":", "--null-value", "NIL")
    commands.shown("produce", topic, *schemas, *lines, text='"a":NIL\nNIL:{"amount": 1}\n')
    text = (
        '{"key": "b"}\n{"value": null}\n{"value_base64": "AQI="}\n{"key_base64": "AA=="}\n'
        '{"value": {"amount": 2}, "headers": {"a": "b"}}\n'
    )
    commands.shown("produce", topic, *schemas, "--format", "json", text=text)
    found = [(row["key"], row["value"]) for row in rows(commands, topic, *at)]
    one, two = ({"amount": at, "shop": None} for at in (1, 2))
    assert found == [
        ("a", None), (None, one), ("b", None), (None, None), (None, "\x01\x02"), ("\0", None),
        (None, two),
    ]  # fmt: skip


def test_messages_of_protobuf_have_names(
    commands: Commands, topic: str, at: tuple[str, str]
) -> None:
    schema = (*at, "--value-schema")
    commands.shown("produce", topic, *schema, "cli-proto", text='{"n": 3}\n')
    commands.shown("produce", topic, *schema, "cli-proto#shop.Order.Line", text='{"name": "a"}\n')
    assert commands.shown("consume", topic, "--to", "end", *at) == '{"n":3}\n{"name":"a"}\n'
    assert [one and one[5:] for one in octets(commands, topic)] == [b"\0\x08\3", b"\4\2\0\x0a\1a"]
    line = commands.refusal("produce", topic, *schema, "cli-proto#shop.Other", text="{}\n")
    assert "line 1: value: the schema has no message shop.Other: it has shop.First" in line
    line = commands.refusal("produce", topic, *schema, "cli-price#shop.Order", text="{}\n")
    assert "line 1: value: the schema has no messages" in line


def test_json_has_the_id_before_it(
    commands: Commands, topic: str, at: tuple[str, str], registry: RunningRegistry
) -> None:
    text = '{"b": [1, 2.5, "€"]}\n'
    commands.shown("produce", topic, *at, "--value-schema", "cli-json", text=text)
    number = registry.add("cli-json", ANY, "JSON")
    assert octets(commands, topic) == [framed(number, '{"b":[1,2.5,"€"]}'.encode())]
    put(commands, topic, framed(number, b'"\\ud800"'))
    assert commands.shown("consume", topic, "--to", "end", *at) == (
        '{"b":[1,2.5,"€"]}\n"\\ud800"\n'
    )


def test_records_that_were_consumed_are_produced_the_same(
    commands: Commands, at: tuple[str, str], registry: RunningRegistry
) -> None:
    number, of_key = registry.add("cli-price", PRICE), registry.add("cli-key", KEY)
    first, second = fresh("before"), fresh("after")
    for name in (first, second):
        commands.shown("topics", "create", name, "--partitions", "1")
    prices = st.fixed_dictionaries(
        {"amount": st.integers(-(1 << 31), (1 << 31) - 1), "shop": st.none() | st.text()}
    )
    fields = st.fixed_dictionaries({
        "key": st.none() | st.text(), "value": st.none() | prices,
        "key_schema_id": st.just(of_key), "value_schema_id": st.just(number),
    })  # fmt: skip
    raw = st.binary(max_size=8).map(lambda one: {"value_base64": base64.b64encode(one).decode()})

    @settings(max_examples=examples(8))
    @given(st.lists(fields | raw, min_size=1, max_size=20))
    def check(lines: list[dict[str, Any]]) -> None:
        text = "".join(f"{json.dumps(one)}\n" for one in lines)
        commands.shown("produce", first, "--format", "json", *at, text=text)
        start = len(rows(commands, second))
        read = ("--from", str(start), "--to", "end", "--json", *at)
        copied = commands.run("consume", first, *read)
        assert copied.exit_code == 0
        commands.shown("produce", second, "--format", "json", *at, text=copied.stdout_bytes)
        for name in ("key", "value"):
            assert octets(commands, first, name) == octets(commands, second, name)

    check()


def test_a_schema_of_the_command_wins_over_that_of_a_line(
    commands: Commands, topic: str, at: tuple[str, str], registry: RunningRegistry
) -> None:
    schema = ("--format", "json", *at, "--value-schema", "cli-price")
    text = '{"value": {"amount": 1}, "value_schema_id": 2147483647}\n'
    commands.shown("produce", topic, *schema, text=text)
    number = registry.add("cli-price", PRICE)
    assert rows(commands, topic, *at)[0]["value_schema_id"] == number
    line = commands.refusal("produce", topic, "--format", "json", text=text)
    assert "line 1: value_schema_id needs a schema registry: add --registry URL" in line
    line = commands.refusal("produce", topic, "--format", "json", *at, text=text)
    assert "line 1: value: the schema registry does not know /schemas/ids/2147483647" in line


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ('{"amount": "x"}', "line 2: value: the data does not follow the schema"),
        ('{"sum": 1}', "line 2: value: Price has no field sum"),
        ("amount", "line 2: value is not JSON, which a schema needs"),
        ("[" * 100_000, "line 2: value is not JSON, which a schema needs"),
        ("", "line 2: value is not JSON, which a schema needs"),
    ],
)
def test_the_line_that_does_not_follow_its_schema_is_named(
    commands: Commands, topic: str, at: tuple[str, str], bad: str, words: str
) -> None:
    text = f'{{"amount": 1}}\n{bad}\n{{"amount": 2}}\n'
    line = commands.refusal("produce", topic, *at, "--value-schema", "cli-price", text=text)
    assert words in line and "1 record delivered before it" in line
    assert len(rows(commands, topic)) == 1


def test_deep_json_in_a_line_is_a_mistake_of_the_line(commands: Commands, topic: str) -> None:
    line = commands.refusal("produce", topic, "--format", "json", text="[" * 100_000)
    assert "line 1: it is not JSON" in line


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("cli-nothing", "--value-schema cli-nothing: the schema registry does not know /subjects"),
        ("2147483", "--value-schema 2147483: the schema registry does not know /schemas/ids"),
    ],
)
def test_an_unknown_schema_is_refused_before_a_record_is_sent(
    commands: Commands, topic: str, at: tuple[str, str], schema: str, words: str
) -> None:
    text = '{"amount": 1}\n'
    line = commands.refusal("produce", topic, *at, "--value-schema", schema, text=text)
    assert words in line
    assert rows(commands, topic) == []


def test_a_registry_that_is_down_is_one_line(commands: Commands, topic: str) -> None:
    nowhere = ("--registry", NOWHERE)
    line = commands.refusal("produce", topic, *nowhere, "--value-schema", "a", text="1\n")
    assert f"--value-schema a: the schema registry {NOWHERE} does not answer: " in line
    put(commands, topic, framed(1, b"abc"), framed(2, b"def"))
    result = commands.run("consume", topic, "--to", "end", *nowhere)
    assert (result.exit_code, result.stdout_bytes) == (0, b"\0\0\0\0\1abc\n\0\0\0\0\2def\n")
    (line,) = result.stderr.splitlines()
    start = f"{topic} 0 offset 0: value: the schema registry {NOWHERE} does not answer: "
    assert line.startswith(start)


def test_records_that_cannot_be_decoded_are_printed_with_a_warning_for_each_reason(
    commands: Commands, topic: str, at: tuple[str, str], registry: RunningRegistry
) -> None:
    number = registry.add("cli-price", PRICE)
    bad, unknown = framed(number, b"\x0a"), framed((1 << 31) - 1, b"\xff")
    put(commands, topic, framed(number, b"\x0a\x00"), bad, unknown, bad, unknown, b"plain", b"\0")
    result = commands.run("consume", topic, "--to", "end", *at)
    assert result.exit_code == 0
    assert result.stdout_bytes == b'{"amount":5,"shop":null}\n' + b"".join(
        one + b"\n" for one in (bad, unknown, bad, unknown, b"plain", b"\0")
    )
    first, second = result.stderr.splitlines()
    assert first.startswith(f"{topic} 0 offset 1: value: the data does not follow its schema: ")
    assert second.startswith(f"{topic} 0 offset 2: value: the schema registry does not know ")
    found = rows(commands, topic, *at)
    assert "value_schema_id" not in found[1]
    assert found[2] == {**rows(commands, topic)[2]}


def test_there_are_twenty_warnings_at_most(
    commands: Commands, topic: str, at: tuple[str, str]
) -> None:
    put(commands, topic, *(framed(0x70404040 + one, b"") for one in range(30)))
    result = commands.run("consume", topic, "--to", "end", *at)
    assert result.exit_code == 0 and len(result.stdout_bytes.splitlines()) >= 30
    assert len(result.stderr.splitlines()) == 20


def test_the_registry_comes_from_the_environment_or_a_profile(
    commands: Commands, topic: str, at: tuple[str, str], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    text, url = '{"amount": 7}\n', at[1]
    monkeypatch.setenv(REGISTRY_ENVIRONMENT, url)
    commands.shown("produce", topic, "--value-schema", "cli-price", text=text)
    read = ("consume", topic, "--to", "end")
    shown = '{"amount":7,"shop":null}\n'
    assert commands.shown(*read) == shown
    assert commands.shown(*read, "--registry", "") != shown
    monkeypatch.setenv(REGISTRY_ENVIRONMENT, NOWHERE)
    assert commands.shown(*read, *at) == shown
    monkeypatch.delenv(REGISTRY_ENVIRONMENT)
    assert commands.shown(*read) != shown
    file = {FILE_VARIABLE: str(tmp_path / "profiles.ini")}
    monkeypatch.setattr(
        Commands, "environment", property(lambda self: {**file, "COLUMNS": "80"})
    )
    local = ("profile", "set", "local", "-b", commands.bootstrap)
    assert commands.shown(*local, "--registry", url)
    assert commands.shown(*read) == shown
    assert url in commands.shown("profile", "show", "local")


@pytest.mark.parametrize("url", ["registry:8081", "ftp://registry", "http://[::1", "http://a b"])
def test_a_malformed_address_is_wrong_usage(commands: Commands, url: str) -> None:
    for command in ("consume", "produce"):
        result = commands.run(command, "any", "--registry", url)
        assert result.exit_code == 2
        assert f"{url} is not the address of a schema registry" in result.stderr


@pytest.mark.parametrize("name", ["--key-schema", "--value-schema"])
def test_a_schema_needs_a_registry(commands: Commands, name: str) -> None:
    result = commands.run("produce", "any", name, "prices-value", text="")
    assert result.exit_code == 2
    words = f"{name} needs a schema registry: add --registry URL, or set {REGISTRY_ENVIRONMENT}"
    assert words in " ".join(result.stderr.split())


def test_a_password_comes_from_the_environment_alone(
    commands: Commands, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(commands, topic, framed(1, b"\x0a"))
    monkeypatch.setenv(USER_INFO_ENVIRONMENT, "hush")
    result = commands.run("consume", topic, "--to", "end", "--registry", NOWHERE)
    assert result.exit_code == 2 and "hush" not in result.output
    assert f"{USER_INFO_ENVIRONMENT} is not USER:PASSWORD" in result.stderr
    result = commands.run("consume", topic, "--to", "end", "--registry", "http://a:hush@b")
    assert result.exit_code == 2 and "hush" not in result.output
    monkeypatch.setenv(USER_INFO_ENVIRONMENT, "ann:hush")
    asked: list[str | None] = []
    with answering(b'{"schema": "\\"int\\""}', asked=asked) as url:
        read = ("consume", topic, "--to", "end", "--registry", url)
        assert commands.shown(*read) == "5\n"
        monkeypatch.delenv(USER_INFO_ENVIRONMENT)
        assert commands.shown(*read) == "5\n"
    header = base64.b64encode(b"ann:hush").decode()
    assert asked == [f"Basic {header}", None]


def test_a_missing_extra_is_named_in_one_line(
    commands: Commands, topic: str, at: tuple[str, str], monkeypatch: pytest.MonkeyPatch,
    registry: RunningRegistry,
) -> None:  # fmt: skip
    monkeypatch.setitem(sys.modules, "odradek.schemas.avro_records", None)
    put(commands, topic, framed(registry.add("cli-price", PRICE), b"\x0a\x00"))
    result = commands.run("consume", topic, "--to", "end", *at)
    (line,) = result.stderr.splitlines()
    assert result.exit_code == 0 and "pip install odradek[console]" in line
    line = commands.refusal("produce", topic, *at, "--value-schema", "cli-price", text="{}\n")
    assert "pip install odradek[console]" in line
