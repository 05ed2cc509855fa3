"""The files that `odradek init` writes, by the parts that a user names.

All but server.properties lie in `odradek/share`: in a wheel they are copies, in a checkout links.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import odradek
from odradek.cli.starting_settings import starting_settings

SHARE = Path(odradek.__file__).parent / "share"
# The command's place in the unit, where `pipx install --global` has it.
_GLOBAL_COMMAND = "/usr/local/bin/odradek"


SETTINGS = "settings"
STARTING = (SETTINGS, "systemd", "compose")
# Of each part but the settings: a pattern below `odradek/share`, and the folder of its files.
PARTS: dict[str, tuple[tuple[str, str], ...]] = {
    SETTINGS: (),
    "systemd": (("systemd/*.service", ""),),
    "compose": (("compose/*.yml", ""),),
    "alerts": (("docs/alerts/*.yml", "alerts"),),
    "dashboards": (("docs/grafana/*.json", "dashboards"),),
    "helm": (
        ("helm/odradek/*", "helm/odradek"),
        ("helm/odradek/templates/*", "helm/odradek/templates"),
    ),
    "docs": (
        ("docs/*.md", "docs"),
        ("docs/pytest_fixture.py", "docs"),
        ("docs/images/*", "docs/images"),
        ("docs/alerts/*.yml", "docs/alerts"),
        ("docs/grafana/*.json", "docs/grafana"),
    ),
}


def starting_files(folder: Path, parts: Sequence[str], command: Path) -> dict[Path, bytes]:
    """Return the contents of the files of parts, by their paths in a folder.

    `command` is the running command, which the unit starts. Raises ValueError with the reason why
    a part cannot be had.
    """
    found: dict[Path, bytes] = {}
    for name in parts:
        if name == SETTINGS:
            text = starting_settings(folder.absolute() / "data")
            found[folder / "server.properties"] = text.encode()
            continue
        shared = list(_shared(folder, name))
        if not shared:
            raise ValueError(f"this installation lacks the part {name}: install the wheel")
        found |= shared
    unit = folder / "odradek.service"
    if unit in found:
        found[unit] = _with_command(found[unit], command)
    return found


def _shared(folder: Path, part: str) -> Iterator[tuple[Path, bytes]]:
    for pattern, target in PARTS[part]:
        for path in sorted(SHARE.glob(pattern)):
            if path.is_file():
                yield folder / target / path.name, path.read_bytes()


def _with_command(unit: bytes, command: Path) -> bytes:
    """Return a unit that starts the command, if it is one that services can see.

    The unit has ProtectHome: to a service, home folders are empty.
    """
    is_seen = command.name == "odradek" and not command.is_relative_to(Path.home())
    if not (is_seen and command.is_file()) or "home" in command.parts[:2]:
        return unit
    old = f"ExecStart={_GLOBAL_COMMAND} ".encode()
    return unit.replace(old, f"ExecStart={command} ".encode())
