"""No schema, no record and no registry makes a reader fail, wait for long, or fill the memory."""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.effective import resolve_apart
from odradek.config.errors import ConfigError
from odradek.config.http import HttpConfig
from odradek.config.resolution import Layer, Source
from odradek.schemas.errors import SchemaError
from odradek.schemas.records import Codecs, Decoded
from odradek.schemas.registry import AVRO, JSON, PROTOBUF, Reference, Registry, Schema
from tests.support.http_servers import serving

pytest.importorskip("avro")
pytest.importorskip("grpc_tools")
from odradek.schemas.avro_records import AvroCodec
from odradek.schemas.protobuf_records import ProtobufCodec, read_indexes, write_indexes

HEAD = struct.Struct(">bi")


class Known(Registry):
    """A registry that knows one schema, with the id 1, and others by their subjects."""

    def __init__(self, schema: Schema, others: Mapping[str, Schema] | None = None) -> None:
        super().__init__("http://127.0.0.1:1")
        self.schema, self.others = schema, others or {}

    def by_id(self, number: int) -> Schema:
        if number != 1:
            raise SchemaError("not known")
        return self.schema

    def version(self, subject: str, version: int | str) -> tuple[int, Schema]:
        if subject not in self.others:
            raise SchemaError("not known")
        return 2, self.others[subject]


def decoded(schema: Schema, data: bytes) -> Decoded:
    found = Codecs(Known(schema)).decode(HEAD.pack(0, 1) + data)
    assert found is not None
    return found


def problem(schema: object, data: bytes = b"") -> str:
    found = decoded(Schema(AVRO, json.dumps(schema)), data)
    assert found.problem is not None and found.data is None
    assert "\n" not in found.problem and len(found.problem) < 500
    return found.problem


def record(name: str, **fields: object) -> dict[str, object]:
    return {
        "type": "record", "name": name,
        "fields": [{"name": one, "type": kind} for one, kind in fields.items()],
    }  # fmt: skip


def array(items: object) -> dict[str, object]:
    return {"type": "array", "items": items}


def doubling(depth: int, leaf: object) -> object:
    """Return a record with two records with two records, and so on."""
    found: object = record("R0", a=leaf, b=leaf)
    for at in range(1, depth):
        found = record(f"R{at}", a=found, b=f"R{at - 1}")
    return found


def long(number: int) -> bytes:
    found, left = bytearray(), number << 1 ^ number >> 63
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


@pytest.mark.parametrize(
    "items",
    ["null", {"type": "fixed", "name": "F", "size": 0}, record("E"), record("N", a="null"),
     record("M", a=record("O"), b="null")],
)  # fmt: skip
def test_items_without_bytes_are_refused(items: object) -> None:
    assert "items without bytes" in problem(array(items), long(1 << 31) + b"\0")


@pytest.mark.parametrize("leaf", ["null", "int"])
@pytest.mark.timeout(30)
def test_records_that_double_at_each_level_are_refused(leaf: object) -> None:
    schema = doubling(40, leaf)
    assert "too many values" in problem(schema)
    assert "too many values" in problem(array(schema), long(5))
    assert "too many values" in problem(["null", schema], long(0))


def test_a_record_that_holds_itself_has_no_end() -> None:
    assert "too many values" in problem(record("R", a="R"))
    assert "too many values" in problem(record("R", a="int", b=record("S", c="R")))


def test_a_record_may_hold_itself_in_a_union_an_array_or_a_map() -> None:
    union = record("R", a=["null", "R"])
    assert decoded(Schema(AVRO, json.dumps(union)), long(1) * 2 + long(0)).data == {
        "a": {"a": {"a": None}}
    }
    for kind in (array("R"), {"type": "map", "values": "R"}):
        assert decoded(Schema(AVRO, json.dumps(record("R", a=kind))), long(0)).problem is None


def test_data_may_be_nested_only_so_deep() -> None:
    union = record("R", a=["null", "R"])
    assert problem(union, long(1) * 100_000 + long(0)) == "the data is nested too deeply"
    assert problem(record("R", a=array("R")), long(1) * 100_000).startswith("the data is nested")


