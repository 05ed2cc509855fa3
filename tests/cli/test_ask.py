"""Asking a broker over HTTP: what is shown to whoever answers there, and what is not."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from odradek.cli import peer
from odradek.cli.ask import AskError, ask_with_token
from odradek.cli.peer import owner_of_peer

TOKEN = "AAAABBBBCCCCDDDDEEEE22"
STRANGER = 4_242
UP = b'{"status": "ok"}'
needs_a_table = pytest.mark.skipif(
    not (peer.TABLES / "tcp").exists(), reason="this system does not tell who has a socket"
)


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ODRADEK_TOKEN", "ODRADEK_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """The token of a broker that this user has started."""
    file = tmp_path / "odradek-admin-token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    return file


class Answerer(HTTPServer):
    """Answers as a broker does that wants a token, and notes what it is shown."""

    refusal = b""
    headers: dict[str, str]
    shown: list[str | None]
    meanwhile: Callable[[socket.socket], None] = staticmethod(lambda _: None)
    status = 401


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Answerer

    def do_GET(self) -> None:
        token = self.headers["Authorization"]
        self.server.shown.append(token)
        self.server.meanwhile(self.connection)
        body = UP if token else self.server.refusal
        self.send_response(200 if token and self.server.status == 401 else self.server.status)
        for name, value in {**self.server.headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def answering(file: Path | None = None, family: int = socket.AF_INET) -> Iterator[Answerer]:
    class OfFamily(Answerer):
        address_family = family

    server = OfFamily(("127.0.0.1" if family == socket.AF_INET else "::1", 0), Handler)
    server.headers, server.shown = {}, []
    server.refusal = b'{"error": "this needs a token", "token_file": "%s"}' % str(file).encode()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def url(server: Answerer, host: str = "127.0.0.1") -> str:
    return f"http://{host}:{server.server_port}"


def row(local: str, remote: str, uid: int, inode: int) -> str:
    return f"  0: {local} {remote} 01 00000000:00000000 00:00000000 00000000 {uid} 0 {inode} 1\n"


def ends(connection: socket.socket) -> tuple[str, str]:
    """Write the two ends of a server's connection over loopback as the kernel does."""
    pair = connection.getsockname(), connection.getpeername()
    local, remote = (f"0100007F:{one[1]:04X}" for one in pair)
    return local, remote


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the kernel's table is, as far as the command knows."""
    monkeypatch.setattr("odradek.cli.peer.TABLES", tmp_path)
    return tmp_path / "tcp"


@needs_a_table
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_broker_s_own_user_is_shown_the_token(token_file: Path, host: str) -> None:
    with answering(token_file) as server:
        assert ask_with_token(url(server, host), "/api/topics", {}) == {"status": "ok"}
        assert server.shown == [None, f"Bearer {TOKEN}"]


@needs_a_table
def test_the_broker_s_own_user_is_known_over_ipv6(token_file: Path) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("there is no IPv6 here")
    with answering(token_file, socket.AF_INET6) as server:
        assert ask_with_token(url(server, "[::1]"), "/api/topics", {}) == {"status": "ok"}


@pytest.mark.parametrize("inode", [0, 77])
def test_a_stranger_on_the_broker_s_port_gets_no_token(
    token_file: Path, table: Path, inode: int
) -> None:
    # With the inode 0 nobody has accepted the connection: root, whose it seems to be, neither.
    uid = STRANGER if inode else 0
    with answering(token_file) as server:
        server.meanwhile = lambda one: void(table.write_text("\n" + row(*ends(one), uid, inode)))
        with pytest.raises(AskError) as refused:
            ask_with_token(url(server), "/api/topics", {})
        assert server.shown == [None]
    message = str(refused.value)
    if inode:
        assert f"as user {STRANGER}," in message and "not sent" in message
    else:
        assert "--token or ODRADEK_TOKEN" in message


def void(_: object) -> None:
    pass


@pytest.mark.parametrize("uid", [0, os.geteuid()])
def test_root_and_the_file_s_owner_are(token_file: Path, table: Path, uid: int) -> None:
    with answering(token_file) as server:
        server.meanwhile = lambda one: void(table.write_text("\n" + row(*ends(one), uid, 9)))
        ask_with_token(url(server), "/api/topics", {})
        assert server.shown == [None, f"Bearer {TOKEN}"]


def test_nobody_is_where_the_machine_does_not_tell_who_listens(
    token_file: Path, table: Path
) -> None:
    with answering(token_file) as server:
        with pytest.raises(AskError, match="--token or ODRADEK_TOKEN"):
            ask_with_token(url(server), "/api/topics", {})
        assert server.shown == [None]


def test_a_link_and_a_pipe_of_that_name_lead_nowhere(
    token_file: Path, tmp_path: Path, table: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / token_file.name).symlink_to(token_file)  # its owner is the answerer, the file's is not
    pipe = tmp_path / "pipe" / token_file.name
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    for named in (own / token_file.name, pipe):
        with answering(named) as server:
            server.meanwhile = lambda one: void(
                table.write_text("\n" + row(*ends(one), STRANGER, 9))
            )
            with pytest.raises(AskError):
                ask_with_token(url(server), "/api/topics", {})
            assert server.shown == [None]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
@needs_a_table
def test_a_process_of_another_user_is_not_shown_the_token(token_file: Path) -> None:
    program = (
        "import os, socket, sys\n"
        "os.setuid(int(sys.argv[2]))\n"
        "s = socket.create_server(('127.0.0.1', 0))\n"
        "print(s.getsockname()[1], flush=True)\n"
        "c, _ = s.accept()\n"
        "c.recv(9999)\n"
        "body = sys.argv[1].encode()\n"
        "c.sendall(b'HTTP/1.1 401 No\\r\\nContent-Length: %d\\r\\n\\r\\n' % len(body) + body)\n"
        "print(c.recv(9999), flush=True)\n"
    )
    body = json.dumps({"error": "this needs a token", "token_file": str(token_file)})
    running = subprocess.Popen(
        [sys.executable, "-I", "-c", program, body, str(STRANGER)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert running.stdout is not None
    with pytest.raises(AskError, match=f"as user {STRANGER},"):
        ask_with_token(f"http://127.0.0.1:{int(running.stdout.readline())}", "/api/topics", {})
    assert running.communicate()[0].strip() == "b''"


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_nobody_is_asked_instead(status: int) -> None:
    with answering() as elsewhere, answering() as server:
        server.status = status
        server.headers = {"Location": url(elsewhere) + "/api/topics"}
        with pytest.raises(AskError, match=f"answered {status}"):
            ask_with_token(url(server), "/api/topics", {}, token="tok-1")
        assert elsewhere.shown == [] and server.shown == ["Bearer tok-1"]


@pytest.mark.skipif(sys.byteorder != "little", reason="written as such machines do")
def test_rows_are_read_as_the_kernel_writes_them(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        here, there = client.getsockname()[1], client.getpeername()[1]
        four = (f"0100007F:{there:04X}", f"0100007F:{here:04X}")
        # A server that takes both kinds of addresses has its sockets in the other table.
        six = tuple(f"0000000000000000FFFF0000{one}" for one in four)
        others = "\n" + row(four[0], "00000000:0000", 1, 1) + row(four[1], four[0], 2, 2)
        for table, text, uid in (
            ("tcp", row(*four, 3, 3), 3),
            ("tcp6", row(six[0], six[1], 4, 4), 4),
            ("tcp", "torn", None),
        ):
            for each in ("tcp", "tcp6"):
                (tmp_path / each).write_text(others + (text if each == table else ""))
            assert owner_of_peer(client, tmp_path) == uid
