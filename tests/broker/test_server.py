"""Listeners and limits: who may connect, to what, and what clients are told."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from odradek.broker.composition import Broker
from odradek.broker.hosts import addresses
from odradek.broker.hosts.addresses import AddressError
from odradek.broker.metadata.store import ResourceType
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from tests.broker.live import Client, client, live, on_uvloop, pass_turns, until
from tests.support.requests import altering

HAS_IPV6 = socket.has_ipv6 and bool(addresses.resolve("::1"))
needs_ipv6 = pytest.mark.skipif(not HAS_IPV6, reason="this machine has no IPv6")


async def served(one: Client) -> bool:
    """Return whether a request is answered."""
    response = await one.ask(ApiVersionsRequest(), version=0)
    return bool(response.api_keys)


async def told(one: Client) -> tuple[str, int]:
    """Return the address that Metadata tells clients to connect to."""
    response = await one.ask(
        MetadataRequest(topics=[], allow_auto_topic_creation=False), version=9
    )
    (broker,) = response.brokers
    return broker.host, broker.port


# --- addresses --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "plain", "java"),
    [
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("::1", "::1", "0:0:0:0:0:0:0:1"),
        ("::ffff:10.0.0.7", "10.0.0.7", "10.0.0.7"),
        ("fe80::1:2%eth0", "fe80::1:2", "fe80:0:0:0:0:0:1:2"),
    ],
)
def test_addresses_are_written_as_java_does(address: str, plain: str, java: str) -> None:
    assert addresses.plain_address(address) == plain
    assert addresses.java_address(plain) == java


def test_a_machine_can_be_reached_by_its_own_name() -> None:
    assert addresses.resolve(addresses.own_name())


def test_an_address_in_use_is_refused_with_its_name() -> None:
    (taken,) = addresses.bind("127.0.0.1", 0)
    with taken:
        addresses.listen(taken, 1)
        port = taken.getsockname()[1]
        with pytest.raises(AddressError, match=f"cannot listen on 127.0.0.1:{port}: Address"):
            addresses.bind("127.0.0.1", port)


def test_an_unknown_host_is_refused_with_its_name() -> None:
    with pytest.raises(AddressError, match=r"cannot listen on host\.invalid:0: "):
        addresses.bind("host.invalid", 0)


# --- listeners --------------------------------------------------------------------------------


@on_uvloop
async def test_a_port_that_the_system_chose_is_announced_to_clients(tmp_path: Path) -> None:
    settings = {"advertised.listeners": "PLAINTEXT://broker.example:0"}
    async with live(tmp_path, settings) as broker, client(broker) as one:
        port = broker.server.listeners[0].port
        assert port > 0
        assert await told(one) == ("broker.example", port)


@on_uvloop
async def test_each_listener_announces_its_own_address(tmp_path: Path) -> None:
    settings = {
        "listeners": "IN://127.0.0.1:0,OUT://127.0.0.1:0,SILENT://127.0.0.1:0",
        "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT,SILENT:PLAINTEXT",
        "advertised.listeners": "OUT://outside.example:19092,IN://inside.example:0",
    }
    async with live(tmp_path, settings) as broker:
        listeners = broker.server.listeners
        expected = [
            ("inside.example", listeners[0].port),
            ("outside.example", 19092),
            ("127.0.0.1", listeners[2].port),  # not advertised: as it is bound
        ]
        for number, address in enumerate(expected):
            async with client(broker, listener=number) as one:
                assert await told(one) == address


@on_uvloop
async def test_all_interfaces_are_one_port_and_tell_the_machines_name(tmp_path: Path) -> None:
    async with live(tmp_path, {"listeners": "PLAINTEXT://:0"}) as broker:
        async with client(broker) as one:
            port = broker.server.listeners[0].port
            assert await told(one) == (addresses.own_name(), port)
            (connection,) = broker.server.connections
            assert connection.client_host == "/127.0.0.1"
            assert connection.peer.startswith("127.0.0.1:")
        if HAS_IPV6:
            async with client(broker, host="::1") as one:
                assert await served(one)


@needs_ipv6
@on_uvloop
async def test_an_ipv6_listener_is_served(tmp_path: Path) -> None:
    settings = {"listeners": "PLAINTEXT://[::1]:0"}
    async with live(tmp_path, settings) as broker, client(broker, host="::1") as one:
        assert await told(one) == ("::1", broker.server.listeners[0].port)
        (connection,) = broker.server.connections
        assert connection.client_host == "/0:0:0:0:0:0:0:1"
        assert connection.peer.startswith("[::1]:")


@on_uvloop
async def test_a_host_name_is_bound_at_all_its_addresses(tmp_path: Path) -> None:
    async with live(tmp_path, {"listeners": "PLAINTEXT://localhost:0"}) as broker:
        for address in addresses.resolve("localhost"):
            if ":" not in address or HAS_IPV6:
                async with client(broker, host=address) as one:
                    assert (await told(one))[0] == "localhost"


# --- limits -----------------------------------------------------------------------------------


async def reconfigure(one: Client, name: str, value: str) -> None:
    """Change a setting of the running broker as kafka-configs does."""
    response = await one.ask(altering("", {name: value}, ResourceType.BROKER), version=1)
    assert not response.responses[0].error_code, response.responses[0].error_message


@asynccontextmanager
async def clients(broker: Broker, count: int) -> AsyncIterator[list[Client]]:
    """Connect several clients, one after the other."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(client(broker)) for _ in range(count)]


