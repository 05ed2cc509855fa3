"""The transport of a connection before it is made, and once it is lost."""

from __future__ import annotations

import asyncio


class _NotConnected(asyncio.Transport):
    """Does nothing: nothing is connected."""

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def write_eof(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


NOT_CONNECTED = _NotConnected()
