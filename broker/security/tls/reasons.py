"""Explains failures of TLS in the log; OpenSSL's own words are for its authors."""

from __future__ import annotations

import ssl

NOT_TLS = (
    "the client does not speak TLS to this TLS listener: is its security.protocol PLAINTEXT or "
    "SASL_PLAINTEXT?"
)

_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client sent no certificate, which "
    "ssl.client.auth=required asks for",
    "NO_SHARED_CIPHER": "the client offers none of the cipher suites that are served",
    "UNSUPPORTED_PROTOCOL": "the client offers no version of TLS that is served "
    "(ssl.enabled.protocols)",
    "WRONG_VERSION_NUMBER": NOT_TLS,
    "HTTP_REQUEST": "the client does not speak TLS: it sent an HTTP request to a listener of "
    "Kafka's protocol; HTTP is served at metrics.listener",
}
# In the reason when a client sends an alert, as it does when it refuses the broker's certificate.
_ALERT = "ALERT_"


class HandshakeFailed(Exception):
    """The client is refused, for the reason in the message."""


def explain(error: ssl.SSLError) -> str:
    """Return the reason of an error, in words for an operator."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not accepted: {error.verify_message}"
    reason = error.reason or "unknown"
    if _ALERT in reason:
        words = reason.partition(_ALERT)[2].replace("_", " ").lower()
        return f"the client refused the broker's certificate, version or cipher suites: {words}"
    return _REASONS.get(reason, f"TLS failed: {reason.replace('_', ' ').lower()}")
