"""A provider's keys: fetched, kept, fetched again, and never for long or in any size."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.security.oauth import keys as module
from broker.security.oauth.fetching import SIZE_MAX, FetchFailed, fetch, file_of
from broker.security.oauth.keys import Keys
from broker.security.oauth.validation import Header
from config.oauth import OAuthConfig
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
    await until(lambda: (keys.problem or "").startswith("it is no JSON Web Key Set"))
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


def test_what_is_fetched_has_a_largest_size() -> None:
    with serving() as server:
        assert fetch(server.url) == KEYS
        server.body = b" " * (SIZE_MAX + 1)
        with pytest.raises(FetchFailed, match="larger than"):
            fetch(server.url)


def test_other_answers_are_told() -> None:
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


def test_a_server_that_never_ends_is_left() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        over = threading.Event()

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
                while not over.wait(0.05):
                    connection.sendall(b" ")

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        started_s = time.monotonic()
        with pytest.raises(FetchFailed, match="too long"):
            fetch(f"http://127.0.0.1:{listener.getsockname()[1]}/", timeout_s=0.5)
        assert time.monotonic() - started_s < 5
        over.set()
        thread.join(5)
