"""Ways hold back, lose and pass on bytes as they are asked to."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import random
import socket
import socketserver
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.siege.proxies import ANSWERS, REQUESTS, Way, Ways
from tests.support.waiting import wait_until

_SOON_S = 0.2


class _Echo(socketserver.BaseRequestHandler):
    """Answers each piece with itself, and notes it."""

    got: list[bytes]

    def handle(self) -> None:
        with contextlib.suppress(ConnectionResetError):  # as a proxy ends it
            while piece := self.request.recv(100):
                self.got.append(piece)
                self.request.sendall(piece)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


@pytest.fixture
def got() -> list[bytes]:
    """What has come to the target."""
    return []


@pytest.fixture
def way(got: list[bytes]) -> Iterator[Way]:
    """A way to a server that answers each piece with itself."""
    handler = type("Echo", (_Echo,), {"got": got})
    with _Server(("127.0.0.1", 0), handler) as server, Ways().running() as ways:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield ways.to(server.server_address[1])
        server.shutdown()


def connect(way: Way) -> socket.socket:
    return socket.create_connection(("127.0.0.1", way.port), 10)


def test_an_open_way_passes_on_both_directions(way: Way) -> None:
    with connect(way) as client:
        client.sendall(b"hello")
        assert client.recv(10) == b"hello"
    assert way.passed_bytes == 2 * len("hello")


def test_a_cut_way_holds_back_until_it_heals(way: Way, got: list[bytes]) -> None:
    with connect(way) as client:
        way.cut()
        client.sendall(b"late")
        client.settimeout(_SOON_S)
        with pytest.raises(TimeoutError):
            client.recv(10)
        assert not got
        way.heal()
        client.settimeout(10)
        assert client.recv(10) == b"late"


def test_answers_alone_may_be_lost(way: Way, got: list[bytes]) -> None:
    with connect(way) as client:
        way.cut(ANSWERS)
        client.sendall(b"done")
        wait_until(lambda: got == [b"done"], "the request arrives")
        way.heal(is_reset=True)
        with pytest.raises(ConnectionResetError):
            client.recv(10)


def test_requests_alone_may_be_lost(way: Way, got: list[bytes]) -> None:
    with connect(way) as client:
        client.sendall(b"first")
        assert client.recv(10) == b"first"
        way.cut(REQUESTS)
        client.sendall(b"never")
        way.heal(is_reset=True)
        with pytest.raises(ConnectionResetError):
            client.recv(10)
    with connect(way) as client:
        client.sendall(b"again")
        assert client.recv(10) == b"again"
    assert got == [b"first", b"again"]


def test_a_target_that_is_down_resets_its_clients() -> None:
    with socket.socket() as bound, Ways().running() as ways:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        way = ways.to(bound.getsockname()[1])
        with pytest.raises(ConnectionResetError), connect(way) as client:
            client.recv(10)


def test_a_slow_way_holds_back_answers_until_it_heals(way: Way, got: list[bytes]) -> None:
    with connect(way) as client:
        way.slow(60.0)
        client.sendall(b"late")
        wait_until(lambda: got == [b"late"], "the request arrives")
        client.settimeout(_SOON_S)
        with pytest.raises(TimeoutError):
            client.recv(10)
        way.heal()
        client.settimeout(10)
        assert client.recv(10) == b"late"


class _Web(http.server.BaseHTTPRequestHandler):
    """Takes all that is put, and notes it."""

    protocol_version = "HTTP/1.1"
    got: list[bytes]

    def do_PUT(self) -> None:
        self.got.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def _put(way: Way, body: bytes) -> int:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", way.port, timeout=10)) as one:
        one.request("PUT", "/", body)
        return one.getresponse().status


def test_requests_fail_by_their_status_until_the_way_heals() -> None:
    got: list[bytes] = []
    handler = type("Web", (_Web,), {"got": got})
    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
        Ways().running() as ways,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        way = ways.to(server.server_address[1])
        way.refuse(0.7, random.Random(1))
        bodies = [b"%d" % number * 10_000 for number in range(40)]
        answers = [(body, _put(way, body)) for body in bodies]
        counts = Counter(status for _, status in answers)
        assert min(counts[200], counts[500], counts[503]) > 0
        assert got == [body for body, status in answers if status != 503]
        way.heal()
        assert {_put(way, body) for body in bodies} == {200}
        server.shutdown()
