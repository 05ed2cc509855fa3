"""Keys and values by schemas, held against Confluent's own serializers and a real registry."""

from __future__ import annotations

import base64
import datetime as dt
import itertools
import json
import math
import struct
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.schemas.errors import SchemaError
from odradek.schemas.records import Codecs
from odradek.schemas.registry import Registry
from tests.support.registry import RunningRegistry

pytest.importorskip("avro")
pytest.importorskip("grpc_tools")
pytest.importorskip("fastavro")

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

pytestmark = pytest.mark.slow
_numbers = itertools.count()


def logical(kind: str, meaning: str, **more: object) -> dict[str, object]:
    return {"type": kind, "logicalType": meaning, **more}


LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "name", "type": "string"}, {"name": "count", "type": "int"}],
}
TYPES: dict[str, object] = {
    "nothing": "null",
    "flag": "boolean",
    "number": "int",
    "big": "long",
    "ratio": "float",
    "exact": "double",
    "octets": "bytes",
    "text": "string",
    "kind": {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]},
    "digest": {"type": "fixed", "name": "Digest", "size": 4},
    "price": logical("bytes", "decimal", precision=12, scale=3),
    "fee": logical("fixed", "decimal", name="Fee", size=6, precision=12, scale=2),
    "day": logical("int", "date"),
    "time_ms": logical("int", "time-millis"),
    "time_us": logical("long", "time-micros"),
    "at_ms": logical("long", "timestamp-millis"),
    "at_us": logical("long", "timestamp-micros"),
    "id": logical("string", "uuid"),
    "lines": {"type": "array", "items": LINE},
    "labels": {"type": "map", "values": "long"},
    "perhaps": ["null", "string"],
    "choice": ["null", "Line", "boolean", "string", "long"],
    "table": {"type": "map", "values": {"type": "array", "items": ["null", "int"]}},
    "next": ["null", "Order"],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": name, "type": kind} for name, kind in TYPES.items()],
}
# How a reader shows a type in JSON, and how fastavro has it.
CONVERSIONS: dict[str, Callable[[Any], object]] = {
    "octets": base64.b64decode,
    "digest": base64.b64decode,
    "price": Decimal,
    "fee": Decimal,
    "day": dt.date.fromisoformat,
    "time_ms": dt.time.fromisoformat,
    "time_us": dt.time.fromisoformat,
    "at_ms": dt.datetime.fromisoformat,
    "at_us": dt.datetime.fromisoformat,
    "id": uuid.UUID,
}


def base64s(least: int, most: int) -> st.SearchStrategy[str]:
    octets = st.binary(min_size=least, max_size=most)
    return octets.map(lambda one: base64.b64encode(one).decode())


