"""The API table says what the declarations and the handlers can do, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.broker.api_table import APIS, Api
from odradek.broker.apis import load
from odradek.broker.reference import markdown
from odradek.protocol.messages import message_classes
from odradek.protocol.schema import info_of

# Advertised below what is served, as Kafka 4 does for librdkafka's sake (KAFKA-18659).
ADVERTISED_FROM = {"Produce": 0}


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_an_api_is_advertised_in_the_versions_of_its_declaration(api: Api) -> None:
    request, response = message_classes(api.name)
    for info in (info_of(request), info_of(response)):
        assert info.key == api.key
        assert info.versions.first == api.first or ADVERTISED_FROM.get(api.name) == api.first
        assert info.versions.last == api.last


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_an_api_has_a_handler(api: Api) -> None:
    assert callable(load(api).handle)


def test_the_page_of_apis_is_fresh() -> None:
    page = Path(__file__).parent.parent.parent / "docs" / "apis.md"
    assert page.read_text() == markdown(), "run `make docs`"
