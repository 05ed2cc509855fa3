"""Waits for conditions that another thread or process makes true in its own time.

    wait_until(lambda: "loaded kernels" in broker.log_text(), "the kernels are loaded")
    await until(lambda: broker.server.connections)

A wait in vain fails, and its message names the condition. The pauses between two looks grow with
the time that has passed, so that a short wait ends soon, and a long one costs little.
"""

from __future__ import annotations

import asyncio
import inspect
import linecache
import ssl
import time
import urllib.request
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from bench.processes import OdradekProcess

T = TypeVar("T")

# Long enough for a busy machine; only a test that fails waits for it.
PATIENCE_S = 60.0
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.001, 0.05


def wait_until(
    condition: Callable[[], T],
    what: str | None = None,
    patience_s: float = PATIENCE_S,
    *,
    shown: Callable[[], object] | None = None,
    pause_max_s: float = _PAUSE_MAX_S,
) -> T:
    """Wait in a thread until a condition holds, and return its value.

    A failure names the condition by `what`, without it by the condition's own line, and adds the
    text that `shown` returns then.
    """
    value = last_answer(condition, bool, patience_s, pause_max_s=pause_max_s)
    assert value, _in_vain(condition, what, patience_s, shown)
    return value


def last_answer(
    ask: Callable[[], T],
    is_final: Callable[[T], object],
    patience_s: float = PATIENCE_S,
    *,
    pause_max_s: float = _PAUSE_MAX_S,
) -> T:
    """Ask until an answer is final or patience ends, and return the last answer.

    For tests that compare the answer with another one anyway.
    """
    begun_s = time.monotonic()
    while not is_final(answer := ask()):
        waited_s = time.monotonic() - begun_s
        if waited_s >= patience_s:
            break
        time.sleep(_pause_s(waited_s, pause_max_s))
    return answer


async def until(
    condition: Callable[[], Any],
    what: str | None = None,
    patience_s: float = PATIENCE_S,
    *,
    shown: Callable[[], object] | None = None,
) -> Any:
    """Let the loop run until a condition, or a coroutine of it, holds; return its value."""
    limit = asyncio.timeout(patience_s)
    try:
        async with limit:
            while not (value := await _value_of(condition)):  # noqa: ASYNC110
                await asyncio.sleep(_PAUSE_MIN_S)
    except TimeoutError:
        if not limit.expired():
            raise
        raise AssertionError(_in_vain(condition, what, patience_s, shown)) from None
    return value


async def _value_of(condition: Callable[[], Any]) -> Any:
    value = condition()
    return await value if inspect.iscoroutine(value) else value


def _pause_s(waited_s: float, pause_max_s: float) -> float:
    return min(max(waited_s / 8, _PAUSE_MIN_S), pause_max_s)


def _in_vain(
    condition: Callable[[], object],
    what: str | None,
    patience_s: float,
    shown: Callable[[], object] | None,
) -> str:
    text = f"not within {patience_s:g} s: {what or _line_of(condition)}"
    return text if shown is None else f"{text}\n{shown()}"


def _line_of(condition: Callable[[], object]) -> str:
    """Return the line where a condition stands."""
    code = getattr(condition, "__code__", None)
    if code is None:
        return repr(condition)
    return linecache.getline(code.co_filename, code.co_firstlineno).strip()


def wait_for_http(
    broker: OdradekProcess,
    path: str = "/health",
    context: ssl.SSLContext | None = None,
    patience_s: float = 120.0,
) -> None:
    """Wait until a broker serves HTTP, which it does a little after Kafka's protocol.

    With the context of a client's TLS it is asked by HTTPS.
    """
    scheme = "http" if context is None else "https"
    address = f"{scheme}://127.0.0.1:{broker.http_port}{path}"

    def answers() -> bool:
        try:
            urllib.request.urlopen(address, timeout=5, context=context).close()
        except OSError:
            return False
        return True

    wait_until(answers, "HTTP is served", patience_s, shown=broker.log_text)
