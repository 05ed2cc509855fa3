"""Host names of quotas: names that take long hold up neither addresses nor anybody else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from odradek.broker.hosts import addresses
from odradek.broker.hosts import names as host_names
from odradek.broker.hosts.names import HostNames
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from tests.broker.live import PATIENCE_S, client, live, on_uvloop, until


class Network:
    """Servers of names that answer once they are let go."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers = threading.Event()

    def resolve(self, host: str) -> list[str]:
        """Stand in for addresses.resolve."""
        self.asked.append(host)
        assert self.answers.wait(PATIENCE_S)
        return [f"192.0.2.{len(self.asked)}"]


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network()
    with mock.patch.object(addresses, "resolve", made.resolve):
        yield made
        made.answers.set()


def of_hosts(*hosts: str) -> AlterClientQuotasRequest:
    entries = [
        EntryData(
            entity=[EntityData(entity_type="ip", entity_name=host)],
            ops=[OpData(key="connection_creation_rate", value=9.0, remove=False)],
        )
        for host in hosts
    ]
    return AlterClientQuotasRequest(entries=entries, validate_only=False)


@on_uvloop
async def test_addresses_wait_for_no_name(network: Network) -> None:
    names = HostNames()
    slow = [asyncio.ensure_future(names.resolve([f"slow{n}", "more"])) for n in range(20)]
    await until(lambda: len(network.asked) == 2)  # both threads
    for address in ("192.0.2.7", "::1"):
        assert await names.resolve([address]) == {address: [address]}
    # What else works in threads goes on, however many requests wait.
    assert await asyncio.get_running_loop().run_in_executor(None, int, "7") == 7
    assert not any(one.done() for one in slow) and len(network.asked) == 2
    network.answers.set()
    found = await asyncio.gather(*slow)
    assert all(len(one) == 2 and all(one.values()) for one in found)


@on_uvloop
async def test_names_whose_turn_does_not_come_in_time_are_unknown(network: Network) -> None:
    with mock.patch.object(host_names, "PATIENCE_S", 0.0):
        found = await HostNames().resolve([f"name{number}" for number in range(5_000)])
    assert network.asked == [] and not any(found.values())


@on_uvloop
async def test_a_request_of_many_names_is_answered_for_each(
    tmp_path: Path, network: Network
) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        with mock.patch.object(host_names, "PATIENCE_S", 0.0):
            hosts = [f"name{number}" for number in range(5_000)]
            answered = await one.ask(of_hosts(*hosts, "192.0.2.7"), version=1)
        codes = {one.entity[0].entity_name: one.error_code for one in answered.entries}
        assert codes == {**dict.fromkeys(hosts, ErrorCode.INVALID_REQUEST), "192.0.2.7": 0}
        messages = {one.entity[0].entity_name: one.error_message for one in answered.entries}
        assert messages["name0"] == "name0 is not a valid IP or resolvable host."


@on_uvloop
async def test_texts_that_cannot_be_names_are_refused_like_names_that_nobody_knows(
    tmp_path: Path,
) -> None:
    hosts = ["a..b", "x" * 64, "y." * 200, "z" * 30_000, "nul\0", "[", "caf\u00e9..", "\ud7ff"]
    async with live(tmp_path) as broker, client(broker) as one:
        answered = await one.ask(of_hosts(*hosts), version=1)
        codes = {entry.entity[0].entity_name: entry.error_code for entry in answered.entries}
        assert codes == dict.fromkeys(hosts, ErrorCode.INVALID_REQUEST)
