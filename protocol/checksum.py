"""CRC-32C, the checksum of record batches and of several files, by the CPU's own instruction.

When the package of that name is imported, it asks for its own version, which loads the code that
reads packages' metadata: 30 ms, a tenth of a start. Its extension module does not need that.
"""

from __future__ import annotations

import importlib.util
from importlib.machinery import PathFinder
from typing import Protocol, cast

from odradek.protocol.compression import Buffer


class _Crc32c(Protocol):
    def __call__(self, data: Buffer, value: int = 0, /) -> int: ...


def _load() -> _Crc32c:
    package = PathFinder.find_spec("crc32c")
    if package is not None:
        spec = PathFinder.find_spec("_crc32c", package.submodule_search_locations)
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return cast(_Crc32c, module.crc32c)
    # The package is built in another way, without such an extension module.
    from crc32c import crc32c as found

    return cast(_Crc32c, found)


crc32c = _load()
