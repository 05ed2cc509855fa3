"""Sends requests to a running broker over HTTP."""

from __future__ import annotations

import contextlib
import functools
import http
import http.client
import json
import os
import re
import socket
import ssl
import sys
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from odradek.cli.peer import owner_of_peer
from odradek.cli.place import DEFAULT_URL, ENVIRONMENT, URL_ENVIRONMENT, find_url
from odradek.config.printable import printable
from odradek.dataclass import dataclass

F = TypeVar("F", bound=Callable[..., None])

ANSWER_TIMEOUT_S = 60.0  # of requests that read no log

_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
_TOKEN_FILE = "odradek-admin-token"  # broker/web/access.py
_TOKEN_FILE_BYTES_MAX = 64
_TOKEN = re.compile(r"[A-Za-z0-9_-]{22}")
_ROOT = 0


class AskError(Exception):
    """There is no answer, or the broker refused; the message is one line for a person."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    reason: str
    text: bytes

    def document(self) -> dict[str, object] | None:
        """Return the answer's JSON object, None when the text is something else."""
        try:
            document = json.loads(self.text)
        except ValueError:
            return None
        return document if isinstance(document, dict) else None


def ask_with_token(
    url: str,
    path: str,
    parameters: Mapping[str, object],
    *,
    post: bool = False,
    token: str | None = None,
    timeout_s: float | None = ANSWER_TIMEOUT_S,
) -> dict[str, object]:
    """Request JSON, and send a token where the broker wants one. Raises AskError.

    The token is the argument, else ODRADEK_TOKEN, else the one that the broker keeps in a file
    on this machine. Parameters that are None are left out.
    """
    token = token or os.environ.get("ODRADEK_TOKEN") or None
    query = urllib.parse.urlencode({k: v for k, v in parameters.items() if v is not None})
    asked = f"{path}{'?' if query else ''}{query}"
    method = "POST" if post else "GET"
    try:
        connection, prefix = _connect(url, timeout_s)
        with contextlib.closing(connection):
            answer = _exchange(connection, method, prefix + asked, token)
            if answer.status == http.HTTPStatus.UNAUTHORIZED and token is None:
                kept = _kept_token(url, connection.sock, answer)
                if kept is not None:
                    answer = _exchange(connection, method, prefix + asked, kept)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise AskError(_unreachable(url, error)) from error
    if not 200 <= answer.status < 300:
        raise AskError(_refusal(url, answer))
    document = answer.document()
    if document is None:
        raise AskError(f"{url} is not Odradek's: name its metrics.listener with --url")
    return document


def _connect(url: str, timeout_s: float | None) -> tuple[http.client.HTTPConnection, str]:
    """Connect to a broker; return the connection, and the prefix of its paths.

    There is one connection, so that only the peer that asked for a token receives it: no proxy,
    which has no business between a tool and its broker, and no target of a redirect.
    """
    place = urllib.parse.urlsplit(url)
    if place.scheme not in ("http", "https") or not place.hostname:
        raise ValueError("no address that begins with http:// or https://")
    is_secured = place.scheme == "https"
    kind = http.client.HTTPSConnection if is_secured else http.client.HTTPConnection
    connection = kind(place.hostname, place.port, timeout=timeout_s)
    connection.connect()
    connection.auto_open = 0
    return connection, place.path.rstrip("/")


def _exchange(
    connection: http.client.HTTPConnection, method: str, target: str, token: str | None
) -> _Answer:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    connection.request(method, target, headers=headers)
    response = connection.getresponse()
    return _Answer(response.status, response.reason, response.read())


def _unreachable(url: str, cause: object) -> str:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return (
            f"the certificate of {url} is not trusted ({cause.verify_message}): set "
            "SSL_CERT_FILE to a file with the certificate of its authority"
        )
    text = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    return (
        f"no broker answers at {url} ({text}): start it, or name its metrics.listener with "
        "--url or ODRADEK_URL"
    )


def _refusal(url: str, answer: _Answer) -> str:
    document = answer.document()
    if document is None or "error" not in document:
        return f"{url} answered {answer.status} {answer.reason}: is it Odradek's metrics.listener?"
    if answer.status != http.HTTPStatus.UNAUTHORIZED:
        return str(document["error"])
    return f"{document['error']}; give it with --token or ODRADEK_TOKEN"


def _kept_token(url: str, connection: socket.socket | None, answer: _Answer) -> str | None:
    """Return the admin token of a broker on this machine, if this user may read it.

    The broker's answer names the file. A stranger at that address must not learn the contents of
    this machine's files: a file of another name is not read, nor the file of a broker elsewhere,
    and the token is sent only to the file's owner and root. Any user may have taken the port of a
    broker that is down; where this machine does not report the peer's user, no token is sent.
    Raises AskError.
    """
    file = (answer.document() or {}).get("token_file")
    if not isinstance(file, str) or Path(file).name != _TOKEN_FILE or connection is None:
        return None
    if urllib.parse.urlsplit(url).hostname not in _THIS_MACHINE:
        return None
    try:
        token, owner = _read_owned(file)
    except (OSError, ValueError):
        return None
    peer = owner_of_peer(connection)
    if peer is None or not _TOKEN.fullmatch(token):
        return None
    if peer not in (_ROOT, owner):
        raise AskError(
            f"the server at {url} runs as user {peer}, not as the owner of {file}: the token is "
            "not sent to it"
        )
    return token


def _read_owned(file: str) -> tuple[str, int]:
    """Return the beginning of a file, and its owner; the peer that named it may be another."""
    # If the file is a pipe, the command must not wait for a writer.
    opened = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        text = os.read(opened, _TOKEN_FILE_BYTES_MAX).decode("ascii", "replace")
        return text.strip(), os.fstat(opened).st_uid
    finally:
        os.close(opened)


def answer_or_exit(
    url: str,
    path: str,
    parameters: Mapping[str, object],
    *,
    post: bool = False,
    token: str | None = None,
    timeout_s: float | None = None,
) -> dict[str, object]:
    """Return the answer; without one, print the reason and exit. No timeout waits forever."""
    try:
        return ask_with_token(
            url, path, parameters, post=post, token=token, timeout_s=timeout_s
        )
    except AskError as error:
        click.echo(f"odradek: {printable(str(error))}", err=True)
        sys.exit(1)


def url_option(command: F) -> F:
    """Add the option for the broker's address, which the command gets in any case."""

    @click.option(
        "--url",
        help="The URL of the broker's metrics.listener. Brokers named by `odradek -b …`, by "
        f"{ENVIRONMENT} or by a profile are asked for theirs.  [env var: {URL_ENVIRONMENT}; "
        f"default: {DEFAULT_URL}]",
    )
    @functools.wraps(command)
    def run(*args: Any, url: str | None, **kwargs: Any) -> None:
        command(*args, url=find_url(url), **kwargs)

    return run  # type: ignore[return-value]


def token_option(command: F) -> F:
    """Add the option for the admin token."""
    return click.option(
        "--token",
        envvar="ODRADEK_TOKEN",
        show_envvar=True,
        help="The broker's admin token. The token of a broker on this machine is found "
        "automatically.",
    )(command)
