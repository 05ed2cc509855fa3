"""Settings of delegation tokens (KIP-48)."""

from __future__ import annotations

from collections.abc import Iterator

from odradek.config.option import DAY_MS, HOUR_MS, option, options
from odradek.config.values import at_least, int64, password


@options
class TokenConfig:
    """The settings of delegation tokens."""

    delegation_token_secret_key: password | None = option(
        "delegation.token.secret.key",
        default=None,
        doc="The key that the password of every delegation token is computed with. When it is "
        "not set or empty, there are no delegation tokens. Anybody with the key can compute any "
        "token's password; when the key changes, no older token works.",
    )
    delegation_token_max_lifetime_ms: int64 = option(
        "delegation.token.max.lifetime.ms",
        default=7 * DAY_MS,
        valid=at_least(1),
        doc="The longest lifetime of a token, however often it is renewed.",
    )
    delegation_token_expiry_time_ms: int64 = option(
        "delegation.token.expiry.time.ms",
        default=DAY_MS,
        valid=at_least(1),
        doc="How long a token is valid unless it is renewed.",
    )
    delegation_token_expiry_check_interval_ms: int64 = option(
        "delegation.token.expiry.check.interval.ms",
        default=HOUR_MS,
        valid=at_least(1),
        doc="How often the broker looks for expired tokens and removes them. It refuses them "
        "before that.",
    )


def token_problems(config: TokenConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield nothing: these settings cannot contradict each other."""
    yield from ()
