"""Compiles kernels with Numba, and names the types of their arguments and results.

Kernels take bytes as read-only arrays (`BYTES`), to which writable ones convert for free. An
import of this module loads Numba and NumPy (57 MB, 0.4 s).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
from numba import njit, types

from odradek.protocol.compression import Buffer

Bytes: TypeAlias = npt.NDArray[np.uint8]
Table: TypeAlias = npt.NDArray[np.int64]
Function = TypeVar("Function", bound=Callable[..., object])

# The types of arguments and results, for signatures.
BYTES = types.Array(types.uint8, 1, "C", readonly=True)
UINT8S = types.uint8[::1]
INT64 = types.int64
BOOLEAN = types.boolean
INT64S = types.int64[::1]
TABLE = types.int64[:, ::1]

# Casts inside kernels, which see NumPy's classes where the type checker sees plain integers.
int64 = cast(Callable[[object], int], np.int64)
uint64 = cast(Callable[[object], int], np.uint64)


def int64_tuple(size: int) -> Any:
    """Return the type of a tuple of `size` int64s."""
    return cast(Any, types).Tuple((INT64,) * size)


def _fingerprint(function: Callable[..., object]) -> int:
    """Return a checksum of a function's code and of the kernels and constants it names."""
    code = function.__code__
    constants = [getattr(constant, "co_code", constant) for constant in code.co_consts]
    checksum = zlib.crc32(repr(constants).encode(), zlib.crc32(code.co_code))
    for name in code.co_names:
        value = function.__globals__.get(name)
        compiled_from = getattr(value, "py_func", None)
        if compiled_from is not None:
            checksum = zlib.crc32(compiled_from.__qualname__.encode(), checksum)
        elif isinstance(value, np.ndarray):
            checksum = zlib.crc32(value.tobytes(), checksum)
        elif isinstance(value, (int, float, str, bytes, tuple)):
            checksum = zlib.crc32(f"{name}={value!r}".encode(), checksum)
    return checksum


def kernel(result: Any, *arguments: Any) -> Callable[[Function], Function]:
    """Compile a function for exactly these Numba types, at once, and cache its machine code.

    Do not call a kernel that takes several arrays for every record: each array is passed as
    seven words, and 40 ns a call were measured. Small kernels become part of their callers;
    Numba's own inlining (inline="always") was slower than the calls.

    Numba notices a stale cache when the function's own file changes, but not when a function
    or a constant from another file does. So a checksum of everything that the function refers
    to becomes part of its name, and so of the name of the cache file.
    """

    def compile_function(function: Function) -> Function:
        function.__qualname__ += f"_{_fingerprint(function):08x}"
        signature = result(*arguments)
        try:
            compiled: Function = njit(signature, nogil=True, cache=True)(function)
        except RuntimeError:  # There is no place for a cache: compile for this run alone.
            compiled = njit(signature, nogil=True)(function)
        return compiled

    return compile_function


def as_bytes(buffer: Buffer) -> Bytes:
    """Return a buffer as the array that kernels take, without a copy."""
    return np.frombuffer(buffer, np.uint8)