@pytest.mark.parametrize("count", [-1, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63)])
@pytest.mark.parametrize("kind", [array("int"), {"type": "map", "values": "int"}])
def test_a_block_has_no_more_items_than_bytes(kind: object, count: int) -> None:
    assert "does not follow its schema" in problem(kind, long(count) + b"\1\2")


@pytest.mark.parametrize("kind", ["bytes", "string"])
@pytest.mark.parametrize("size", [-1, 4, 1 << 31, (1 << 63) - 1])
def test_a_text_is_no_longer_than_its_record(kind: str, size: int) -> None:
    assert "does not follow its schema" in problem(kind, long(size) + b"abc")


@pytest.mark.timeout(30)
def test_a_number_of_a_million_bytes_costs_nothing() -> None:
    assert "does not follow its schema" in problem("long", b"\xff" * 1_000_000)
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 3_000_000, "scale": 2}
    assert "a decimal has 1000000 bytes" in problem(decimal, long(1_000_000) + b"\x7f" * 1_000_000)


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_large_schema_is_not_walked_through_for_each_array() -> None:
    schema = array(array(doubling(14, "int")))
    count = 200_000
    found = decoded(Schema(AVRO, json.dumps(schema)), long(count) + b"\0" * count + b"\0")
    assert found.data == [[]] * count


def nested(depth: int, wrap: Callable[[str, int], str]) -> str:
    text = '"int"'
    for at in range(depth):
        text = wrap(text, at)
    return text


@pytest.mark.parametrize("depth", [50, 70, 100, 200, 330, 400, 1_000, 100_000])
def test_a_schema_may_be_nested_at_any_depth(depth: int) -> None:
    for wrap in (
        lambda text, at: f'{{"type":"array","items":{text}}}',
        lambda text, at: f'{{"type":"map","values":{text}}}',
        lambda text, at: f'["null",{{"type":"array","items":{text}}}]',
        lambda text, at: f'{{"type":"record","name":"R{at}","fields":[{{"name":"f","type":{text}}}]}}',  # noqa: E501
    ):
        if depth <= 1_000:
            found = decoded(Schema(AVRO, nested(depth, wrap)), b"\0" * 5)
            assert found.problem is None or "\n" not in found.problem
    deep = decoded(Schema(AVRO, "[" * depth + "]" * depth), b"")
    assert deep.problem is not None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(
        ["record", "int", "null", "array", "map", "fixed", "enum", "decimal", "a", "bytes", "R"]
    ),
    lambda one: st.lists(one, max_size=4) | st.dictionaries(
        st.sampled_from(["type", "name", "fields", "items", "values", "symbols", "size",
                         "logicalType", "precision", "scale", "default", "namespace"]),
        one, max_size=6),
    max_leaves=20,
)  # fmt: skip


@given(json_values, st.binary(max_size=30), st.none() | st.integers() | st.text())
def test_any_json_as_a_schema_is_a_schema_or_a_problem(
    schema: object, data: bytes, value: object
) -> None:
    codecs = Codecs(Known(Schema(AVRO, json.dumps(schema))))
    assert isinstance(codecs.decode(HEAD.pack(0, 1) + data), Decoded)
    try:
        assert codecs.encode(1, value)[:5] == HEAD.pack(0, 1)
    except SchemaError as error:
        assert str(error)


