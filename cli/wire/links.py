"""A connection to one broker, on which each request has the highest version that both know."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from typing import Any, TypeVar

from odradek.broker.metadata.members import Endpoint
from odradek.broker.peers.connections import Connection
from odradek.broker.peers.errors import LoginRefused, MechanismRefused, PeerRefuses
from odradek.cli import VERSION
from odradek.cli.wire.logins import login_of
from odradek.cli.wire.security import Properties, context_of, protocol_of
from odradek.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from odradek.protocol.schema import info_of

T = TypeVar("T")

# Brokers since Kafka 2.4 answer this version; a later one could be answered by version 0.
_API_VERSIONS_VERSION = 3
_NUMBER = re.compile(r"\[Errno (-?\d+)\]")


class Away(Exception):
    """A broker is not reached, or does not answer; the message is the reason, "" without one."""


class Unsupported(Exception):
    """A broker does not serve a version of a request that is needed."""


class Access:
    """How a client connects: its name, its TLS and its login."""

    def __init__(self, properties: Properties) -> None:
        """Read the properties; raises CommandError."""
        self.log_in = login_of(properties)
        self.protocol = protocol_of(properties)
        self.client_id = properties.get("client.id", "odradek")
        self.context = context_of(properties)


class Link:
    """A connection to one broker, and the versions that the broker serves."""

    def __init__(self, connection: Connection, served: dict[int, ApiVersion]) -> None:
        self._connection, self._served = connection, served

    @staticmethod
    async def open(host: str, port: int, access: Access, timeout_s: float) -> Link:
        """Connect, log in, and ask for the versions. Raises Away."""
        endpoint = Endpoint(access.protocol, host, port, access.protocol)
        connection = Connection(endpoint, access.client_id, access.context, access.log_in)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await connection.ask(
                    api_versions_request(), _API_VERSIONS_VERSION, ApiVersionsResponse
                )
        except (OSError, PeerRefuses) as error:
            connection.close()
            raise Away(_reason(error)) from error
        return Link(connection, {one.api_key: one for one in answer.api_keys})

    @property
    def is_usable(self) -> bool:
        """Whether more requests may be sent."""
        return self._connection.is_usable

    async def ask(self, request: Any, response: type[T], least: int, timeout_s: float) -> T:
        """Send a request in version `least` or later; return the answer.

        Raises Away or Unsupported.
        """
        version = self._version(type(request), least)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._connection.ask(request, version, response)
        except TimeoutError as error:
            raise Away("there was no answer in time") from error
        except (OSError, PeerRefuses) as error:
            raise Away(_reason(error) or "the connection was lost") from error

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _version(self, request: type, least: int) -> int:
        info = info_of(request)
        served = self._served.get(info.key)
        if served is not None:
            version = min(served.max_version, info.versions.last)
            if version >= max(served.min_version, info.versions.first, least):
                return version
        raise Unsupported


def api_versions_request() -> ApiVersionsRequest:
    """Return the request for a broker's versions and features; it names this software."""
    # Kafka permits no other characters.
    version = re.sub(r"[^a-zA-Z0-9.-]", "-", VERSION)
    return ApiVersionsRequest(client_software_name="odradek", client_software_version=version)


def _reason(error: Exception) -> str:
    """Return the reason of a failure in librdkafka's words, "" where the peer says nothing."""
    if isinstance(error, MechanismRefused):
        return f"Unsupported SASL mechanism: supported mechanisms: {','.join(error.served)}"
    if isinstance(error, LoginRefused):
        return f"SASL authentication error: {error.reason}"
    cause = error.__cause__ if isinstance(error, PeerRefuses) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):
        words = (cause.reason or str(cause)).replace("_", " ").lower()
        _, alert, what = words.partition("alert ")
        return f"SSL {alert}{what}" if alert else f"SSL handshake failed: {words}"
    if isinstance(cause, TimeoutError | ConnectionResetError | BrokenPipeError):
        return ""
    if isinstance(cause, OSError):
        # asyncio writes one number for each address of the host.
        number = _NUMBER.search(str(cause))
        known = int(number[1]) if number else 0
        return os.strerror(known) if known > 0 else cause.strerror or ""
    return str(error)