@on_uvloop
async def test_a_connection_too_many_waits_for_its_turn(tmp_path: Path) -> None:
    async with live(tmp_path, {"max.connections": "2"}) as broker, clients(broker, 4) as all_four:
        first, second, third, fourth = all_four
        assert await served(first)
        assert await served(second)
        answer = asyncio.ensure_future(served(third))
        await pass_turns()
        assert not answer.done()
        first.close()
        assert await answer
        assert len(broker.server.connections) == 2
        answer = asyncio.ensure_future(served(fourth))
        await reconfigure(second, "max.connections", "3")
        assert await answer


TWO_LISTENERS = {
    "listeners": "A://127.0.0.1:0,B://127.0.0.1:0",
    "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
    "inter.broker.listener.name": "A",
}


@on_uvloop
async def test_a_listener_has_limits_of_its_own(tmp_path: Path) -> None:
    settings = {
        **TWO_LISTENERS,
        "max.connections": "50",
        "listener.name.b.max.connections": "1",
        "listener.name.a.max.connection.creation.rate": "0",
    }
    async with (
        live(tmp_path, settings) as broker,
        client(broker, listener=1) as one,
        client(broker, listener=1) as other,
        client(broker, listener=0) as shut_out,
    ):
        assert await served(one)
        waiting = [asyncio.ensure_future(served(two)) for two in (other, shut_out)]
        await pass_turns()
        assert not any(answer.done() for answer in waiting)
        await reconfigure(one, "listener.name.b.max.connections", "2")
        assert await waiting[0]
        await pass_turns()
        assert not waiting[1].done()
        await reconfigure(one, "listener.name.a.max.connection.creation.rate", "10")
        assert await waiting[1]
        assert dict(broker.server.accepted) == {"A": 1, "B": 2}


@on_uvloop
async def test_connections_are_made_no_faster_than_allowed(tmp_path: Path) -> None:
    settings = {"max.connection.creation.rate": "1"}
    async with live(tmp_path, settings) as broker, clients(broker, 4) as all_four:
        first, second, third, fourth = all_four  # a second's may come at once
        assert await served(first)
        assert await served(second)
        answer = asyncio.ensure_future(served(fourth))
        await pass_turns()
        assert not answer.done()
        await reconfigure(second, "max.connection.creation.rate", "1000")
        assert await answer
        assert await served(third)


@on_uvloop
async def test_an_address_with_too_many_connections_is_turned_away(tmp_path: Path) -> None:
    settings = {"max.connections.per.ip": "2"}
    async with live(tmp_path, settings) as broker, clients(broker, 3) as (first, second, third):
        assert await served(first)
        assert await served(second)
        assert await third.is_closed()
        second.close()
        await until(lambda: len(broker.server.connections) == 1)
        async with client(broker) as fourth:
            assert await served(fourth)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_address_may_have_a_limit_of_its_own(tmp_path: Path, host: str) -> None:
    @on_uvloop
    async def main() -> None:
        settings = {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": f"{host}:1"}
        async with live(tmp_path, settings) as broker, clients(broker, 2) as (first, second):
            assert await served(first)
            assert await second.is_closed()
            await reconfigure(first, "max.connections.per.ip.overrides", f"{host}:2")
            async with client(broker) as third:
                assert await served(third)

    main()


@on_uvloop
async def test_a_broker_out_of_descriptors_goes_on_when_there_are_some(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with live(tmp_path) as broker:
        loop = asyncio.get_running_loop()
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        with socket.socket() as one:
            one.setblocking(False)
            used = one.fileno()
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, before[1]))
            taken = []
            try:
                with contextlib.suppress(OSError):
                    while True:
                        taken.append(Path("/dev/null").open("rb"))  # noqa: ASYNC230, SIM115
                await loop.sock_connect(one, ("127.0.0.1", broker.server.listeners[0].port))
                await until(lambda: "Too many open files" in caplog.text)
            finally:
                for file in taken:
                    file.close()
                resource.setrlimit(resource.RLIMIT_NOFILE, before)
            await until(lambda: broker.server.connections)