leaves = st.sampled_from(
    ["int", "long", "float", "double", "bytes", "string", "boolean", "null",
     {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
     {"type": "int", "logicalType": "date"}, {"type": "int", "logicalType": "time-millis"},
     {"type": "long", "logicalType": "time-micros"},
     {"type": "long", "logicalType": "timestamp-micros"},
     {"type": "string", "logicalType": "uuid"}]
)  # fmt: skip


@st.composite
def avro_schemas(draw: st.DrawFn) -> object:
    """Draw a schema with records, whose names are all different."""
    names = iter(range(1_000_000))

    def kind(depth: int) -> object:
        which = draw(st.sampled_from(("leaf", "array", "map", "union", "record")))
        if depth == 0 or which == "leaf":
            return draw(leaves)
        if which == "array":
            return array(kind(depth - 1))
        if which == "map":
            return {"type": "map", "values": kind(depth - 1)}
        if which == "union":
            return ["null", array(kind(depth - 1)), record(f"U{next(names)}", a=kind(depth - 1))]
        fields = {f"f{at}": kind(depth - 1) for at in range(draw(st.integers(0, 3)))}
        return record(f"R{next(names)}", **fields)

    return kind(4)


def values_in(data: object) -> int:
    if isinstance(data, dict):
        return 1 + sum(map(values_in, data.values()))
    if isinstance(data, list):
        return 1 + sum(map(values_in, data))
    return 1


@given(avro_schemas(), st.binary(max_size=200) | st.lists(
    st.integers(-5, 5) | st.integers(-(1 << 63), (1 << 63) - 1)).map(
        lambda numbers: b"".join(map(long, numbers))))  # fmt: skip
def test_any_bytes_are_few_values_or_a_problem(schema: object, data: bytes) -> None:
    found = decoded(Schema(AVRO, json.dumps(schema)), data)
    assert values_in(found.data) <= 64 + 8 * (len(data) + 1)
    json.dumps(found.data, allow_nan=False)


PROTO = """
syntax = "proto3";
import "google/protobuf/struct.proto";
import "google/protobuf/any.proto";
message Tree { repeated Tree trees = 1; map<string, Tree> named = 2; bytes octets = 3;
  google.protobuf.Value value = 4; google.protobuf.Any any = 5; double number = 6; }
"""


@pytest.fixture(scope="module")
def tree() -> ProtobufCodec:
    return ProtobufCodec(PROTO, {})


@given(data=st.binary(max_size=100))
def test_any_bytes_are_a_message_or_a_problem(tree: ProtobufCodec, data: bytes) -> None:
    for octets in (data, b"\0" + data):
        try:
            found = tree.decode(octets)
        except SchemaError as error:
            assert str(error)
        else:
            assert values_in(found) <= 8 * (1 + len(data))
            json.dumps(found, allow_nan=False)


def test_messages_may_be_nested_only_so_deep(tree: ProtobufCodec) -> None:
    data = b""
    for _ in range(2_000):
        size = bytearray()
        left = len(data)
        while left > 0x7F:
            size.append(left & 0x7F | 0x80)
            left >>= 7
        data = b"\x0a" + bytes([*size, left]) + data
    with pytest.raises(SchemaError, match="does not follow its schema"):
        tree.decode(b"\0" + data)
    deep: object = {}
    for _ in range(2_000):
        deep = {"trees": [deep]}
    with pytest.raises(SchemaError):
        tree.encode(deep)


@given(st.lists(st.integers(0, (1 << 31) - 1), min_size=1, max_size=64))
def test_indexes_are_read_as_they_were_written(indexes: list[int]) -> None:
    written = write_indexes(indexes)
    assert read_indexes(written + b"rest") == (tuple(indexes), len(written))


@pytest.mark.parametrize(
    "data", [b"", b"\x80", b"\x01", b"\x82\x01", b"\x02", b"\x02\x01", b"\x02\x7e", b"\xff" * 9]
)
def test_indexes_that_name_no_message_are_a_problem(tree: ProtobufCodec, data: bytes) -> None:
    with pytest.raises(SchemaError, match="message"):
        tree.decode(data)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense", "1:1: "),
        ('syntax = "proto3"; message A { Missing m = 1; }', '"Missing" is not defined'),
        ('syntax = "proto3"; import "gone.proto";', "gone.proto: File not found"),
        ('syntax = "proto3"; // \ud800', "surrogates not allowed"),
        ("\0", "this is not a schema of Protobuf"),
    ],
)
def test_protoc_says_why_a_schema_is_none(text: str, words: str) -> None:
    with pytest.raises(SchemaError) as caught:
        ProtobufCodec(text, {})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value) and "/odradek-schema-" not in str(caught.value)


