"""Says in words why TLS came to nothing, for the log; OpenSSL's own words are for its authors."""

from __future__ import annotations

import ssl

NOT_TLS = (
    "what came is no TLS: does the client speak to a TLS listener without it "
    "(security.protocol=PLAINTEXT, SASL_PLAINTEXT)?"
)

_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client sent no certificate, which "
    "ssl.client.auth=required asks for",
    "NO_SHARED_CIPHER": "the client offers none of the cipher suites that are served",
    "UNSUPPORTED_PROTOCOL": "the client offers no version of TLS that is served "
    "(ssl.enabled.protocols)",
    "WRONG_VERSION_NUMBER": NOT_TLS,
    "HTTP_REQUEST": "what came is no TLS: an HTTP request came to a listener of Kafka's protocol, "
    "HTTP is served at metrics.listener",
}
# What a client sends when it does not like the broker's certificate.
_ALERT = "ALERT_"


class HandshakeFailed(Exception):
    """The client is not let in, for the reason given."""


def explain(error: ssl.SSLError) -> str:
    """Return what was wrong."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not accepted: {error.verify_message}"
    reason = error.reason or "unknown"
    if _ALERT in reason:
        words = reason.partition(_ALERT)[2].replace("_", " ").lower()
        return f"the client refused the broker's certificate, or what it was offered: {words}"
    return _REASONS.get(reason, f"TLS failed: {reason.replace('_', ' ').lower()}")
