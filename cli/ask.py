"""Asks a running broker over HTTP."""

from __future__ import annotations

import http.client
import json
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import TypeVar

import click

F = TypeVar("F", bound=Callable[..., None])

DEFAULT_URL = "http://127.0.0.1:9308"  # metrics.listener's default

ANSWER_TIMEOUT_S = 60.0  # of questions that take no reading of a log


class AskError(Exception):
    """There is no answer, or it is no; the message is one line for a person."""


def ask(
    url: str,
    path: str,
    parameters: Mapping[str, object],
    *,
    post: bool = False,
    timeout_s: float | None = ANSWER_TIMEOUT_S,
) -> dict[str, object]:
    """Ask for JSON; parameters that are None are left out. Raises AskError."""
    query = urllib.parse.urlencode({k: v for k, v in parameters.items() if v is not None})
    asked = f"{url.rstrip('/')}{path}{'?' if query else ''}{query}"
    # A proxy for the world outside has no business between a tool and its broker.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        request = urllib.request.Request(asked, method="POST" if post else "GET")
        with opener.open(request, timeout=timeout_s) as response:
            text = response.read()
    except urllib.error.HTTPError as error:
        raise AskError(_refusal(url, error)) from error
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


def answer_or_exit(
    url: str,
    path: str,
    parameters: Mapping[str, object],
    *,
    post: bool = False,
    timeout_s: float | None = None,
) -> dict[str, object]:
    """Return the answer, waiting as long as it takes; without one say why, and end the process."""
    try:
        return ask(url, path, parameters, post=post, timeout_s=timeout_s)
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
