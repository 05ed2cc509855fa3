"""Disks that can be full: each is a small file system in memory, mounted below a folder.

A mount needs root. Where there are none, brokers have the machine's own disk, which is never full.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_SIZE_BYTES = 1 << 30  # memory that is not used is not taken
_TRIES = 20


@dataclass(frozen=True)
class Disk:
    """A mounted disk; what it has is gone with it."""

    folder: Path

    def fill(self) -> None:
        """Let it have no room, or a page or two, whatever is written meanwhile."""
        for _ in range(_TRIES):
            found = os.statvfs(self.folder)
            used_bytes = (found.f_blocks - found.f_bfree) * found.f_frsize
            if self._resize(max(used_bytes, found.f_frsize)):
                return
        raise RuntimeError(f"{self.folder} grows too quickly to be filled")

    def make_room(self) -> None:
        """Let it have room again."""
        assert self._resize(_SIZE_BYTES), f"{self.folder} cannot be made larger"

    def _resize(self, size_bytes: int) -> bool:
        command = ["mount", "-o", f"remount,size={size_bytes}", str(self.folder)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextmanager
def mounted(folder: Path, copy: Path) -> Iterator[Disk | None]:
    """Mount a disk at a new folder; None where that is not allowed.

    In the end its contents are copied to `copy`, a new folder.
    """
    folder.mkdir(parents=True)
    if not _mount(folder):
        yield None
        return
    try:
        yield Disk(folder)
        shutil.copytree(folder, copy)
    finally:
        # Lazily: a process that was killed may not be gone yet.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def can_mount() -> bool:
    """Return whether this process may mount disks."""
    with tempfile.TemporaryDirectory() as folder:
        if not _mount(Path(folder)):
            return False
        subprocess.run(["umount", folder], check=True)
    return True


def _mount(folder: Path) -> bool:
    if shutil.which("mount") is None:
        return False
    command = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE_BYTES},mode=700", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
