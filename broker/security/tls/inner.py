"""The connection inside of TLS, as its transport sees it."""

from __future__ import annotations

import asyncio
from typing import Protocol

from odradek.broker.security.principals import Principal


class InnerClient(Protocol):
    """The client at the other end."""

    principal: Principal


class InnerConnection(Protocol):
    """A connection: it takes plain bytes, as asyncio.BufferedProtocol does."""

    @property
    def peer(self) -> str:
        """The client's address."""

    @property
    def client(self) -> InnerClient:
        """The client at the other end."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the place for the next bytes."""

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes that came."""

    def eof_received(self) -> bool:
        """Take the end of the client's stream; return whether the connection stays open."""

    def pause_writing(self) -> None:
        """Write no more: the client does not read."""

    def resume_writing(self) -> None:
        """Write again."""
