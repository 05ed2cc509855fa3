"""Explains failures of connections to other brokers, with the remedy where there is one."""

from __future__ import annotations

import ssl

from odradek.broker.metadata.members import Endpoint
from odradek.broker.peers.errors import PeerRefuses

# In the reason when the peer sends an alert, as it does when it refuses a certificate.
_ALERT = "ALERT_"
# OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH.
_OTHER_HOST = (62, 64)


def refusal_of(error: Exception, endpoint: Endpoint) -> PeerRefuses | None:
    """Return the refusal that an error of a connection is; None where the peer is just away."""
    if not isinstance(error, ssl.SSLError):
        return None
    prefix = f"listener.name.{endpoint.name.lower()}.ssl"
    if isinstance(error, ssl.SSLCertVerificationError):
        shown = f"shows a certificate that is not accepted: {error.verify_message}"
        if error.verify_code in _OTHER_HOST:
            return PeerRefuses(
                f"{shown}: issue one with this name, or set "
                f"{prefix}.endpoint.identification.algorithm to nothing, which checks no names"
            )
        return PeerRefuses(f"{shown}: let {prefix}.truststore.* here have its authority")
    reason = error.reason or ""
    if _ALERT not in reason:
        return None
    words = reason.partition(_ALERT)[2].replace("_", " ").lower()
    return PeerRefuses(
        f"refuses the certificate, version or cipher suites of this broker: {words}: check "
        f"{prefix}.keystore.* here, and {prefix}.truststore.* there"
    )
