"""Stand-ins of Debian's packages for the images of others that docker-compose.yml names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.processes import kafka_libs
from bench.servers import s3_server
from odradek.dataclass import dataclass
from tests.containers.engine import FOLDER, JAVA, PYTHON, Engine
from tests.support import registry

CONNECTORS = FOLDER / "connectors"
_IMAGES = Path(__file__).parent / "images"


@dataclass(frozen=True, slots=True)
class StandIn:
    """An image, and what it takes of this machine."""

    name: str
    folders: Mapping[str, Path | None]
    base: str = PYTHON

    def image(self, engine: Engine) -> str | None:
        """Build it; return its name, None where something is missing here."""
        options = []
        for name, folder in self.folders.items():
            if folder is None or not folder.is_dir():
                return None
            options += ["--build-context", f"{name}={folder}"]
        if self.base == JAVA:
            _build(engine, "java", JAVA)
        image = f"localhost/odradek-tests/{self.name}"
        _build(engine, self.name, image, *options, base=self.base)
        return image


# By the names of their services.
STAND_INS = {
    "catalog": StandIn("postgres", {}),
    "s3": StandIn("s3", {"s3": s3_server.PROGRAM.parent}),
    "registry": StandIn("registry", {"registry": registry.FOLDER}, JAVA),
    "connect": StandIn("kafka", {"libs": kafka_libs(), "connectors": CONNECTORS}, JAVA),
    "prometheus": StandIn("prometheus", {}),
}


def _build(engine: Engine, name: str, image: str, *options: str, base: str = PYTHON) -> None:
    file = _IMAGES / f"{name}.Containerfile"
    engine.build(image, _IMAGES, "--file", str(file), *options, base=base)