@pytest.mark.parametrize("path", ["../x.proto", "/x.proto", "a/../../x.proto", "", "a\0b", "."])
def test_an_imported_file_is_within_its_folder(path: str) -> None:
    with pytest.raises(SchemaError, match="impossible name"):
        ProtobufCodec('syntax = "proto3";', {path: 'syntax = "proto3";'})


def test_an_imported_file_with_a_mistake_is_named() -> None:
    with pytest.raises(SchemaError, match=r"this is not a schema of Protobuf: a/b.proto:1:1: "):
        ProtobufCodec('syntax = "proto3"; import "a/b.proto";', {"a/b.proto": "nonsense"})
    many = {"x": "", "x/y.proto": ""}  # a file where another one needs a folder
    with pytest.raises(SchemaError, match="this is not a schema of Protobuf"):
        ProtobufCodec('syntax = "proto3";', many)


def test_schemas_that_refer_to_each_other_have_an_end() -> None:
    one = Schema(AVRO, '"int"', (Reference("B", "b", 1),))
    other = Schema(AVRO, '"int"', (Reference("A", "a", 1), Reference("B", "b", 1)))
    codecs = Codecs(Known(one, {"a": one, "b": other}))
    assert isinstance(codecs.decode(HEAD.pack(0, 1) + b"\2"), Decoded)
    chain = {f"s{at}": Schema(AVRO, '"int"', (Reference(f"N{at + 1}", f"s{at + 1}", 1),))
             for at in range(200)}  # fmt: skip
    found = Codecs(Known(chain["s0"], chain)).decode(HEAD.pack(0, 1))
    assert found is not None and found.problem == "the schema refers to more than 100 others"


@pytest.mark.parametrize("kind", [AVRO, PROTOBUF])
def test_without_the_extra_the_remedy_is_named(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("avro_records", "protobuf_records"):
        monkeypatch.setitem(sys.modules, f"odradek.schemas.{name}", None)
    codecs = Codecs(Known(Schema(kind, '"int"')))
    found = codecs.decode(HEAD.pack(0, 1))
    assert found is not None and "pip install odradek[console]" in (found.problem or "")
    with pytest.raises(SchemaError, match=r"pip install odradek\[console\]"):
        codecs.encode(1, 5)
    as_json = Codecs(Known(Schema(JSON, "{}")))
    assert as_json.encode(1, {"a": 1}) == HEAD.pack(0, 1) + b'{"a":1}'


def test_a_kind_that_nobody_knows_is_a_problem() -> None:
    assert decoded(Schema("XML", "<a/>"), b"").problem == "schemas of the kind XML are not known"


class Answers:
    """The answers of a registry: status, headers and body by path, or a function."""

    def __init__(self) -> None:
        self.by_path: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.default: tuple[int, dict[str, str], bytes] = (404, {}, b"")
        self.asked: list[str] = []
        self.credentials: list[str | None] = []


@contextmanager
def answering() -> Iterator[tuple[str, Answers]]:
    answers = Answers()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers.asked.append(self.path)
            answers.credentials.append(self.headers.get("Authorization"))
            status, headers, body = answers.by_path.get(self.path, answers.default)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):  # the reader has enough
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as port:
        yield f"http://127.0.0.1:{port}", answers


