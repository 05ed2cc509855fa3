"""Every declaration against Apache Kafka's own specs, field by field and version by version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import message_classes, snake_case
from odradek.protocol.messages.metadata_records import (
    ABORT_TRANSACTION,
    BEGIN_TRANSACTION,
    END_TRANSACTION,
    PASSED_OVER,
)
from odradek.protocol.schema import Versions, field, fields_of, info_of, message, struct
from odradek.protocol.wire import (  # noqa: F401 - the annotations below are text
    ZERO_UUID,
    boolean,
    int8,
    int32,
    string,
)
from tests.protocol.kafka_jars import Spec, parse_spec, require_jars, run_java, specs
from tests.protocol.strategies import MESSAGES, MODULES
from tests.support.each import of_each

_ZEROS: dict[str, object] = {
    "string": "", "bytes": b"", "records": b"", "uuid": ZERO_UUID, "float64": 0.0,
}  # fmt: skip

# Where Kafka has two structs of one name in a module of ours, one has a name of its own.
_NAMED_APART = {
    "TargetTaskIds": "TaskIds",
    "RequestedPartitionData": "PartitionData",
    "RequestedTopicData": "TopicData",
    "AlteredEntryData": "EntryData",
}


@dataclass(frozen=True)
class Shape:
    """A field at one version, in the same form for a declaration and for a spec."""

    name: str
    type: str
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: str
    fields: tuple[Shape, ...]


def declared_shapes(cls: type, version: int) -> tuple[Shape, ...]:
    """Describe a declaration at a version, in wire order."""
    shapes = []
    for made in fields_of(cls):
        if version not in made.spec.versions:
            continue
        inner = made.struct and not made.is_array
        name = made.struct.__name__ if made.struct else getattr(made.primitive, "name", "")
        shapes.append(
            Shape(
                made.name,
                _NAMED_APART.get(name, name),
                made.is_array,
                made.is_nullable(version),
                made.spec.tag,
                "a struct of defaults" if inner and made.default() else repr(made.default()),
                declared_shapes(made.struct, version) if made.struct else (),
            )
        )
    return in_wire_order(shapes)


def specified_shapes(spec: Spec, version: int) -> tuple[Shape, ...]:
    """Describe a spec at a version, in wire order."""
    common = {made["name"]: made["fields"] for made in spec.get("commonStructs", [])}
    return _shapes_of_fields(spec["fields"], version, common)


def _shapes_of_fields(
    fields: list[Spec], version: int, common: dict[str, list[Spec]]
) -> tuple[Shape, ...]:
    shapes = []
    for made in fields:
        assert "flexibleVersions" not in made, "no declaration can say that"
        # What is tagged in every version that has it is said once in some specs.
        if version not in Versions.parse(made.get("versions") or made["taggedVersions"]):
            continue
        kind = made["type"].removeprefix("[]")
        inner = made.get("fields") or common.get(kind, [])
        is_tagged = version in Versions.parse(made.get("taggedVersions", "none"))
        shapes.append(
            Shape(
                snake_case(made["name"]),
                kind,
                made["type"].startswith("[]"),
                version in Versions.parse(made.get("nullableVersions", "none")),
                made["tag"] if is_tagged else None,
                _specified_default(made),
                _shapes_of_fields(inner, version, common),
            )
        )
    return in_wire_order(shapes)


def _specified_default(made: Spec) -> str:
    kind, text = made["type"], str(made.get("default", ""))
    if text == "null":
        return "None"
    if kind.startswith("[]"):
        return "[]"
    if kind[0].isupper():
        return "a struct of defaults"
    if kind == "bool":
        return repr(text == "true")
    if "int" in kind:
        return repr(int(text or "0", 0))
    return repr(text or _ZEROS[kind])


def in_wire_order(shapes: list[Shape]) -> tuple[Shape, ...]:
    """Put tagged fields last, by tag."""
    return tuple(sorted(shapes, key=lambda shape: -1 if shape.tag is None else shape.tag))


def spec_of(cls: type, version: int) -> tuple[Spec, int]:
    """Return the spec of a message, and the version that ours is called in it.

    Keys of the coordinator's records have a spec for each kind, whose number our version is.
    """
    if "Key" not in cls.__name__:
        return specs()[cls.__name__], version
    for spec in specs().values():
        kind = spec["type"] == "coordinator-key" and spec["apiKey"] == version
        if kind and spec["name"].removeprefix("Legacy") == cls.__name__:
            return spec, 0
    raise AssertionError(f"Kafka has no {cls.__name__} of kind {version}")


def is_of_an_api(cls: type) -> bool:
    return cls.__name__.endswith(("Request", "Response"))


@pytest.mark.kafka
@of_each(MESSAGES)
def test_the_fields_of_each_version_are_kafkas(cls: type) -> None:
    require_jars()
    for version in info_of(cls).versions:
        assert declared_shapes(cls, version) == specified_shapes(*spec_of(cls, version)), version


@pytest.mark.kafka
@of_each(MESSAGES)
def test_the_same_versions_are_flexible(cls: type) -> None:
    require_jars()
    for version in info_of(cls).versions:
        spec, version_there = spec_of(cls, version)
        flexible = version_there in Versions.parse(spec["flexibleVersions"])
        assert (version in info_of(cls).flexible) == flexible, version


@pytest.mark.kafka
@of_each([cls for cls in MESSAGES if info_of(cls).key >= 0])
def test_every_message_with_a_key_has_kafkas_key(cls: type) -> None:
    require_jars()
    assert info_of(cls).key == specs()[cls.__name__]["apiKey"]


@of_each([cls for cls in MESSAGES if is_of_an_api(cls)])
def test_requests_and_responses_have_a_key(cls: type) -> None:
    assert info_of(cls).key >= 0


@pytest.mark.kafka
def test_each_record_of_the_metadata_log_is_declared_or_passed_over() -> None:
    require_jars()
    declared = {info_of(cls).key for cls in message_classes("MetadataRecords")}
    known = [*declared, *PASSED_OVER, BEGIN_TRANSACTION, END_TRANSACTION, ABORT_TRANSACTION]
    theirs = {
        spec["apiKey"]: spec["name"] for spec in specs().values() if spec["type"] == "metadata"
    }
    assert sorted(known) == sorted(theirs)
    assert PASSED_OVER.items() <= theirs.items()


@pytest.mark.kafka
def test_each_api_is_declared_at_every_version_that_kafka_advertises() -> None:
    require_jars()
    advertised = {name: (int(a), int(b)) for _, name, a, b in run_java("ApisOracle.java")}
    declared = {
        cls.__name__: (info_of(cls).versions.first, info_of(cls).versions.last)
        for cls in MESSAGES
        if is_of_an_api(cls)
    }
    expected = {
        name + side: versions
        for name, versions in advertised.items()
        if snake_case(name) in MODULES
        for side in ("Request", "Response")
    }
    assert declared == expected


@pytest.mark.kafka
@of_each([cls for cls in MESSAGES if not is_of_an_api(cls)])
def test_stored_data_is_declared_at_every_version(cls: type) -> None:
    require_jars()
    versions = info_of(cls).versions
    if cls.__name__ in specs() and "Key" not in cls.__name__:
        assert versions == Versions.parse(specs()[cls.__name__]["validVersions"])
        return
    kinds = {
        spec["apiKey"]
        for spec in specs().values()
        if spec["name"].removeprefix("Legacy") == cls.__name__
    }
    assert set(versions) == kinds


@pytest.mark.kafka
def test_the_error_codes_are_kafkas() -> None:
    require_jars()
    theirs = {name: (int(a), b == "true") for a, name, b in run_java("ErrorsOracle.java")}
    assert {code.name: (code.value, code.retriable) for code in ErrorCode} == theirs


def test_every_error_has_a_sentence_of_its_own() -> None:
    sentences = [code.sentence for code in ErrorCode]
    assert len(set(sentences)) == len(sentences)
    assert all(sentence.endswith(".") for sentence in sentences)


# --- The comparison itself: it must see every kind of mistake. ------------------------------

LAMP = parse_spec(
    """
    // A message of no use.
    { "type": "data", "name": "Lamp", "validVersions": "0-2", "flexibleVersions": "2+",
      "fields": [
        { "name": "Name", "type": "string", "versions": "0+", "nullableVersions": "1+" },
        // Version 1 adds the watts.
        { "name": "WattsMax", "type": "int32", "versions": "1+", "default": "-1" }, // a note
        { "name": "Colours", "type": "[]Colour", "versions": "0+", "fields": [
          { "name": "Name", "type": "string", "versions": "0+" } ]},
        { "name": "Broken", "type": "bool", "versions": "0+", "default": "false" },
        { "name": "Maker", "type": "string", "versions": "2+", "nullableVersions": "2+",
          "taggedVersions": "2+", "tag": 0, "default": "null" },
        { "name": "Url", "type": "string", "versions": "2+", "taggedVersions": "2+", "tag": 1 }
      ]
    }
    """
)


@struct
class Colour:
    """What the spec says."""

    name: string = field()


@struct
class Shade:
    """What it does not say."""

    name: string


@struct
class Tint:
    """Nor this; it goes by the right name in the test."""

    name: string | None


Tint.__name__ = "Colour"

Declaration = dict[str, tuple[str, Any]]


def lamp() -> Declaration:
    """Return the right declaration: annotation and field() by name."""
    return {
        "name": ("string | None", field(nullable="1+")),
        "watts_max": ("int32", field("1+", default=-1)),
        "colours": ("list[Colour]", field()),
        "broken": ("boolean", field()),
        "maker": ("string | None", field("2+", tag=0, default=None)),
        "url": ("string", field("2+", tag=1)),
    }


def without(name: str) -> Callable[[Declaration], Declaration]:
    return lambda right: {key: value for key, value in right.items() if key != name}


def reordered(*names: str) -> Callable[[Declaration], Declaration]:
    return lambda right: {name: right[name] for name in (*names, *right) if name in right}


def changed(name: str, annotation: str, spec: Any) -> Callable[[Declaration], Declaration]:
    return lambda right: right | {name: (annotation, spec)}


def renamed(old: str, new: str) -> Callable[[Declaration], Declaration]:
    return lambda right: {new if key == old else key: value for key, value in right.items()}


MISTAKES: dict[str, Callable[[Declaration], Declaration]] = {
    "a field is missing": without("broken"),
    "the last tagged field is missing": without("url"),
    "fields are swapped": reordered("watts_max", "name"),
    "a field comes too late": changed("watts_max", "int32", field("2+", default=-1)),
    "a field comes too early": changed("watts_max", "int32", field(default=-1)),
    "a field goes too early": changed("watts_max", "int32", field("1", default=-1)),
    "a type is wrong": changed("watts_max", "int8", field("1+", default=-1)),
    "a default is wrong": changed("watts_max", "int32", field("1+")),
    "a field is never null": changed("name", "string", field()),
    "a field is null too early": changed("name", "string | None", field()),
    "a field is null too late": changed("name", "string | None", field(nullable="2+")),
    "a field is no array": changed("colours", "Colour", field()),
    "a struct has another name": changed("colours", "list[Shade]", field()),
    "a struct has other fields": changed("colours", "list[Tint]", field()),
    "a tag is wrong": changed("maker", "string | None", field("2+", tag=2, default=None)),
    "a field is not tagged": changed("maker", "string | None", field("2+", default=None)),
    "a field is tagged": changed("broken", "boolean", field(tag=7)),
    "a name is wrong": renamed("url", "uri"),
    "a field is made up": changed("price", "int32", field()),
}


def declare(declaration: Declaration) -> type:
    namespace: dict[str, Any] = {name: spec for name, (_, spec) in declaration.items()}
    namespace["__annotations__"] = {name: kind for name, (kind, _) in declaration.items()}
    made = type("Lamp", (), {"__module__": __name__, **namespace})
    return message(versions="0-2", flexible="2+")(made)


def agrees_at(cls: type, version: int) -> bool:
    return declared_shapes(cls, version) == specified_shapes(LAMP, version)


def test_the_comparison_accepts_the_right_declaration() -> None:
    cls = declare(lamp())
    assert all(agrees_at(cls, version) for version in (0, 1, 2))


def test_the_order_of_tagged_fields_in_a_declaration_does_not_matter() -> None:
    cls = declare(reordered("url", "maker")(lamp()))
    assert all(agrees_at(cls, version) for version in (0, 1, 2))


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_the_comparison_sees_a_mistake(mistake: Callable[[Declaration], Declaration]) -> None:
    cls = declare(mistake(lamp()))
    assert not all(agrees_at(cls, version) for version in (0, 1, 2))
