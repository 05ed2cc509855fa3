"""The API table says what the declarations and the handlers can do, and nothing else."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from odradek.broker.api_table import APIS, Api
from odradek.broker.apis import load
from odradek.broker.reference import markdown
from odradek.protocol.messages import message_classes
from odradek.protocol.schema import fields_of, info_of
from tests.support.each import of_each

# Advertised below what is served, as Kafka 4 does for librdkafka's sake (KAFKA-18659).
ADVERTISED_FROM = {"Produce": 0}


@of_each(APIS, lambda api: api.name)
def test_an_api_is_advertised_in_the_versions_of_its_declaration(api: Api) -> None:
    request, response = message_classes(api.name)
    for info in (info_of(request), info_of(response)):
        assert info.key == api.key
        assert info.versions.first == api.first or ADVERTISED_FROM.get(api.name) == api.first
        assert info.versions.last == api.last


@of_each(APIS, lambda api: api.name)
def test_an_api_has_a_handler(api: Api) -> None:
    assert callable(load(api).handle)


@of_each(APIS, lambda api: api.name)
def test_a_handler_says_how_its_versions_differ(api: Api) -> None:
    """Its docstring names each version that adds a field, ends one, or is the first flexible."""
    handler = load(api)
    text = sys.modules[handler.handle.__module__].__doc__ or ""
    note = text[text.index("Version") :].replace("\n", " ")
    is_only = handler.first == api.last
    assert f"Version {api.last} only." in note if is_only else (
        f"Versions {handler.first} to {api.last}." in note
    )
    named = {int(one) for one in re.findall(r"\bv(\d+)\b", text)}
    assert named <= set(range(handler.first, api.last + 1))
    changes = {info_of(handler.request).flexible.first}
    for message in message_classes(api.name):
        changes.update(_changes(message))
    assert {one for one in changes if handler.first < one <= api.last} <= named


def _changes(declared: type) -> Iterator[int]:
    for field in fields_of(declared):
        yield field.spec.versions.first
        yield field.spec.versions.last + 1
        if field.struct is not None:
            yield from _changes(field.struct)


def test_the_page_of_apis_is_fresh() -> None:
    page = Path(__file__).parent.parent.parent / "docs" / "apis.md"
    assert page.read_text() == markdown(), "run `make docs`"