def as_answer(schema: object, **more: object) -> bytes:
    return json.dumps({"schema": json.dumps(schema), **more}).encode()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((500, {}, b'{"message": "it is\\nbroken"}'), "answers 500: it is broken"),
        ((500, {}, b"<html>"), "answers 500: Internal Server Error"),
        ((401, {}, b""), "answers 401: Unauthorized"),
        ((404, {}, b'{"message": "no schema"}'), "does not know /schemas/ids/1: no schema"),
        ((200, {}, b"<html></html>"), "is not the API of a schema registry"),
        ((200, {}, b"[" * 100_000), "is not the API of a schema registry"),
        ((200, {}, b"[]"), "is not the API of a schema registry"),
        ((200, {}, b"\xff\xfe"), "is not the API of a schema registry"),
        ((200, {}, b"{}"), "answer has no schema"),
        ((200, {}, b'{"schema": 5}'), "answer has no schema"),
        ((200, {}, as_answer("int", references=[{"name": "a"}])), "references are malformed"),
        ((200, {}, as_answer("int", references=5)), "references are malformed"),
        ((200, {}, b'{"schema": "' + b"x" * (2 << 20)), "has more than 1048576 bytes"),
        ((302, {"Location": "ftp://127.0.0.1/x"}, b""), "registry"),
        ((302, {"Location": "file:///etc/hostname"}, b""), "registry"),
        ((302, {"Location": "/schemas/ids/1"}, b""), "registry"),
        ((200, {"Content-Length": "10"}, b"{"), "is not the API"),
        ((200, {"Content-Length": "no"}, b"{"), "is not the API"),
        ((500, {"Transfer-Encoding": "chunked"}, b"zz"), "answers 500"),
    ],
)
def test_a_registry_that_fails_is_a_problem_in_one_line(
    answer: tuple[int, dict[str, str], bytes], words: str
) -> None:
    with answering() as (url, answers):
        answers.default = answer
        found = Codecs(Registry(url)).decode(HEAD.pack(0, 1) + b"\2")
    assert found is not None and words in (found.problem or "")
    assert "\n" not in (found.problem or "") and len(found.problem or "") < 500


def test_a_registry_that_is_down_is_asked_again_after_half_a_minute() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    now_s = 0.0
    codecs = Codecs(Registry(f"http://127.0.0.1:{port}", now_s=lambda: now_s))

    def of(number: int) -> Decoded | None:
        return codecs.decode(HEAD.pack(0, number) + long(5))

    first = of(1)
    assert first is not None and "does not answer: " in (first.problem or "")
    with answering() as (url, answers):
        codecs.registry = again = Registry(url, now_s=lambda: now_s)
        answers.default = (503, {}, b"")
        assert "answers 503" in str(of(1))
        answers.default = (200, {}, as_answer("int"))
        assert "answers 503" in str(of(2))
        assert len(answers.asked) == 1
        now_s = 31.0
        assert of(1) == Decoded(1, AVRO, 5)
        assert codecs.registry is again


def test_an_unknown_id_is_asked_for_once_in_half_a_minute() -> None:
    now_s = 0.0
    with answering() as (url, answers):
        codecs = Codecs(Registry(url, now_s=lambda: now_s))
        for _ in range(100):
            found = codecs.decode(HEAD.pack(0, 7))
            assert found is not None and "does not know" in (found.problem or "")
        assert answers.asked == ["/schemas/ids/7"]
        answers.by_path["/schemas/ids/7"] = answers.by_path["/schemas/ids/8"] = (
            200, {}, as_answer("int"),
        )  # fmt: skip
        assert codecs.decode(HEAD.pack(0, 8) + long(1)) == Decoded(8, AVRO, 1)
        now_s = 31.0
        assert codecs.decode(HEAD.pack(0, 7) + long(1)) == Decoded(7, AVRO, 1)
        assert answers.asked == ["/schemas/ids/7", "/schemas/ids/8", "/schemas/ids/7"]


