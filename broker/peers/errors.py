"""The reasons why another broker cannot be asked."""

from __future__ import annotations


class PeerAway(Exception):
    """Another broker cannot be reached, or has not answered; the message says why."""


class PeerRefuses(PeerAway):
    """Settings or rights of two brokers do not fit together; the message has the remedy."""
