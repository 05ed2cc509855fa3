"""An environment with the packages of a lock file and no others, out of those installed here.

Nothing is fetched: the packages are links to those of the interpreter that runs the tests.
"""

from __future__ import annotations

import re
import sys
import venv
from importlib import metadata
from pathlib import Path


def make_environment(folder: Path, lock: Path) -> Path:
    """Make a virtual environment of a lock file's packages; return its interpreter."""
    venv.create(folder, symlinks=True, with_pip=False)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    for name in re.findall(r"^([A-Za-z0-9._-]+)==", lock.read_text(), re.M):
        found = metadata.distribution(name)
        place = Path(str(found.locate_file("")))
        for top in {one.parts[0] for one in found.files or ()} - {"..", "__pycache__"}:
            link = packages / top
            if not link.exists():
                link.symlink_to(place / top)
    return folder / "bin" / "python"
