"""The token of a login by OAUTHBEARER, by librdkafka's properties.

    sasl.oauthbearer.method=oidc      an endpoint gives the token to a client with a secret, by the
                                      grant client_credentials (RFC 6749, section 4.4)
    sasl.oauthbearer.method=default   sasl.oauthbearer.config is the token: unsecured, for tests
"""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import field
from http.client import HTTPException
from typing import Any

from odradek.cli.refusals import CommandError, Unavailable
from odradek.cli.wire.security import Properties
from odradek.dataclass import dataclass
from odradek.deadline_http import add_login, fetch_within, read_bounded

_PREFIX = "sasl.oauthbearer"
_TIMEOUT_S = 10.0
_ANSWER_BYTES_MAX = 1 << 20
_CLIENT_CREDENTIALS = "client_credentials"
_LIFE_S = 3600


@dataclass(frozen=True, slots=True)
class Bearer:
    """A token, and the extensions that are sent with it."""

    token: str = field(repr=False)
    extensions: tuple[tuple[str, str], ...] = ()


def bearer_of(properties: Properties) -> Bearer:
    """Return the token for a login. Raises CommandError; the error does not show a secret."""
    if properties.get(f"{_PREFIX}.method", "default").lower() != "oidc":
        return Bearer(_unsecured(properties))
    grant = properties.get(f"{_PREFIX}.grant.type", _CLIENT_CREDENTIALS)
    if grant != _CLIENT_CREDENTIALS:
        raise Unavailable(
            f"this command cannot get a token by {_PREFIX}.grant.type={grant}: set it to "
            f"{_CLIENT_CREDENTIALS}"
        )
    url, client, secret = (
        _required(properties, f"{_PREFIX}.token.endpoint.url"),
        _required(properties, f"{_PREFIX}.client.id", f"{_PREFIX}.client.credentials.client.id"),
        _required(
            properties, f"{_PREFIX}.client.secret", f"{_PREFIX}.client.credentials.client.secret"
        ),
    )
    form = {"grant_type": _CLIENT_CREDENTIALS}
    if scope := properties.get(f"{_PREFIX}.scope"):
        form["scope"] = scope
    token = _fetch(url, f"{client}:{secret}", form, properties.get("https.ca.location"))
    return Bearer(token, _pairs(properties, f"{_PREFIX}.extensions", ","))


def _required(properties: Properties, *names: str) -> str:
    for name in names:
        if properties.get(name):
            return properties[name]
    raise CommandError(f"{names[0]} is not set: a login by OAUTHBEARER needs it (-X {names[0]}=…)")


def _pairs(properties: Properties, name: str, separator: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for part in (properties.get(name) or "").split(separator):
        key, mark, value = part.strip().partition("=")
        if not mark and part.strip():
            raise CommandError(f"{name}: {part.strip()} is not KEY=VALUE")
        if mark:
            pairs.append((key, value))
    return tuple(pairs)


def _fetch(url: str, credentials: str, form: dict[str, str], authority: str | None) -> str:
    """Ask an endpoint for a token. Raises CommandError."""
    headers = {"Accept": "application/json"}
    body = urllib.parse.urlencode(form).encode()
    try:
        request = urllib.request.Request(url, body, headers)  # noqa: S310 - HTTP only
        add_login(request, credentials)
        found = json.loads(fetch_within(request, _TIMEOUT_S, _ANSWER_BYTES_MAX, authority))
    except urllib.error.HTTPError as error:
        raise CommandError(f"no token from {url}: {_refusal(error)}") from error
    except (OSError, ValueError, RecursionError, HTTPException) as error:
        reason = " ".join(str(getattr(error, "reason", error)).split())
        raise CommandError(f"no token from {url}: {reason}") from error
    token = found.get("access_token") if isinstance(found, dict) else None
    if not isinstance(token, str) or not token.isascii() or not token.isprintable():
        raise CommandError(f"no token from {url}: the answer has no access_token")
    return token


def _refusal(error: urllib.error.HTTPError) -> str:
    """Return the reason in an answer (RFC 6749, section 5.2), and its status."""
    reason = ""
    try:
        found: Any = json.loads(read_bounded(error.fp, _ANSWER_BYTES_MAX))
        reason = " ".join(f": {found['error']} {found.get('error_description', '')}".split())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    finally:
        error.close()
    return f"the answer is {error.code}{reason[:300]}"


def _unsecured(properties: Properties) -> str:
    """Return an unsecured token (RFC 7515, appendix A.5), as librdkafka makes it."""
    if properties.get("enable.sasl.oauthbearer.unsecure.jwt", "false").lower() != "true":
        raise CommandError(
            f"a login by OAUTHBEARER needs {_PREFIX}.method=oidc and its endpoint, or for tests "
            "enable.sasl.oauthbearer.unsecure.jwt=true"
        )
    given = dict(_pairs(properties, f"{_PREFIX}.config", " "))
    if "principal" not in given:
        raise CommandError(f"{_PREFIX}.config has no principal=NAME")
    now_s = time.time()
    claims: dict[str, object] = {
        given.get("principalClaimName", "sub"): given["principal"],
        "iat": now_s,
        "exp": now_s + int(given.get("lifeSeconds", _LIFE_S)),
    }
    if "scope" in given:
        claims[given.get("scopeClaimName", "scope")] = given["scope"].split(",")
    parts = ({"alg": "none"}, claims)
    encoded = (base64.urlsafe_b64encode(json.dumps(one).encode()) for one in parts)
    return ".".join(one.rstrip(b"=").decode() for one in encoded) + "."
