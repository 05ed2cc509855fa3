"""Checks a running broker: its health, its cleaner, the partitions in quarantine."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, cast

from odradek.cli.ask import AskError, ask_with_token
from odradek.cli.finding import OK, PROBLEM, Finding
from odradek.cli.words import count
from odradek.dataclass import dataclass

_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Health:
    """The answer of /health; `is_odradek` is False without one, or when it is another server's."""

    is_odradek: bool = False
    problems: tuple[str, ...] = ()


def ask_health(url: str) -> Health:
    """Ask a broker for its health."""
    # No secret is sent to the server, and its answer is only passed on.
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=anybody)
    )
    try:
        with opener.open(f"{url.rstrip('/')}/health", timeout=_TIMEOUT_S) as response:
            text = response.read()
    except urllib.error.HTTPError as error:  # 503 when something is wrong
        text = error.read()
    except (OSError, ValueError):
        return Health()
    try:
        document = json.loads(text)
        return Health("status" in document, tuple(map(str, document["problems"])))
    except (ValueError, KeyError, TypeError):
        return Health()


def check_broker(url: str, health: Health) -> Iterator[Finding]:
    """Yield findings from a broker's answers."""
    if not health.is_odradek:
        advice = "start it, or name its metrics.listener with --url"
        yield Finding(PROBLEM, "broker", f"no broker answers at {url}", advice)
        return
    for problem in health.problems:
        yield Finding(PROBLEM, "broker", problem, "see its log")
    if not health.problems:
        yield Finding(OK, "broker", f"the broker at {url} is healthy")
    try:
        cleaner = cast(dict[str, Any], ask_with_token(url, "/api/cleaner", {}))
    except AskError as error:
        yield Finding(PROBLEM, "cleaner", str(error), "see the broker's log")
        return
    threads = cleaner["threads"]
    alive = f"{threads['alive']} of {count(threads['wanted'], 'thread')} alive"
    if threads["alive"] < threads["wanted"]:
        yield Finding(PROBLEM, "cleaner", alive, "see the broker's log; it starts them again")
    else:
        yield Finding(OK, "cleaner", alive)
    for one in cleaner["quarantined"]:
        name = f"{one['topic']}-{one['partition']}"
        advice = f"`odradek cleaner why {one['topic']} {one['partition']}` says more"
        yield Finding(PROBLEM, "cleaner", f"{name} is in quarantine: {one['exception']}", advice)
