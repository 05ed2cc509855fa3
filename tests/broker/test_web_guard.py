"""Who gets an answer over HTTP, and who is kept out: tokens, names, other sites."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest

from odradek.broker.web import guesses
from odradek.broker.web.guesses import ADDRESSES_MAX, HELD_SHARE, WINDOW_S, WRONG_MAX, Guesses
from odradek.config.effective import resolve_broker
from odradek.config.errors import ConfigError
from odradek.config.layers import static_layer
from tests.broker.live import PATIENCE_S, append, batch, create, on_uvloop, until
from tests.broker.web import ask, bearer, connection, serving

READ = {"odradek.http.read.token": "look-only-17"}
ADMIN = {"odradek.admin.token": "open-sesame-41"}
GUARDED = [
    "/metrics", "/api/broker", "/api/samples", "/api/events", "/api/topics", "/api/topic",
    "/api/groups", "/api/group", "/api/records", "/api/latest", "/api/get", "/api/cleaner",
    "/api/cleaner/plan", "/api/cleaner/why", "/api/cleaner/history", "/api/cleaner/runs",
    "/api/cluster", "/api/objects", "/api/nothing",
]  # fmt: skip


class Everybody:
    """Stands in for an authorizer: that there is one is what counts here."""


# --- tokens -----------------------------------------------------------------------------------


@on_uvloop
async def test_with_a_token_for_reading_nothing_is_read_without(tmp_path: Path) -> None:
    async with serving(tmp_path, {**READ, **ADMIN}) as broker:
        await create(broker, "prices")
        for path in GUARDED:
            status, headers, body = await ask(broker, path)
            assert status == 401 and headers["WWW-Authenticate"].startswith("Bearer"), path
            assert b"prices" not in body and b"error" in body
        for token in ("look-only-17", "open-sesame-41"):
            for path in ("/metrics", "/api/topics", "/api/events"):
                assert (await ask(broker, path, bearer(token)))[0] == 200
            assert (await ask(broker, "/api/nothing", bearer(token)))[0] == 404
        # It opens nothing but the reading.
        path = "/api/cleaner/run?topic=prices"
        assert (await ask(broker, path, bearer("look-only-17"), "POST"))[0] == 401


@on_uvloop
async def test_guarded_paths_need_a_token_when_there_is_an_authorizer(tmp_path: Path) -> None:
    async with serving(tmp_path, ADMIN) as broker:
        await create(broker, "prices")
        assert (await ask(broker, "/api/topics"))[0] == 200
        broker.security.authorizer = Everybody()  # type: ignore[assignment]
        for path in GUARDED:
            assert (await ask(broker, path))[0] == 401, path
        assert (await ask(broker, "/api/topics", bearer("open-sesame-41")))[0] == 200


@on_uvloop
async def test_health_and_the_page_are_everybody_s_but_say_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, READ) as broker:
        broker.problems = lambda: ["prices-0 is offline"]  # type: ignore[method-assign]
        status, _, body = await ask(broker, "/health")
        assert status == 503 and b"prices" not in body
        assert json.loads(body)["problems"] == ["1 of them: reading them needs a token"]
        assert b"prices-0" in (await ask(broker, "/health", bearer("look-only-17")))[2]
        for path in ("/", "/page/app.js"):
            assert (await ask(broker, path))[0] == 200


@pytest.mark.parametrize("path", ["/page/../metrics", "/page/%2e%2e/api/topics", "//metrics"])
@on_uvloop
async def test_no_way_of_writing_a_path_leads_past_the_token(tmp_path: Path, path: str) -> None:
    async with serving(tmp_path, READ) as broker, connection(broker) as (reader, writer):
        writer.write(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        status = int((await reader.readline()).split()[1])
        assert status in (401, 403, 404)
        assert b"kafka_" not in await reader.read()


@on_uvloop
async def test_a_token_is_taken_from_its_header_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, {**READ, **ADMIN}) as broker:
        for path in ("/api/topics?token=look-only-17", "/api/topics?access_token=look-only-17"):
            status, _, body = await ask(broker, path, {"Cookie": "token=look-only-17"})
            assert status == 401 and b"look-only-17" not in body
        await ask(broker, "/api/topics?key=open-sesame-41", bearer("wrong-22"))
    assert "refused a wrong token" in caplog.text and "address=127.0.0.1" in caplog.text
    for word in ("wrong-22", "look-only-17", "open-sesame-41"):
        assert word not in caplog.text


@on_uvloop
async def test_wrong_tokens_are_slowed_down_and_the_right_one_never_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A request that is held would not be answered within the test's patience.
    monkeypatch.setattr(guesses, "HOLD_S", 10 * PATIENCE_S)
    async with serving(tmp_path, {**READ, **ADMIN}) as broker:
        path = "/api/cleaner/retry?topic=prices&partition=0"
        for number in range(WRONG_MAX):
            assert (await ask(broker, path, bearer(f"guess-{number}"), "POST"))[0] == 401
        held = asyncio.ensure_future(ask(broker, path, bearer("guess-more"), "POST"))
        async with asyncio.timeout(PATIENCE_S):
            await until(lambda: broker.http.server.access.held_count == 1)
            # There is no such topic, which only the right token gets to hear.
            assert (await ask(broker, path, bearer("open-sesame-41"), "POST"))[0] == 404
            for token in ("look-only-17", "open-sesame-41"):
                for route in ("/metrics", "/api/topics", "/health"):
                    assert (await ask(broker, route, bearer(token)))[0] == 200
            assert (await ask(broker, "/health"))[0] == 200
        assert not held.done()
        held.cancel()
    slowed = [one for one in caplog.messages if "slowed down wrong tokens" in one]
    assert len(slowed) == 1 and len(caplog.messages) < 2 * WRONG_MAX


@on_uvloop
async def test_a_wrong_token_that_is_held_is_answered_and_its_connection_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guesses, "HOLD_S", 0.1)
    async with serving(tmp_path, ADMIN) as broker:
        path = "/api/cleaner/run?topic=prices"
        for number in range(WRONG_MAX):
            await ask(broker, path, bearer(f"guess-{number}"), "POST")
        async with asyncio.timeout(PATIENCE_S):
            status, headers, body = await ask(broker, path, bearer("guess-more"), "POST")
        assert status == 429 and 0 < int(headers["Retry-After"]) <= WINDOW_S and b"wait" in body
        assert headers["Connection"] == "close"
        assert broker.http.server is not None and broker.http.server.access.held_count == 0


@on_uvloop
async def test_a_crowd_of_wrong_tokens_holds_few_places_and_fills_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guesses, "HOLD_S", 10 * PATIENCE_S)
    settings = {**ADMIN, "odradek.http.connections.max": "32"}
    async with serving(tmp_path, settings) as broker:
        path = "/api/cleaner/retry?topic=prices&partition=0"

        async def guess(number: int) -> int:
            return (await ask(broker, path, bearer(f"guess-{number}"), "POST"))[0]

        for number in range(WRONG_MAX):
            await guess(number)
        held = [asyncio.ensure_future(guess(number)) for number in range(32 // HELD_SHARE)]
        await until(lambda: broker.http.server.access.held_count == len(held))
        async with asyncio.timeout(PATIENCE_S):
            for number in range(50):  # there is no place to hold these
                assert await guess(number) == 429
            assert (await ask(broker, path, bearer("open-sesame-41"), "POST"))[0] == 404
        for one in held:
            one.cancel()
    assert len(caplog.messages) < 2 * WRONG_MAX and "guess" not in caplog.text


@on_uvloop
async def test_health_helps_no_one_to_guess(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guesses, "HOLD_S", 0.1)
    async with serving(tmp_path, {**READ, **ADMIN}) as broker:
        broker.problems = lambda: ["prices-0 is offline"]  # type: ignore[method-assign]
        for number in range(WRONG_MAX + 1):
            assert (await ask(broker, "/health"))[0] == 503  # shows none
            status, _, body = await ask(broker, "/health", bearer(f"guess-{number}"))
            # The last is one wrong token too many, as it would be at any other route.
            assert status == (503 if number < WRONG_MAX else 429) and b"prices" not in body
        for token in ("look-only-17", "open-sesame-41"):
            status, _, body = await ask(broker, "/health", bearer(token))
            assert status == 503 and b"prices" in body
        assert (await ask(broker, "/api/topics", bearer("guess-more")))[0] == 429
    told = [one for one in caplog.messages if "refused a wrong token" in one]
    assert len(told) == WRONG_MAX and "guess" not in caplog.text


@pytest.mark.parametrize("name", ["odradek.admin.token", "odradek.http.read.token"])
def test_a_token_that_can_be_guessed_is_refused_and_not_shown(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        resolve_broker([static_layer(None, {}, [f"{name}=seven-7"])])
    assert name in str(refused.value) and "openssl rand -hex 16" in str(refused.value)
    assert "seven-7" not in str(refused.value)
    resolve_broker([static_layer(None, {}, [f"{name}=eight-88"])])


def test_an_address_may_guess_again_after_a_while() -> None:
    now_s = 100.0
    guessed = Guesses(lambda: now_s)
    slowed = [guessed.count("10.0.0.1") for _ in range(WRONG_MAX + 2)]
    assert slowed == [False] * WRONG_MAX + [True] * 2
    assert guessed.wait_s("10.0.0.1") == WINDOW_S and guessed.wait_s("10.0.0.2") == 0
    now_s += WINDOW_S + 1
    assert guessed.wait_s("10.0.0.1") == 0
    assert not guessed.count("10.0.0.1")
    assert guessed.wait_s("10.0.0.1") == 0


def test_addresses_of_one_network_are_one_guesser_and_memory_is_bounded() -> None:
    guessed = Guesses(lambda: 0.0)
    for number in range(WRONG_MAX):
        guessed.count(f"2001:db8::{number + 1:x}")
    assert guessed.wait_s("2001:db8::ffff") > 0 and guessed.wait_s("2001:db8:0:1::1") == 0
    for number in range(ADDRESSES_MAX):
        guessed.count(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(guessed._wrong) == ADDRESSES_MAX and guessed.wait_s("2001:db8::1") == 0


@on_uvloop
async def test_the_file_of_the_token_is_named_on_this_machine(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        status, _, body = await ask(broker, "/api/cleaner/run?topic=prices", method="POST")
        assert status == 401
        assert json.loads(body)["token_file"] == str(tmp_path / "data" / "odradek-admin-token")


# --- other sites ------------------------------------------------------------------------------

LINK = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {"Origin": "http://evil.example"}, 403),
        ("GET", {"Origin": "null"}, 403),
        ("GET", {"Origin": "http://["}, 403),
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ("GET", {"Sec-Fetch-Site": "same-site"}, 403),
        ("GET", {"Sec-Fetch-Site": "cross-site", **LINK, "Sec-Fetch-Dest": "iframe"}, 403),
        ("GET", {"Sec-Fetch-Site": "cross-site", **LINK}, 200),
        ("GET", {"Sec-Fetch-Site": "same-origin"}, 200),
        ("GET", {"Sec-Fetch-Site": "none"}, 200),
        ("POST", {"Sec-Fetch-Site": "cross-site", **LINK}, 403),
        ("POST", {"Origin": "http://evil.example"}, 403),
        ("POST", {"Origin": "null"}, 403),
        ("OPTIONS", {"Origin": "http://evil.example"}, 403),
    ],
)  # fmt: skip
@on_uvloop
async def test_pages_of_other_sites_may_ask_for_nothing(
    tmp_path: Path, method: str, headers: dict[str, str], status: int
) -> None:
    async with serving(tmp_path) as broker:
        await create(broker, "prices")
        path = "/api/topics" if method == "GET" else "/api/cleaner/retry?topic=prices&partition=0"
        found, answered, body = await ask(broker, path, {**bearer("x"), **headers}, method)
        assert found == status
        assert not [name for name in answered if name.lower().startswith("access-control-")]
        assert status == 200 or b"prices" not in body


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("10.1.2.3:9308", 200), ("[2001:db8::1]", 200), ("broker:9308", 200), ("LOCALHOST", 200),
        ("odradek.example.org", 200), ("Odradek.Example.org.:443", 200),
        ("advertised.example.org:1", 200), ("evil.example", 403),
        ("odradek.example.org.evil", 403),
    ],
)  # fmt: skip
@on_uvloop
async def test_beyond_loopback_names_have_to_be_known(
    tmp_path: Path, host: str, status: int
) -> None:
    settings = {
        "metrics.listener": "0.0.0.0:0",
        "odradek.http.hosts": "odradek.example.org",
        "advertised.listeners": "PLAINTEXT://advertised.example.org:9092",
    }
    async with serving(tmp_path, settings) as broker, aiohttp.ClientSession() as session:
        # This machine's other address, so that it is no loopback that was asked.
        port = broker.http.sockets[0].getsockname()[1]
        where = _own_address()
        target = f"http://{where}:{port}/api/topics"
        async with session.get(target, headers={"Host": host}) as response:
            body = await response.json()
            assert response.status == status
            assert status == 200 or "odradek.http.hosts" in body["error"]


def _own_address() -> str:
    """Return an address of this machine that is no loopback; skip where there is none."""
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            pytest.skip("this machine has loopback addresses only")
        address = str(one.getsockname()[0])
    if address.startswith("127."):
        pytest.skip("this machine has loopback addresses only")
    return address


@pytest.mark.parametrize("path", ["/", "/page/app.js", "/api/topics", "/metrics", "/nothing"])
@on_uvloop
async def test_every_answer_says_what_a_browser_may_not_do(tmp_path: Path, path: str) -> None:
    async with serving(tmp_path) as broker:
        _, headers, _ = await ask(broker, path)
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none';") and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy and "http" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Server"] == "Odradek"
        is_page = path == "/" or path.startswith("/page")
        assert headers["Cache-Control"] == ("no-cache" if is_page else "no-store")


# --- what is shown ----------------------------------------------------------------------------


@on_uvloop
async def test_json_is_nothing_that_a_browser_would_run(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        (log,) = (await create(broker, "prices")).logs
        append(log, batch(b"<script>alert(1)</script>", key=b"<img src=x onerror=alert(1)>"))
        for path in ("/api/records?topic=prices", "/api/get?topic=prices&key=<svg>"):
            status, headers, _ = await ask(broker, path)
            assert status == 200 and headers["Content-Type"].startswith("application/json")
        for path in ("/<script>", "/api/topic?topic=<script>", "/api/topics?<script>=1"):
            status, headers, body = await ask(broker, path)
            assert status in (400, 404)
            is_json = headers["Content-Type"].startswith("application/json")
            assert is_json or b"<script>" not in body
