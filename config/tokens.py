"""What a broker is told of delegation tokens (KIP-48)."""

from __future__ import annotations

from collections.abc import Iterator

from config.option import DAY_MS, HOUR_MS, option, options
from config.values import at_least, int64, password


@options
class TokenConfig:
    """The settings of delegation tokens."""

    delegation_token_secret_key: password | None = option(
        "delegation.token.secret.key",
        default=None,
        doc="The key that every delegation token is made with. Without one, or with an empty "
        "one, there are no delegation tokens. Who knows it can make up any token's password; "
        "when it changes, no token works any more.",
    )
    delegation_token_max_lifetime_ms: int64 = option(
        "delegation.token.max.lifetime.ms",
        default=7 * DAY_MS,
        valid=at_least(1),
        doc="How long a token lives at most, however often it is renewed.",
    )
    delegation_token_expiry_time_ms: int64 = option(
        "delegation.token.expiry.time.ms",
        default=DAY_MS,
        valid=at_least(1),
        doc="After how long a token must be renewed.",
    )
    delegation_token_expiry_check_interval_ms: int64 = option(
        "delegation.token.expiry.check.interval.ms",
        default=HOUR_MS,
        valid=at_least(1),
        doc="How often expired tokens are looked for and removed. They are refused before that.",
    )


def token_problems(config: TokenConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what contradicts: nothing does."""
    yield from ()
