"""Keys and values by the schemas of a registry, over HTTP and on the page."""

from __future__ import annotations

import json
import struct
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("avro", reason="needs the extra console")
pytest.importorskip("grpc_tools", reason="needs the extra console")
pytest.importorskip("cel_expr_python", reason="needs the extra console")

from confluent_kafka import Producer
from playwright.sync_api import Page, expect

from odradek.schemas.records import Codecs
from odradek.schemas.registry import Registry
from tests.page.conftest import IDLE, Service
from tests.page.test_page import expect_usable, open_at
from tests.support.registry import RunningRegistry

pytestmark = pytest.mark.slow

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "customer", "type": "string"},
        {"name": "cents", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
PROTO = 'syntax = "proto3"; package shop; message Price { int32 cents = 1; }'
ANY = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}


@pytest.fixture
def service(tmp_path: Path, registry: RunningRegistry) -> Iterator[Service]:
    """A broker that asks the registry."""
    running = Service(tmp_path, {**IDLE, "odradek.schema.registry.url": registry.url})
    running.start()
    yield running
    running.stop()
    assert "Traceback" not in running.log_text()


@pytest.fixture
def ids(registry: RunningRegistry) -> dict[str, int]:
    return {
        "avro": registry.add("page-avro", ORDER),
        "proto": registry.add("page-proto", PROTO, "PROTOBUF"),
        "json": registry.add("page-json", ANY, "JSON"),
    }


@pytest.fixture
def filled(service: Service, registry: RunningRegistry, ids: dict[str, int]) -> Service:
    """The broker, with a record of each kind of schema and some that follow none."""
    encode = Codecs(Registry(registry.url)).encode
    service.create("orders", cleanup_policy="delete")
    order = encode(ids["avro"], {"customer": "Ada", "cents": 1050})
    producer = Producer({"bootstrap.servers": service.bootstrap, "linger.ms": 0})
    for key, value in (
        (b"o1", order),
        (encode(ids["json"], {"id": 7}), encode(ids["proto"], {"cents": 99})),
        (b"o3", encode(ids["json"], {"customer": "Grace", "cents": 5})),
        (b"torn", order[:-3]),
        (b"unknown", struct.pack(">bi", 0, 999_999) + b"x"),
        (b"plain", b"\x00\xff"),
        (b"gone", None),
    ):
        producer.produce("orders", value, key)
        assert producer.flush(20) == 0
    return service


def ask(service: Service, **query: str) -> Any:
    address = f"{service.http}/api/records?{urllib.parse.urlencode({'topic': 'orders', **query})}"
    with urllib.request.urlopen(address, timeout=60) as response:
        return json.load(response)


def test_records_have_their_data_beside_their_bytes(
    filled: Service, ids: dict[str, int]
) -> None:
    records = ask(filled)["records"][::-1]
    schemas = [one["value"] and one["value"].get("schema") for one in records]
    assert schemas[:3] == [
        {"id": ids["avro"], "kind": "AVRO",
         "data": {"customer": "Ada", "cents": 1050, "note": None}},
        {"id": ids["proto"], "kind": "PROTOBUF", "data": {"cents": 99}},
        {"id": ids["json"], "kind": "JSON", "data": {"customer": "Grace", "cents": 5}},
    ]  # fmt: skip
    assert records[1]["key"]["schema"]["data"] == {"id": 7}
    assert "schema" not in records[0]["key"]
    assert schemas[3]["id"] == ids["avro"] and "does not follow" in schemas[3]["problem"]
    assert schemas[4]["id"] == 999_999 and "does not know" in schemas[4]["problem"]
    assert schemas[5:] == [None, None]
    assert bytes.fromhex(records[0]["value"]["hex"])[:5] == struct.pack(">bi", 0, ids["avro"])


def test_a_filter_uses_the_fields_of_a_schema(filled: Service) -> None:
    found = ask(filled, filter="value.cents < 100 && !has(value.note)")
    assert [one["offset"] for one in found["records"]] == [2, 1]
    # Those that follow no schema fail, and so does null.
    assert found["filter"]["failed"] == 4
    assert [one["offset"] for one in ask(filled, filter="key.id == 7")["records"]] == [1]


def test_a_registry_that_is_away_leaves_the_bytes(
    filled: Service, registry: RunningRegistry
) -> None:
    filled.stop()
    filled.settings = {**filled.settings, "odradek.schema.registry.url": "http://127.0.0.1:1"}
    filled.start()
    records = ask(filled)["records"]
    assert len(records) == 7
    problem = records[-1]["value"]["schema"]["problem"]
    assert problem.startswith("the schema registry http://127.0.0.1:1 does not answer: ")
    assert "text" in records[-1]["value"] or "hex" in records[-1]["value"]


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_shows_data_or_why_there_is_none(
    filled: Service, page: Page, width: int, ids: dict[str, int]
) -> None:
    open_at(page, "topic/orders/records", "orders")
    page.set_viewport_size({"width": width, "height": 900})
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(7)
    order = rows.filter(has_text="o1")
    expect(order).to_contain_text('{"customer":"Ada","cents":1050,"note":null}')
    order.locator("summary").click()
    expect(order).to_contain_text(f"By schema {ids['avro']}, Avro.")
    expect(rows.filter(has_text='{"id":7}')).to_contain_text('{"cents":99}')
    unknown = rows.filter(has_text="unknown")
    unknown.locator("summary").click()
    expect(unknown).to_contain_text("Not by schema 999999: the schema registry does not know")
    page.get_by_role("combobox", name="Show values").select_option("hex")
    expect(rows.filter(has_text="o3")).to_contain_text("00 00 00 00")
    expect_usable(page, "records by schemas")
