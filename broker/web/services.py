"""The parts of a broker that the routes use."""

from __future__ import annotations

from typing import Protocol

from odradek.broker.observability.observed import Observed
from odradek.broker.observability.samples import Samples
from odradek.storage.files import FileSystem


class WebServices(Observed, Protocol):
    """The parts of a broker that the routes use."""

    fs: FileSystem
    samples: Samples
    accepts_clients: bool
