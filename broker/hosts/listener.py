"""An address that the broker listens on."""

from __future__ import annotations

from odradek.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Listener:
    """An address that the broker listens on, and the address that it advertises to clients."""

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int
    protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host or "*"
        return f"{host}:{self.port}"
