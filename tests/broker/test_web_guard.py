"""Who gets an answer over HTTP, and who is kept out: tokens, names, other sites."""

from __future__ import annotations

import json
from pathlib import Path

import aiohttp
import pytest

from broker.web.guesses import ADDRESSES_MAX, WINDOW_S, WRONG_MAX, Guesses
from tests.broker.live import append, batch, create, on_uvloop
from tests.broker.web import ask, bearer, connection, serving

READ = {"odradek.http.read.token": "look-only-17"}
ADMIN = {"odradek.admin.token": "open-sesame-41"}
GUARDED = [
    "/metrics", "/api/broker", "/api/samples", "/api/events", "/api/topics", "/api/topic",
    "/api/groups", "/api/group", "/api/records", "/api/latest", "/api/get", "/api/cleaner",
    "/api/cleaner/plan", "/api/cleaner/why", "/api/cleaner/history", "/api/cleaner/runs",
    "/api/nothing",
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
async def test_what_an_authorizer_denies_is_not_to_be_had_over_http(tmp_path: Path) -> None:
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
        assert json.loads(body)["problems"] == ["1 of them: what they are takes a token"]
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
async def test_guessing_is_stopped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(tmp_path, ADMIN) as broker:
        path = "/api/cleaner/run?topic=prices"
        for number in range(WRONG_MAX):
            assert (await ask(broker, path, bearer(f"guess-{number}"), "POST"))[0] == 401
        status, headers, body = await ask(broker, path, bearer("open-sesame-41"), "POST")
        assert status == 429 and 0 < int(headers["Retry-After"]) <= WINDOW_S and b"wait" in body
        assert (await ask(broker, "/api/topics"))[0] == 200  # it takes no token
    told = [one for one in caplog.messages if "no more tokens" in one]
    assert len(told) == 1 and len(caplog.messages) < 2 * WRONG_MAX


@on_uvloop
async def test_health_helps_no_one_to_guess(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, {**READ, **ADMIN}) as broker:
        broker.problems = lambda: ["prices-0 is offline"]  # type: ignore[method-assign]
        for number in range(WRONG_MAX):
            assert (await ask(broker, "/health"))[0] == 503  # shows none
            assert b"prices" not in (await ask(broker, "/health", bearer(f"guess-{number}")))[2]
        for token in ("look-only-17", "open-sesame-41"):
            status, _, body = await ask(broker, "/health", bearer(token))
            assert status == 503 and b"prices" not in body
        assert (await ask(broker, "/api/topics", bearer("look-only-17")))[0] == 429
    told = [one for one in caplog.messages if "refused a wrong token" in one]
    assert len(told) == WRONG_MAX and "guess" not in caplog.text


def test_an_address_may_guess_anew_after_a_while() -> None:
    now_s = 100.0
    guesses = Guesses(lambda: now_s)
    waits = [guesses.count("10.0.0.1") for _ in range(WRONG_MAX)]
    assert waits == [False] * (WRONG_MAX - 1) + [True]
    assert guesses.wait_s("10.0.0.1") == WINDOW_S and guesses.wait_s("10.0.0.2") == 0
    now_s += WINDOW_S + 1
    assert guesses.wait_s("10.0.0.1") == 0
    guesses.count("10.0.0.1")
    assert guesses.wait_s("10.0.0.1") == 0


def test_addresses_of_one_network_are_one_guesser_and_memory_is_bounded() -> None:
    guesses = Guesses(lambda: 0.0)
    for number in range(WRONG_MAX):
        guesses.count(f"2001:db8::{number + 1:x}")
    assert guesses.wait_s("2001:db8::ffff") > 0 and guesses.wait_s("2001:db8:0:1::1") == 0
    for number in range(ADDRESSES_MAX):
        guesses.count(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(guesses._wrong) == ADDRESSES_MAX and guesses.wait_s("2001:db8::1") == 0


@on_uvloop
async def test_where_the_token_lies_is_told_on_this_machine(tmp_path: Path) -> None:
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
        port = broker.http_sockets[0].getsockname()[1]
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
