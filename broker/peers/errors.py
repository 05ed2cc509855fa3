"""The reasons why another broker cannot be asked."""

from __future__ import annotations

from collections.abc import Sequence


class PeerAway(Exception):
    """Another broker cannot be reached, or has not answered; the message says why."""


class PeerRefuses(PeerAway):
    """Settings or rights of two brokers do not fit together; the message has the remedy."""


class MechanismRefused(PeerRefuses):
    """A listener does not serve the mechanism of a login; it has those that are served."""

    def __init__(self, message: str, served: Sequence[str]) -> None:
        super().__init__(message)
        self.served = served


class LoginRefused(PeerRefuses):
    """The credentials of a login are refused; it has the reason that was sent."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason
