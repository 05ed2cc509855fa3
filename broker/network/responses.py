"""The responses of one connection: their places in its order, and how they are sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from odradek.broker.counters.latency import Times
from odradek.protocol.encoding import Chunk

# Below this size, joining the pieces of a response costs less than writing them one by one.
_JOIN_BELOW_BYTES = 256 * 1024
# Up to this size, responses are kept until the requests of one reading are served. Larger ones go
# to the transport, which reports a client that does not read.
_GATHERED_BYTES_MAX = 16 * 1024


class Outgoing:
    """Writes responses; those to the requests of one reading are sent together.

    Sending costs as much as serving a request, and wakes up the client each time.
    """

    __slots__ = ("_gathered", "_gathered_bytes", "is_gathering")

    def __init__(self) -> None:
        self._gathered: list[Chunk] = []
        self._gathered_bytes = 0
        # Whether small responses are kept for now.
        self.is_gathering = False

    def gather(self) -> None:
        """Keep small responses until flush() is called."""
        self.is_gathering = True

    def flush(self, transport: asyncio.Transport) -> None:
        """Write the kept responses, and keep none from now on."""
        self.is_gathering = False
        if self._gathered:
            self._send(transport)

    def write(self, transport: asyncio.Transport, chunks: list[Chunk]) -> None:
        """Write a response, or keep it."""
        if len(chunks) == 1 and self.is_gathering:
            self._gathered += chunks
            self._gathered_bytes += len(chunks[0])
            if self._gathered_bytes > _GATHERED_BYTES_MAX:
                self._send(transport)
            return
        if self._gathered:
            self._send(transport)
        if len(chunks) == 1:
            transport.write(chunks[0])
            return
        joined: list[Chunk] = []
        small: list[Chunk] = []
        for chunk in chunks:
            if len(chunk) < _JOIN_BELOW_BYTES:
                small.append(chunk)
                continue
            joined.append(b"".join(small))
            joined.append(chunk)
            small = []
        if small:
            joined.append(b"".join(small))
        if len(joined) == 1:
            transport.write(joined[0])
        else:
            transport.writelines(joined)

    def _send(self, transport: asyncio.Transport) -> None:
        gathered = self._gathered
        transport.write(gathered[0] if len(gathered) == 1 else b"".join(gathered))
        self._gathered, self._gathered_bytes = [], 0


class Slot:
    """A response's place in the order of its connection."""

    __slots__ = (
        "awaited",
        "begun_ns",
        "chunks",
        "hurry",
        "is_alone",
        "overlaps",
        "request_bytes",
        "times",
    )

    def __init__(self, awaited: asyncio.Future[Any] | None, *, overlaps: bool) -> None:
        self.awaited = awaited
        self.overlaps = overlaps
        # Whether later requests are held back although they may overlap.
        self.is_alone = False
        # Makes the response come sooner, where it waits for more records.
        self.hurry: Callable[[], None] | None = None
        self.chunks: list[Chunk] | None = None
        # The bytes of its request, where they are counted and in use.
        self.request_bytes = 0
        # Where to count the time that the response took, and its beginning.
        self.times: Times | None = None
        self.begun_ns = 0

    @property
    def keeps_request(self) -> bool:
        """Whether the request's bytes are in use until the response is ready.

        This holds for a Produce request, and for one in slices, which may not be decoded yet.
        """
        return self.chunks is None and (self.overlaps or self.awaited is None)

    def cancel(self) -> None:
        """Stop waiting: the client is gone."""
        if self.awaited is not None and not self.awaited.done():
            self.awaited.cancel()
