"""A provider's keys: fetched, kept, fetched again, and never for long or in any size."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from odradek.broker.security.oauth import keys as module
from odradek.broker.security.oauth.fetching import SIZE_MAX, FetchFailed, fetch, file_of
from odradek.broker.security.oauth.keys import Keys
from odradek.broker.security.oauth.validation import Header
from odradek.config.oauth import OAuthConfig
from tests.broker.live import on_uvloop, until
from tests.broker.provider import KEYS, RSA_KEY, key_set, public_jwk, serving

RSA, EC, NEW = Header("RS256", "rsa"), Header("ES256", "ec"), Header("RS256", "new")
NEW_KEYS = key_set(public_jwk(RSA_KEY, "new"))


class Fetcher:
    """Answers with what it is told to, and counts."""

    def __init__(self, answer: bytes | FetchFailed = KEYS) -> None:
        self.answer, self.count = answer, 0

    def __call__(self, url: str) -> bytes:
        self.count += 1
        if isinstance(self.answer, FetchFailed):
            raise self.answer
        return self.answer


def keys_of(fetcher: Callable[[str], bytes], **settings: int) -> Keys:
    return Keys("https://idp.example/certs", OAuthConfig(**settings), fetcher)


@on_uvloop
async def test_keys_are_fetched_once_and_found() -> None:
    fetcher = Fetcher()
    keys = keys_of(fetcher)
    for header in (RSA, EC, RSA):
        assert len(await keys.candidates(header)) == 1
    assert fetcher.count == 1 and keys.problem is None


@on_uvloop
async def test_an_unknown_key_has_them_fetched_at_once_but_not_all_the_time() -> None:
    fetcher = Fetcher()
    keys = keys_of(fetcher)
    await keys.candidates(RSA)
    keys._demanded_at_s = None  # some time goes by
    fetcher.answer = NEW_KEYS
    assert len(await keys.candidates(NEW)) == 1
    assert not await keys.candidates(RSA)  # it has been withdrawn
    for number in range(100):
        assert not await keys.candidates(Header("RS256", str(number)))
    assert fetcher.count == 2


@on_uvloop
async def test_no_key_is_looked_for_that_could_not_do() -> None:
    fetcher = Fetcher()
    keys = keys_of(fetcher)
    for algorithm in ("none", "HS256", "", "dir"):
        assert not await keys.candidates(Header(algorithm, "rsa"))
    assert fetcher.count == 0


@on_uvloop
async def test_all_who_wait_are_served_by_one_fetch() -> None:
    go, count = threading.Event(), 0

    def slow(_: str) -> bytes:
        nonlocal count
        count += 1
        go.wait(10)
        return KEYS

    keys = keys_of(slow)
    waiting = [asyncio.create_task(keys.candidates(RSA)) for _ in range(50)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    go.set()
    found = await asyncio.gather(*waiting[1:])
    assert all(len(one) == 1 for one in found)
    assert count == 1


@on_uvloop
async def test_the_last_keys_serve_while_there_are_no_new_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    fetcher = Fetcher()
    keys = keys_of(
        fetcher,
        sasl_oauthbearer_jwks_endpoint_refresh_ms=1,
        sasl_oauthbearer_jwks_endpoint_retry_backoff_ms=1,
        sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms=2,
    )
    keys.start()
    await until(lambda: fetcher.count > 2)
    fetcher.answer = FetchFailed("no route")
    await until(lambda: keys.problem == "no route")
    before = fetcher.count
    await until(lambda: fetcher.count > before + 3)
    assert len(await keys.candidates(RSA)) == 1
    assert caplog.text.count("could not fetch the keys of tokens") == 1
    fetcher.answer = b"{}"
    await until(lambda: (keys.problem or "").startswith("it is not a JSON Web Key Set"))
    fetcher.answer = KEYS
    await until(lambda: keys.problem is None)
    keys.close()


@on_uvloop
async def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "with a space.json"
    keys = Keys(path.as_uri(), OAuthConfig())
    assert not await keys.candidates(RSA)
    assert keys.problem == "No such file or directory"
    path.write_bytes(KEYS)
    assert len(await keys.candidates(RSA)) == 1
    path.write_bytes(NEW_KEYS)
    os.utime(path, ns=(1, 1))
    assert not await keys.candidates(RSA)
    assert len(await keys.candidates(NEW)) == 1


@on_uvloop
async def test_a_file_that_cannot_be_looked_at_holds_up_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(KEYS)
    keys = Keys(path.as_uri(), OAuthConfig())
    assert len(await keys.candidates(RSA)) == 1
    go = threading.Event()
    monkeypatch.setattr(module, "state_of", lambda _: go.wait(10) and None)
    waiting = [asyncio.create_task(keys.candidates(RSA)) for _ in range(50)]
    await until(lambda: any(one.name == "keys" for one in threading.enumerate()))
    assert sum(one.name == "keys" for one in threading.enumerate()) == 1
    go.set()
    assert all(len(one) == 1 for one in await asyncio.gather(*waiting))


def test_a_url_names_a_file() -> None:
    assert file_of("file:///a/b%20c") == Path("/a/b c")
    assert file_of("https://a/b") is None


def test_a_fetched_key_set_has_a_largest_size() -> None:
    with serving() as server:
        assert fetch(server.url) == KEYS
        server.body = b" " * (SIZE_MAX + 1)
        with pytest.raises(FetchFailed, match="larger than"):
            fetch(server.url)


def test_an_error_status_and_a_refused_connection_are_reported() -> None:
    with serving() as server:
        server.status = 500
        with pytest.raises(FetchFailed, match="the answer is 500"):
            fetch(server.url)
        url = server.url
    with pytest.raises(FetchFailed, match="refused"):
        fetch(url)


@pytest.mark.parametrize("location", ["file:///etc/hostname", "https://127.0.0.1/x", "ftp://a/b"])
def test_a_redirection_leads_to_no_other_scheme(location: str) -> None:
    with serving() as server:
        server.status, server.location = 302, location
        with pytest.raises(FetchFailed):
            fetch(server.url)
        assert server.asked == 1


@contextmanager
def answering(answer: bytes, then: bytes = b"", every_s: float = 0.0) -> Iterator[str]:
    """Answer every request with bytes, then with others again and again; yield the address.

    `PORT` in the answer stands for the server's own port.
    """
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def answer_one(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                connection.recv(10_000)
                connection.sendall(answer.replace(b"PORT", str(port).encode()))
                while then and not over.wait(every_s):
                    connection.sendall(then)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while not over.is_set():
                    connection, _ = listener.accept()
                    threading.Thread(target=answer_one, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{port}/"
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("answer", "then"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
        (b"", b"H"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["body", "header", "size of a chunk", "status", "continue"],
)
def test_a_server_that_never_ends_is_left(answer: bytes, then: bytes) -> None:
    with answering(answer, then, every_s=0.02) as url:
        started_s = time.monotonic()
        with pytest.raises(FetchFailed, match="too long"):
            fetch(url, timeout_s=0.5)
        assert time.monotonic() - started_s < 5


@pytest.mark.parametrize(
    "head",
    [
        b"302 Found\r\nLocation: http://127.0.0.1:PORT/again",
        b"302 Found\r\nLocation: /again",
        b"500 Oh",
        b"200 OK\r\nContent-Length: 1000000000000",
        b"200 OK\r\nContent-Encoding: gzip",
    ],
)
def test_an_endless_answer_takes_no_memory(head: bytes) -> None:
    tracemalloc.start()
    try:
        with answering(b"HTTP/1.1 " + head + b"\r\n\r\n", b"x" * 1_000_000) as url:
            with pytest.raises(FetchFailed, match=r"the answer is|larger than"):
                fetch(url)
            _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 8 * SIZE_MAX


NOT_HTTP = [
    b"HTTP/1.1 nonsense\r\n\r\n",
    b"\0" * 200_000,
    b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1_000,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    b"HTTP/1.1 302 Found\r\nLocation: http://a b\x01/\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nLocation: http://[::1:z/\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:PORT/\r\n\r\n",
]


@pytest.mark.parametrize("answer", NOT_HTTP)
def test_an_invalid_answer_is_a_failure_in_a_short_line(answer: bytes) -> None:
    with answering(answer) as url, pytest.raises(FetchFailed) as failure:
        fetch(url)
    text = str(failure.value)
    assert 0 < len(text) <= 200 and text.isprintable()


@on_uvloop
async def test_keys_are_fetched_again_whatever_went_wrong(
    caplog: pytest.LogCaptureFixture,
) -> None:
    count = 0

    def fetch_keys(_: str) -> bytes:
        nonlocal count
        count += 1
        if count < 3:
            raise ZeroDivisionError  # what nobody has thought of
        return KEYS

    keys = keys_of(fetch_keys, sasl_oauthbearer_jwks_endpoint_retry_backoff_ms=1)
    assert not await keys.candidates(RSA)
    assert keys.problem is not None
    assert "ZeroDivisionError" in caplog.text
    keys.start()
    await until(lambda: keys.problem is None)
    assert len(await keys.candidates(RSA)) == 1
    keys.close()


@on_uvloop
async def test_keys_that_cannot_be_used_have_a_few_lines_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    usable = public_jwk(RSA_KEY, "rsa")
    fetcher = Fetcher(key_set(usable, *[{"kty": "oct", "kid": "\ud800\n"}] * 900))
    assert len(await keys_of(fetcher).candidates(RSA)) == 1
    lines = [one.getMessage() for one in caplog.records]
    assert len(lines) < 20 and "890 more" in lines[-1]
    assert all("\n" not in one for one in lines)
