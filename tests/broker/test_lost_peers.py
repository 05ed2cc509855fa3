"""Requests between brokers over connections that end in the middle."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from odradek.broker.metadata.members import Endpoint
from odradek.broker.peers.connections import Connection
from odradek.broker.transactions.markers import MarkerWriter
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from tests.broker.live import client, create, live, on_uvloop
from tests.broker.transacting import Transactor, kinds, settled


@pytest.mark.parametrize("turns", range(4))
@on_uvloop
async def test_a_request_fails_as_the_connection_does_before_its_end_is_read(turns: int) -> None:
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    endpoint = Endpoint("PLAINTEXT", "127.0.0.1", port, "PLAINTEXT")
    connection = Connection(endpoint, "broker-1", None, None)
    await connection._opened
    assert connection._writer is not None
    connection._writer.transport.abort()
    for _ in range(turns):  # in one of them, its end is read
        await asyncio.sleep(0)
    with pytest.raises(ConnectionError):
        await connection.exchange(
            AddPartitionsToTxnRequest(transactions=[]), 5, AddPartitionsToTxnResponse
        )
    await ended.wait()
    server.close()


@on_uvloop
async def test_a_transaction_ends_though_a_bug_keeps_its_markers_from_being_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write, failures = MarkerWriter.write, iter([RuntimeError("a bug"), OSError("another")])

    async def write_in_the_end(self: MarkerWriter, *given: Any) -> Any:
        failure = next(failures, None)
        if failure is not None:
            raise failure
        return await write(self, *given)

    async with live(tmp_path) as broker, client(broker) as one:
        log = (await create(broker, "t", 1)).log(0)
        producer = Transactor(one)
        assert not await producer.init()
        assert not await producer.produce("t", 0, b"a")
        with mock.patch.object(MarkerWriter, "write", write_in_the_end):
            assert not await producer.end(commit=True)
            await settled(broker)
        assert kinds(log) == ["data", "commit"]
        assert not await producer.produce("t", 0, b"b")
        assert not await producer.end(commit=False)
        await settled(broker)
        assert kinds(log) == ["data", "commit", "data", "abort"]
    assert caplog.text.count("could not write markers") == 2
