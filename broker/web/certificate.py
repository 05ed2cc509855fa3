"""The HTTP listener's certificate and key, from PEM files that may be replaced."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

from odradek.config.errors import ConfigError
from odradek.config.http import HttpConfig

logger = logging.getLogger(__name__)

_LOOK_S = 5.0

Stamp = tuple[tuple[int, int, int], ...]


def read_certificate(config: HttpConfig) -> Certificate | None:
    """Return the HTTP listener's certificate, None without TLS. Raises ConfigError."""
    return None if config.tls_files is None else Certificate(config)


class Certificate:
    """The TLS context of the connections; the event loop owns it."""

    def __init__(self, config: HttpConfig) -> None:
        """Read the files. Raises ConfigError, whose message has nothing of their contents."""
        assert config.tls_files is not None
        certificate, key = config.tls_files
        self._certificate, self._key = Path(certificate), Path(key)
        self._password = config.odradek_http_tls_key_password
        self.context = self._context()
        self._stamp = self._look()

    async def follow(self, *, every_s: float = _LOOK_S) -> None:
        """Read the files again whenever they have changed, until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            stamp = self._look()
            if stamp == self._stamp:
                continue
            self._stamp = stamp
            try:
                self._context()  # a key that does not fit would spoil the one in use
                self._load(self.context)
            except ConfigError as error:
                logger.error("kept the former certificate for HTTP: %s", error)
            else:
                logger.info("read the certificate for HTTP again path=%s", self._certificate)

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        context.set_alpn_protocols(["http/1.1"])
        self._load(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        # Without a password, OpenSSL would ask for one at the terminal.
        password = self._password or ""
        try:
            context.load_cert_chain(self._certificate, self._key, lambda: password)
        except ssl.SSLError as error:
            why = (error.reason or "they cannot be read").replace("_", " ").lower()
        except OSError as error:
            why = error.strerror or type(error).__name__
        else:
            return
        raise ConfigError(
            f"odradek.http.tls.certificate={self._certificate} and odradek.http.tls.key="
            f"{self._key} are not a certificate and its key in PEM, or the key's password is not "
            f"odradek.http.tls.key.password: {why}"
        )

    def _look(self) -> Stamp:
        found = []
        for path in (self._certificate, self._key):
            try:
                stat = path.stat()
            except OSError:
                continue  # it is being replaced; or reading it reports the error
            found.append((stat.st_ino, stat.st_mtime_ns, stat.st_size))
        return tuple(found)
