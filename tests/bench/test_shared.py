"""The benchmark of shared topics runs with small loads; its way to the servers keeps all bytes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench.servers import cloud
from bench.shared.questions import QUESTIONS
from bench.shared.stage import running
from tests.support.servers import running_postgresql, running_s3_server


@pytest.mark.slow
@pytest.mark.parametrize("name", ["small", "rate", "kills"])
def test_a_question_about_shared_topics_is_answered(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    question = QUESTIONS[name]
    with running(question.brokers, is_delayed=False, has_files=True, settings={}) as stage:
        question.ask(stage, 0.5, 1)
    shown = capsys.readouterr().out
    assert "p50" in shown
    assert name != "kills" or " 0 lost, 0 twice" in shown


@pytest.mark.slow
def test_shared_topics_work_with_the_delays_of_a_cloud(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with running_postgresql(), running_s3_server():
        pass  # or it is skipped
    with running(1, is_delayed=True, has_files=False, settings={}) as stage:
        QUESTIONS["small"].ask(stage, 0.5, 1)
    assert "object" in capsys.readouterr().out


@contextmanager
def echoing() -> Iterator[int]:
    """Run a server of one connection that sends back all bytes; yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def echo() -> None:
            connection, _ = server.accept()
            with connection:
                while piece := connection.recv(65_536):
                    connection.sendall(piece)

        thread = threading.Thread(target=echo)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


@pytest.mark.parametrize(
    ("is_http", "data"),
    [
        (True, b"PUT /key HTTP/1.1\r\nContent-Length: 300000\r\n\r\n" + bytes(300_000)),
        (True, b"GET /key HTTP/1.1\r\nHost: here\r\n\r\nGET /other HTTP/1.1\r\n\r\n"),
        (False, b"Q\0\0\0\x0bCOMMIT\0" + bytes(100_000)),
    ],
)
def test_all_bytes_pass(is_http: bool, data: bytes) -> None:
    with echoing() as port, cloud.running(port, port) as ports:
        with socket.create_connection(("127.0.0.1", ports[0 if is_http else 1])) as client:
            sending = threading.Thread(target=client.sendall, args=(data,))
            sending.start()
            found = bytearray()
            while len(found) < len(data):
                found += client.recv(65_536)
            sending.join()
        assert found == data
