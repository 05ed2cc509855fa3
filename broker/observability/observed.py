"""The parts of a broker that metrics are read from, besides those that handlers use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from odradek.broker.network.server import Server
from odradek.broker.services import Services
from odradek.cleaner.runtime.pool import CleanerPool
from odradek.storage.directory import LogDirectory
from odradek.storage.log import Log

if TYPE_CHECKING:
    from odradek.broker.catalog.membership import Membership
    from odradek.broker.shared.sharing import Sharing


class Observed(Services, Protocol):
    """The parts of a broker that metrics are read from."""

    server: Server
    cleaner: CleanerPool
    started_ms: int
    # In a cluster; None without a catalog.
    membership: Membership | None
    # With an object store; None without one.
    sharing: Sharing | None

    @property
    def directories(self) -> Sequence[LogDirectory]:
        """The log directories in use."""

    def logs(self) -> Iterator[Log]:
        """Iterate over the logs of all partitions."""

    def problems(self) -> list[str]:
        """Return the problems that an operator has to solve; none when all is well."""
