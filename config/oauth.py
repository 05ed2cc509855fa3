"""Settings for tokens of an OAuth or OpenID Connect provider (OAUTHBEARER, KIP-768).

    listener.name.external.sasl.enabled.mechanisms=OAUTHBEARER
    sasl.oauthbearer.jwks.endpoint.url=https://idp.example/realms/main/certs
    sasl.oauthbearer.expected.issuer=https://idp.example/realms/main
    sasl.oauthbearer.expected.audience=kafka

A listener may have a provider of its own: listener.name.<listener>.oauthbearer.<option>.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from urllib.parse import urlsplit

from odradek.config.listeners import Listener
from odradek.config.option import HOUR_MS, option, options
from odradek.config.sasl import OAUTHBEARER, SaslConfig
from odradek.config.values import int32, int64, words

_SCHEMES = ("http", "https", "file")
_URL = "sasl.oauthbearer.jwks.endpoint.url"


@options
class OAuthConfig:
    """The rules by which a listener accepts a token."""

    sasl_oauthbearer_jwks_endpoint_url: str | None = option(
        _URL,
        default=None,
        doc="Where the provider's public keys are (JWKS): an https:// address, or file:/// and "
        "the path of a file. OAUTHBEARER needs it.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int64 = option(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        default=HOUR_MS,
        doc="How often the keys are fetched again; a changed file is read again. For a token "
        "with an unknown key they are fetched at once, within limits.",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int64 = option(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        default=100,
        doc="How soon the keys are fetched again after a first failure; the time doubles with "
        "each further failure.",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int64 = option(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        default=10_000,
        doc="The longest time between two attempts to fetch the keys.",
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = option(
        "sasl.oauthbearer.expected.audience",
        default=(),
        valid=words(empty=True),
        doc="A token must name one of these audiences (aud). When this is empty, a token must "
        "name no audience.",
    )
    sasl_oauthbearer_expected_issuer: str | None = option(
        "sasl.oauthbearer.expected.issuer",
        default=None,
        doc="A token must name this issuer (iss). When this is not set, any issuer is accepted, "
        "as long as one of the keys has signed the token.",
    )
    sasl_oauthbearer_clock_skew_seconds: int32 = option(
        "sasl.oauthbearer.clock.skew.seconds",
        default=30,
        doc="How far the provider's clock may be ahead or behind.",
    )
    sasl_oauthbearer_scope_claim_name: str = option(
        "sasl.oauthbearer.scope.claim.name",
        default="scope",
        doc="The claim with a token's scopes.",
    )
    sasl_oauthbearer_sub_claim_name: str = option(
        "sasl.oauthbearer.sub.claim.name",
        default="sub",
        doc="The claim with the name of the user that a token is for.",
    )


_BOUNDS = (
    ("sasl.oauthbearer.jwks.endpoint.refresh.ms", 1),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", 1),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", 1),
    ("sasl.oauthbearer.clock.skew.seconds", 0),
)


def oauth_problems(_: OAuthConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield nothing: these settings are checked only for listeners that use them."""
    yield from ()


def oauth_listener_problems(
    listeners: Iterable[Listener],
    sasl_of: Callable[[str, str], SaslConfig],
    oauth_of: Callable[[str, str], OAuthConfig],
) -> Iterator[str]:
    """Yield the problems that keep listeners with OAUTHBEARER from checking tokens.

    `sasl_of` and `oauth_of` return the settings of a listener, or of one of its mechanisms.
    """
    for listener in listeners:
        if not listener.protocol.startswith("SASL_"):
            continue
        if OAUTHBEARER in sasl_of(listener.name, "").sasl_enabled_mechanisms:
            for problem in _problems(oauth_of(listener.name, OAUTHBEARER)):
                yield f"listener {listener.name}: {problem}"


def _problems(config: OAuthConfig) -> Iterator[str]:
    url = config.sasl_oauthbearer_jwks_endpoint_url
    if not url:
        yield (
            f"{OAUTHBEARER} is enabled and has no keys to check tokens with: set {_URL} to the "
            "provider's JWKS, an https:// address or file:/// and a path"
        )
    elif problem := _problem_of_url(url):
        yield f"{_URL} {problem}"
    for name, low in _BOUNDS:
        if getattr(config, name.replace(".", "_")) < low:
            yield f"{name} must be at least {low}"
    for name in ("scope", "sub"):
        if not getattr(config, f"sasl_oauthbearer_{name}_claim_name").strip():
            yield f"sasl.oauthbearer.{name}.claim.name must not be empty"


def _problem_of_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        return f"is not a URL: {error}"
    if parts.scheme not in _SCHEMES:
        return f"begins with none of {', '.join(f'{one}:' for one in _SCHEMES)}"
    if parts.scheme == "file":
        return "" if parts.path and parts.netloc in ("", "localhost") else "names no file here"
    return "" if parts.hostname else "names no host"
