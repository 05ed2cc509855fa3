"""Asks a running broker over HTTP."""

from __future__ import annotations

import contextlib
import http
import http.client
import json
import os
import re
import ssl
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

    token_file: str | None = None  # where a broker on this machine says that its token is


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
        raise _refused(url, error) from error
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
    if isinstance(cause, ssl.SSLCertVerificationError):
        return (
            f"nobody vouches for the certificate of {url} ({cause.verify_message}): say in "
            "SSL_CERT_FILE which file has that of its authority"
        )
    text = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    return (
        f"no broker answers at {url} ({text}): start it, or name its metrics.listener with "
        "--url or ODRADEK_URL"
    )


def _refused(url: str, error: urllib.error.HTTPError) -> AskError:
    try:
        answer = json.loads(error.read())
        told = str(answer["error"])
    except (ValueError, KeyError, TypeError, OSError):
        return AskError(
            f"{url} answered {error.code} {error.reason}: is it Odradek's metrics.listener?"
        )
    if error.code != http.HTTPStatus.UNAUTHORIZED:
        return AskError(told)
    refused = AskError(f"{told}; give it with --token or ODRADEK_TOKEN")
    file = answer.get("token_file")
    refused.token_file = file if isinstance(file, str) else None
    return refused


def _kept_token(url: str, refused: AskError) -> str | None:
    """Return the admin token of a broker on this machine, if its user may read it.

    The broker has said where it keeps it. A file of another name is not looked at, nor is one of
    a broker elsewhere: whoever answers there must not learn what is in this machine's files.
    """
    file = refused.token_file
    if file is None or Path(file).name != _TOKEN_FILE:
        return None
    if urllib.parse.urlsplit(url).hostname not in _THIS_MACHINE:
        return None
    with contextlib.suppress(OSError):
        token = Path(file).read_text(errors="replace").strip()
        return token if _TOKEN.fullmatch(token) else None
    return None


def ask_with_token(
    url: str,
    path: str,
    parameters: Mapping[str, object],
    *,
    post: bool = False,
    token: str | None = None,
    timeout_s: float | None = ANSWER_TIMEOUT_S,
) -> dict[str, object]:
    """Ask as ask() does, and show a token where the broker wants one.

    The one given is shown, else that of ODRADEK_TOKEN, else one that the broker keeps on this
    machine. Raises AskError.
    """
    token = token or os.environ.get("ODRADEK_TOKEN") or None
    try:
        return ask(url, path, parameters, post=post, token=token, timeout_s=timeout_s)
    except AskError as refused:
        kept = _kept_token(url, refused) if token is None else None
        if kept is None:
            raise
    return ask(url, path, parameters, post=post, token=kept, timeout_s=timeout_s)


def answer_or_exit(
    url: str,
    path: str,
    parameters: Mapping[str, object],
    *,
    post: bool = False,
    token: str | None = None,
    timeout_s: float | None = None,
) -> dict[str, object]:
    """Return the answer, waiting as long as it takes; without one say why, and end the process."""
    try:
        return ask_with_token(
            url, path, parameters, post=post, token=token, timeout_s=timeout_s
        )
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