def test_threads_that_want_the_same_schema_ask_once() -> None:
    with answering() as (url, answers):
        answers.default = (200, {}, as_answer("int"))
        codecs, found = Codecs(Registry(url)), list[Decoded | None]()
        threads = [
            threading.Thread(target=lambda: found.append(codecs.decode(HEAD.pack(0, 1) + long(1))))
            for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [Decoded(1, AVRO, 1)] * 20
        assert len(answers.asked) == 1


def test_a_user_and_a_password_go_to_the_registry_alone() -> None:
    with answering() as (url, answers), answering() as (elsewhere, others):
        answers.by_path["/schemas/ids/1"] = (
            307, {"Location": f"{elsewhere}/schemas/ids/1"}, b"",
        )  # fmt: skip
        others.default = (200, {}, as_answer("int"))
        schema = Registry(url, "ann:hush").by_id(1)
        assert schema == Schema(AVRO, '"int"')
        assert answers.credentials == ["Basic YW5uOmh1c2g="]
        assert others.credentials == [None]
        Registry(elsewhere).by_id(1)
        assert others.credentials == [None, None]


@pytest.mark.parametrize("part", ["status", "body", "error"])
def test_a_registry_that_is_slow_is_waited_for_so_long(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.schemas.registry._TIMEOUT_S", 0.3)
    heads = {
        "status": b"",
        "body": b"HTTP/1.1 200 OK\r\n\r\n",
        "error": b"HTTP/1.1 500 Broken\r\n\r\n",
    }
    done = threading.Event()

    def serve(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(heads[part])
            while not done.wait(0.05):
                try:
                    connection.sendall(b" " if heads[part] else b"")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        started = time.monotonic()
        try:
            with pytest.raises(SchemaError, match=r"does not answer|answers 500: Broken"):
                Registry(f"http://127.0.0.1:{server.getsockname()[1]}").by_id(1)
            assert time.monotonic() - started < 20
        finally:
            done.set()
            thread.join()


@pytest.mark.parametrize(
    "url",
    ["registry:8081", "ftp://registry", "http://", "http://[::1", "http://registry:x",
     "http://registry:99999", "http://registry:0", "http:// registry", "http://registry/a b",
     "http://registry/\u20ac", "http://registry?a=b", "http://registry#a", "http://a\n.b"],
)  # fmt: skip
def test_an_address_of_no_registry_is_refused(url: str) -> None:
    with pytest.raises(SchemaError, match="not the address of a schema registry"):
        Registry(url)
    # A broker refuses it by the same rule, before it serves anybody.
    settings = {"odradek.schema.registry.url": url}
    with pytest.raises(ConfigError, match=r"odradek\.schema\.registry\.url"):
        resolve_apart(HttpConfig, [Layer(Source.STATIC_BROKER, settings)])


def test_an_empty_address_is_none_for_a_broker() -> None:
    with pytest.raises(SchemaError, match="not the address of a schema registry"):
        Registry("")
    settings = {"odradek.schema.registry.url": ""}
    config = resolve_apart(HttpConfig, [Layer(Source.STATIC_BROKER, settings)])
    assert not config.odradek_schema_registry_url


@pytest.mark.parametrize("host", ["registry", "registry:99999"])
def test_a_password_in_an_address_is_not_shown(host: str) -> None:
    user = "ann:hush"
    with pytest.raises(SchemaError) as caught:
        Registry(f"http://{user}@{host}")
    assert "hush" not in str(caught.value)


def test_a_subject_may_have_any_name() -> None:
    with answering() as (url, answers):
        answers.default = (200, {}, as_answer("int", id=3))
        for name in ("a/b?c#d", "../x", "\u20ac", "a b", "%2e"):
            assert Registry(url).version(name, "latest") == (3, Schema(AVRO, '"int"'))
        assert all(one.startswith("/subjects/") for one in answers.asked)
        assert len({one.count("/") for one in answers.asked}) == 1


@given(st.binary(max_size=40))
def test_any_bytes_are_decoded_or_have_a_problem(data: bytes) -> None:
    codecs = Codecs(Known(Schema(JSON, "{}")))
    for octets in (data, HEAD.pack(0, 1) + data):
        found = codecs.decode(octets)
        assert found is None or isinstance(found, Decoded)


def test_an_avro_schema_that_another_one_refers_to_is_parsed_first() -> None:
    line = json.dumps(record("Line", a="int"))
    codec = AvroCodec(json.dumps(array("Line")), {"Line": line})
    assert codec.decode(codec.encode([{"a": 1}])) == [{"a": 1}]
    with pytest.raises(SchemaError, match="not a schema of Avro"):
        AvroCodec(json.dumps(array("Line")), {})