def decimals(digits: int, places: int) -> st.SearchStrategy[str]:
    most = 10**digits - 1
    return st.integers(-most, most).map(lambda one: f"{Decimal(one).scaleb(-places):f}")


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def whole_ms(one: Any) -> str:
    return in_iso(one.replace(microsecond=one.microsecond // 1000 * 1000))


def in_iso(one: Any) -> str:
    text: str = one.isoformat()
    return text.replace("+00:00", "Z")


times = st.datetimes(timezones=st.just(dt.UTC))
lines = st.fixed_dictionaries({"name": st.text(), "count": integers(32)})
plain: Mapping[str, st.SearchStrategy[Any]] = {
    "nothing": st.none(),
    "flag": st.booleans(),
    "number": integers(32),
    "big": integers(64),
    "ratio": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "exact": st.floats(allow_nan=False, allow_infinity=False),
    "octets": base64s(0, 20),
    "text": st.text(),
    "kind": st.sampled_from("ABC"),
    "digest": base64s(4, 4),
    "price": decimals(12, 3),
    "fee": decimals(12, 2),
    "day": st.dates().map(dt.date.isoformat),
    "time_ms": st.times().map(whole_ms),
    "time_us": st.times().map(dt.time.isoformat),
    "at_ms": times.map(whole_ms),
    "at_us": times.map(in_iso),
    "id": st.uuids().map(str),
    "lines": st.lists(lines, max_size=3),
    "labels": st.dictionaries(st.text(), integers(64), max_size=3),
    "perhaps": st.none() | st.text(),
    "choice": st.none() | lines | st.booleans() | st.text() | integers(64),
    "table": st.dictionaries(st.text(), st.lists(st.none() | integers(32)), max_size=2),
}
orders = st.fixed_dictionaries(
    {**plain, "next": st.none() | st.fixed_dictionaries({**plain, "next": st.none()})}
)


def as_datum(shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return an order as fastavro has it."""
    found = {name: CONVERSIONS.get(name, lambda one: one)(one) for name, one in shown.items()}
    found["next"] = None if shown["next"] is None else as_datum(shown["next"])
    return found


@pytest.fixture(scope="module")
def codecs(registry: RunningRegistry) -> Codecs:
    return Codecs(Registry(registry.url))


@pytest.fixture(scope="module")
def client(registry: RunningRegistry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


@pytest.fixture
def context() -> SerializationContext:
    """Return a value of a topic that no other test has: a serializer registers its schema."""
    return SerializationContext(f"codecs-{next(_numbers)}", MessageField.VALUE)


def id_in(octets: bytes) -> int:
    found: int = struct.unpack_from(">bi", octets)[1]
    return found


def test_avro_of_all_types_is_read_and_written_as_fastavro_does(
    codecs: Codecs, client: SchemaRegistryClient, context: SerializationContext
) -> None:
    serialize = AvroSerializer(client, json.dumps(ORDER))
    deserialize = AvroDeserializer(client)

    @given(orders)
    def check(shown: dict[str, Any]) -> None:
        octets = serialize(as_datum(shown), context)
        found = codecs.decode(octets)
        assert found is not None and found.problem is None and found.kind == "AVRO"
        assert found.data == shown
        assert json.loads(json.dumps(found.data, allow_nan=False)) == shown
        encoded = codecs.encode(id_in(octets), shown)
        assert deserialize(encoded, context) == as_datum(shown)

    check()


def test_numbers_that_json_lacks_are_texts(codecs: Codecs, registry: RunningRegistry) -> None:
    number = registry.add("codecs-doubles", {"type": "array", "items": "double"})
    octets = codecs.encode(number, ["nan", "inf", "-inf", 1, 0.5])
    found = codecs.decode(octets)
    assert found is not None and found.data == ["nan", "inf", "-inf", 1.0, 0.5]
    assert math.isnan(struct.unpack_from("<d", octets, 6)[0])


def test_fields_without_data_have_their_defaults(
    codecs: Codecs, registry: RunningRegistry, client: SchemaRegistryClient,
    context: SerializationContext,
) -> None:  # fmt: skip
    fields = [
        {"name": "text", "type": "string", "default": "a"},
        {"name": "ratio", "type": "double", "default": 1},
        {"name": "octets", "type": "bytes", "default": "\u00ff\u0001"},
        {"name": "perhaps", "type": ["null", "int"], "default": None},
        {"name": "day", "type": logical("int", "date"), "default": 3},
        {"name": "at", "type": logical("long", "timestamp-millis"), "default": 5},
        {"name": "price", "type": logical("bytes", "decimal", precision=4, scale=2),
         "default": "\u0001\u0000"},
        {"name": "all", "type": {"type": "array", "items": "bytes"}, "default": ["\u00fe"]},
        {"name": "line", "type": {**LINE, "fields": [
            {"name": "name", "type": "string", "default": "none"},
            {"name": "count", "type": "int"},
        ]}, "default": {"count": 7}},
    ]  # fmt: skip
    schema = {"type": "record", "name": "Defaults", "fields": fields}
    number = registry.add("codecs-defaults", schema)
    found = AvroDeserializer(client)(codecs.encode(number, {}), context)
    assert found == {
        "text": "a", "ratio": 1.0, "octets": b"\xff\x01", "perhaps": None,
        "day": dt.date(1970, 1, 4), "at": dt.datetime(1970, 1, 1, 0, 0, 0, 5000, dt.UTC),
        "price": Decimal("2.56"), "all": [b"\xfe"], "line": {"name": "none", "count": 7},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "data", "problem"),
    [
        ({"type": "int"}, True, "true is no int"),
        ({"type": "int"}, 1 << 40, "not an example"),
        ({"type": "string"}, "\ud800", "surrogates not allowed"),
        (["int", "string"], 1.5, "1.5 is none of int, string"),
        (LINE, {"name": "a"}, "Line needs the field count"),
        (LINE, {"name": "a", "count": 1, "sum": 2}, "Line has no field sum"),
        (TYPES["price"], 1.5, 'a decimal is written as a text: "1.50"'),
        (TYPES["price"], "1.2345", "1.2345 has more than 3 digits behind the point"),
        (TYPES["price"], "1234567890", "1234567890 has more than 12 digits"),
        (TYPES["price"], "1E+999999", "1E+999999 has more than 12 digits"),
        (TYPES["price"], "NaN", "NaN is no decimal"),
    ],
)
def test_data_that_does_not_follow_its_schema_is_refused(
    codecs: Codecs, registry: RunningRegistry, schema: Any, data: object, problem: str
) -> None:
    number = registry.add(f"codecs-refused-{next(_numbers)}", schema)
    with pytest.raises(SchemaError) as caught:
        codecs.encode(number, data)
    assert problem in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        (["int", "boolean"], True),
        (["double", "long"], 5),
        (["double", "long"], 5.0),
        (TYPES["price"], "1.500"),
        (TYPES["price"], "-0.001"),
    ],
)
def test_data_comes_back_as_it_was(
    codecs: Codecs, registry: RunningRegistry, schema: Any, data: object
) -> None:
    number = registry.add(f"codecs-same-{next(_numbers)}", schema)
    found = codecs.decode(codecs.encode(number, data))
    assert found is not None and (found.data, type(found.data)) == (data, type(data))


@pytest.mark.parametrize(
    ("text", "kept"), [("1.5", "1.500"), ("-0", "0.000"), ("1E+2", "100.000"), ("2.5000", "2.500")]
)
def test_a_decimal_has_the_digits_of_its_schema(
    codecs: Codecs, registry: RunningRegistry, text: str, kept: str
) -> None:
    found = codecs.decode(codecs.encode(registry.add("codecs-decimal", TYPES["price"]), text))
    assert found is not None and found.data == kept


def test_a_time_that_python_does_not_have_is_shown_as_its_number(
    codecs: Codecs, registry: RunningRegistry
) -> None:
    number = registry.add("codecs-late", TYPES["at_us"])
    plain_number = registry.add("codecs-long", {"type": "long"})
    octets = codecs.encode(plain_number, (1 << 63) - 1)
    found = codecs.decode(struct.pack(">bi", 0, number) + octets[5:])
    assert found is not None and found.data == (1 << 63) - 1


def test_a_logical_type_that_the_library_does_not_know_is_its_plain_type(
    codecs: Codecs, registry: RunningRegistry
) -> None:
    number = registry.add("codecs-local", logical("long", "local-timestamp-micros"))
    found = codecs.decode(codecs.encode(number, 5))
    assert found is not None and found.data == 5


def test_a_schema_of_avro_may_refer_to_others(
    codecs: Codecs, client: SchemaRegistryClient, registry: RunningRegistry,
    context: SerializationContext,
) -> None:  # fmt: skip
    registry.add("codecs-line", {**LINE, "namespace": "shop"})
    pair = {"type": "record", "name": "Pair", "namespace": "shop",
            "fields": [{"name": "left", "type": "Line"}, {"name": "right", "type": "Line"}]}
    registry.add("codecs-pair", pair, references=[("shop.Line", "codecs-line")])
    whole = {"type": "array", "items": "shop.Pair"}
    references = [SchemaReference("shop.Pair", "codecs-pair", 1)]
    serialize = AvroSerializer(client, Schema(json.dumps(whole), "AVRO", references))
    data = [{"left": {"name": "a", "count": 1}, "right": {"name": "b", "count": 2}}]
    octets = serialize(data, context)
    found = codecs.decode(octets)
    assert found is not None and found.data == data
    assert codecs.encode(id_in(octets), data) == octets


def field(name: str, number: int, kind: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "number": number, "type": kind, "label": 1, **more}


_F = descriptor_pb2.FieldDescriptorProto


def messages() -> dict[str, Any]:
    """Return message classes of three files that Protobuf itself makes."""
    money = descriptor_pb2.FileDescriptorProto(
        name="shop/money.proto", package="shop", syntax="proto3"
    )
    one = money.message_type.add(name="Money")
    one.field.add(**field("units", 1, _F.TYPE_INT64))
    one.field.add(**field("currency", 2, _F.TYPE_STRING))
    file = descriptor_pb2.FileDescriptorProto(
        name="shop/orders.proto", package="shop", syntax="proto3",
        dependency=["shop/money.proto", "google/protobuf/timestamp.proto"],
    )  # fmt: skip
    order = file.message_type.add(name="Order")
    order.field.add(**field("price", 1, _F.TYPE_MESSAGE, type_name=".shop.Money"))
    order.field.add(
        **field("at", 2, _F.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp")
    )
    order.field.add(**field("octets", 3, _F.TYPE_BYTES))
    order.field.add(**{**field("ratios", 4, _F.TYPE_DOUBLE), "label": 3})
    order.field.add(**field("kind", 5, _F.TYPE_ENUM, type_name=".shop.Kind"))
    order.field.add(**field("number", 6, _F.TYPE_SINT32))
    line = order.nested_type.add(name="Line")
    line.field.add(**field("name", 1, _F.TYPE_STRING))
    note = line.nested_type.add(name="Note")
    note.field.add(**field("text", 1, _F.TYPE_STRING))
    other = order.nested_type.add(name="Other")
    other.field.add(**field("flag", 1, _F.TYPE_BOOL))
    last = file.message_type.add(name="Last")
    last.field.add(**field("order", 1, _F.TYPE_MESSAGE, type_name=".shop.Order"))
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NONE", number=0)
    kind.value.add(name="SOME", number=1)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(money)
    pool.Add(file)
    names = ("Money", "Order", "Order.Line", "Order.Line.Note", "Order.Other", "Last")
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))
        for name in names
    }


MESSAGES = messages()
MONEY_TEXT = """
syntax = "proto3";
package shop;
message Money { int64 units = 1; string currency = 2; }
"""
ORDERS_TEXT = """
syntax = "proto3";
package shop;
import "shop/money.proto";
import "google/protobuf/timestamp.proto";
message Order {
  Money price = 1;
  google.protobuf.Timestamp at = 2;
  bytes octets = 3;
  repeated double ratios = 4;
  Kind kind = 5;
  sint32 number = 6;
  message Line { string name = 1; message Note { string text = 1; } }
  message Other { bool flag = 1; }
}
message Last { Order order = 1; }
enum Kind { NONE = 0; SOME = 1; }
"""
order_data = st.fixed_dictionaries(
    {},
    optional={
        "price": st.fixed_dictionaries({}, optional={
            "units": integers(64).filter(bool).map(str), "currency": st.text(min_size=1)}),
        "at": st.integers(0, 4_000_000_000).map(
            lambda s: dt.datetime.fromtimestamp(s, dt.UTC).isoformat().replace("+00:00", "Z")),
        "octets": base64s(1, 9),
        "ratios": st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1),
        "kind": st.just("SOME"),
        "number": integers(32).filter(bool),
    },
)  # fmt: skip


def order_of(data: Mapping[str, Any]) -> Any:
    """Return a message with data, field by field."""
    made = MESSAGES["Order"]()
    if "price" in data:
        made.price.SetInParent()
        made.price.units = int(data["price"].get("units", 0))
        made.price.currency = data["price"].get("currency", "")
    if "at" in data:
        made.at.SetInParent()
        made.at.seconds = int(dt.datetime.fromisoformat(data["at"]).timestamp())
    made.octets = base64.b64decode(data.get("octets", ""))
    made.ratios.extend(data.get("ratios", ()))
    made.kind = 1 if "kind" in data else 0
    made.number = data.get("number", 0)
    return made


def serializer(name: str, client: SchemaRegistryClient) -> ProtobufSerializer:
    return ProtobufSerializer(MESSAGES[name], client, {"use.deprecated.format": False})


def deserializer(name: str) -> ProtobufDeserializer:
    return ProtobufDeserializer(MESSAGES[name], {"use.deprecated.format": False})


def test_protobuf_is_read_and_written_as_its_own_serializer_does(
    codecs: Codecs, client: SchemaRegistryClient, context: SerializationContext,
    registry: RunningRegistry,
) -> None:  # fmt: skip
    # Python's serializer registers descriptors, and Java's the text of files.
    serialize, deserialize = serializer("Order", client), deserializer("Order")
    registry.add("codecs-money", MONEY_TEXT, "PROTOBUF")
    references = [("shop/money.proto", "codecs-money")]
    of_text = registry.add("codecs-orders", ORDERS_TEXT, "PROTOBUF", references)

    @given(order_data)
    def check(data: dict[str, Any]) -> None:
        octets = serialize(order_of(data), context)
        for number in (id_in(octets), of_text):
            found = codecs.decode(struct.pack(">bi", 0, number) + octets[5:])
            assert found is not None and found.problem is None and found.kind == "PROTOBUF"
            assert found.data == data
            encoded = codecs.encode(number, data)
            assert deserialize(encoded, context) == order_of(data)

    check()


@pytest.mark.parametrize(
    ("name", "fields", "data"),
    [
        ("Order", {"number": 3}, {"number": 3}),
        ("Order.Line", {"name": "a"}, {"name": "a"}),
        ("Order.Line.Note", {"text": "b"}, {"text": "b"}),
        ("Order.Other", {"flag": True}, {"flag": True}),
        ("Last", {}, {}),
    ],
)
def test_a_message_within_others_is_found_by_its_indexes(
    codecs: Codecs, client: SchemaRegistryClient, context: SerializationContext, name: str,
    fields: dict[str, Any], data: object,
) -> None:  # fmt: skip
    message = MESSAGES[name](**fields)
    octets = serializer(name, client)(message, context)
    found = codecs.decode(octets)
    assert found is not None and (found.data, found.problem) == (data, None)
    encoded = codecs.encode(id_in(octets), data, f"shop.{name}")
    assert encoded == octets
    assert deserializer(name)(encoded, context) == message


def test_a_message_is_one_of_the_file_itself(codecs: Codecs, registry: RunningRegistry) -> None:
    registry.add("codecs-money", MONEY_TEXT, "PROTOBUF")
    references = [("shop/money.proto", "codecs-money")]
    number = registry.add("codecs-orders", ORDERS_TEXT, "PROTOBUF", references)
    for name in ("shop.Money", "google.protobuf.Timestamp", "shop.Nothing"):
        with pytest.raises(SchemaError, match=f"no message {name}: it has shop.Order, shop.Last"):
            codecs.encode(number, {}, name)
    avro = registry.add("codecs-no-message", {"type": "long"})
    with pytest.raises(SchemaError, match="has no messages: it is not of Protobuf"):
        codecs.encode(avro, 1, "shop.Order")


JSON_SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Thing",
    "type": "object",
    "properties": {"name": {"type": "string"}, "more": {}},
}
json_values = st.recursive(
    st.none() | st.booleans() | integers(64) | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(), one, max_size=3),
    max_leaves=8,
)  # fmt: skip


def test_json_is_read_and_written_as_its_own_serializer_does(
    codecs: Codecs, client: SchemaRegistryClient, context: SerializationContext
) -> None:
    serialize = JSONSerializer(json.dumps(JSON_SCHEMA), client)
    deserialize = JSONDeserializer(json.dumps(JSON_SCHEMA), schema_registry_client=client)

    @given(st.fixed_dictionaries({"name": st.text()}, optional={"more": json_values}))
    def check(data: dict[str, Any]) -> None:
        octets = serialize(data, context)
        found = codecs.decode(octets)
        assert found is not None and (found.kind, found.data) == ("JSON", data)
        assert deserialize(codecs.encode(id_in(octets), data), context) == data

    check()


@pytest.mark.parametrize("text", ["NaN", "[-Infinity]", "1e999", "{", "\xff", "[" * 100_000])
def test_text_that_is_not_json_is_a_problem(
    codecs: Codecs, registry: RunningRegistry, text: str
) -> None:
    number = registry.add("codecs-json", JSON_SCHEMA, "JSON")
    found = codecs.decode(struct.pack(">bi", 0, number) + text.encode("latin-1"))
    assert found is not None and (found.problem or "").startswith("the data is not JSON: ")


@pytest.mark.parametrize("data", ["\ud800", math.nan, math.inf])
def test_data_that_json_cannot_have_is_refused(
    codecs: Codecs, registry: RunningRegistry, data: object
) -> None:
    number = registry.add("codecs-json", JSON_SCHEMA, "JSON")
    with pytest.raises(SchemaError, match="the data is not JSON"):
        codecs.encode(number, data)


def test_a_schema_is_named_by_its_id_or_is_the_latest_of_its_subject(
    codecs: Codecs, registry: RunningRegistry
) -> None:
    first = registry.add("codecs a/b", LINE)
    assert codecs.id_of("codecs a/b") == first == codecs.id_of(str(first))
    fields = [*LINE["fields"], {"name": "more", "type": "int", "default": 0}]
    second = registry.add("codecs a/b", {**LINE, "fields": fields})
    assert codecs.id_of("codecs a/b") == second != first
    with pytest.raises(SchemaError, match="does not know"):
        codecs.id_of("codecs-nothing")


@pytest.mark.parametrize(
    "octets",
    [b"", b"\0\0\0\0", b"\1\0\0\0\1abc", b"{}", b"text", b"\0\xff\xff\xff\xff",
     struct.pack(">q", 5)],
)  # fmt: skip
def test_bytes_without_the_id_of_a_schema_have_no_data(codecs: Codecs, octets: bytes) -> None:
    assert codecs.decode(octets) is None


def test_an_unknown_id_is_a_problem(codecs: Codecs) -> None:
    found = codecs.decode(b"\0\x7f\xff\xff\xff...")
    assert found is not None and found.kind is None
    assert "does not know /schemas/ids/2147483647" in (found.problem or "")
