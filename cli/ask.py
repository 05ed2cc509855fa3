"""Asks a running broker over HTTP."""

from __future__ import annotations

import contextlib
import http
import http.client
import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import click

F = TypeVar("F", bound=Callable[..., None])

DEFAULT_URL = "http://127.0.0.1:9308"  # metrics.listener's default

ANSWER_TIMEOUT_S = 60.0  # of questions that take no reading of a log


_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
_TOKEN_FILE = "odradek-admin-token"  # broker/web/access.py
_TOKEN = re.compile(r"[A-Za-z0-9_-]{22}")


class AskError(Exception):
    """There is no answer, or it is no; the message is one line for a person."""


def ask(
    url: str,
    path: str,
    parameters: Mapping[str, object],
    *,
    post: bool = False,
    token: str | None = None,
    timeout_s: float | None = ANSWER_TIMEOUT_S,
) -> dict[str, object]:
    """Ask for JSON; parameters that are None are left out. Raises AskError."""
    query = urllib.parse.urlencode({k: v for k, v in parameters.items() if v is not None})
    asked = f"{url.rstrip('/')}{path}{'?' if query else ''}{query}"
    # A proxy for the world outside has no business between a tool and its broker.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(
            asked, method="POST" if post else "GET", headers=headers
        )
        with opener.open(request, timeout=timeout_s) as response:
            text = response.read()
    except urllib.error.HTTPError as error:
        told = _refusal(url, error)
        if error.code == http.HTTPStatus.UNAUTHORIZED:
            told += "; give it with --token or ODRADEK_TOKEN"
        raise AskError(told) from error
    except urllib.error.URLError as error:
        raise AskError(_unreachable(url, error.reason)) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise AskError(_unreachable(url, error)) from error
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise AskError(f"{url} is not Odradek's: name its metrics.listener with --url")
    return answer


def _unreachable(url: str, cause: object) -> str:
    text = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    return (
        f"no broker answers at {url} ({text}): start it, or name its metrics.listener with "
        "--url or ODRADEK_URL"
    )


def _refusal(url: str, error: urllib.error.HTTPError) -> str:
    try:
        told = json.loads(error.read())["error"]
    except (ValueError, KeyError, TypeError, OSError):
        return f"{url} answered {error.code} {error.reason}: is it Odradek's metrics.listener?"
    return str(told)


def kept_token(url: str) -> str | None:
    """Return the admin token of a broker on this machine, if its user may read it.

    The broker says where it keeps it. A file of another name is not looked at, nor is one of a
    broker elsewhere: whoever answers there must not learn what is in this machine's files.
    """
    if urllib.parse.urlsplit(url).hostname not in _THIS_MACHINE:
        return None
    told = ask(url, "/api/broker", {}).get("token_file")
    if not isinstance(told, str) or Path(told).name != _TOKEN_FILE:
        return None
    with contextlib.suppress(OSError):
        token = Path(told).read_text(errors="replace").strip()
        return token if _TOKEN.fullmatch(token) else None
    return None


def answer_or_exit(
    url: str,
    path: str,
    parameters: Mapping[str, object],
    *,
    post: bool = False,
    token: str | None = None,
    timeout_s: float | None = None,
) -> dict[str, object]:
    """Return the answer, waiting as long as it takes; without one say why, and end the process.

    What changes something shows the admin token: the one given, or one kept on this machine.
    """
    try:
        if post and token is None:
            token = kept_token(url)
        return ask(url, path, parameters, post=post, token=token, timeout_s=timeout_s)
    except AskError as error:
        click.echo(f"odradek: {error}", err=True)
        sys.exit(1)


def url_option(command: F) -> F:
    """Add the option that says which broker to ask."""
    return click.option(
        "--url",
        default=DEFAULT_URL,
        envvar="ODRADEK_URL",
        show_default=True,
        show_envvar=True,
        help="The broker's metrics.listener.",
    )(command)


def token_option(command: F) -> F:
    """Add the option for the admin token."""
    return click.option(
        "--token",
        envvar="ODRADEK_TOKEN",
        show_envvar=True,
        help="The broker's admin token; that of a broker on this machine is found by itself.",
    )(command)
