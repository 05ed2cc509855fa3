"""A disk is full when it is asked to be, and only then."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.siege.disks import can_mount, mounted


@pytest.mark.skipif(not can_mount(), reason="mounts need root")
def test_a_disk_is_full_until_it_has_room(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", tmp_path / "copy") as disk:
        assert disk is not None
        file = disk.folder / "file"
        file.write_bytes(bytes(100_000))
        disk.fill()
        with pytest.raises(OSError) as found:
            (disk.folder / "other").write_bytes(bytes(100_000))
        assert found.value.errno == errno.ENOSPC
        disk.make_room()
        file.write_bytes(bytes(200_000))
    assert not list((tmp_path / "disk").iterdir())
    assert len((tmp_path / "copy" / "file").read_bytes()) == 200_000
