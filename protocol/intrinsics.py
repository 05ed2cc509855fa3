"""Machine instructions that Python cannot express, as functions that kernels can call.

An unaligned load of eight bytes, the upper half of a 128-bit product, a hint to the cache, a
block copy, and CRC-32C over eight bytes: each is a line or two of LLVM's intermediate language.
None of them checks bounds; their callers do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, cast

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from odradek.protocol.kernel import BYTES, INT64, Bytes, kernel, uint64

Words = npt.NDArray[np.uint64]

_CRC32C_POLYNOMIAL = 0x82F63B78  # Castagnoli's, bits reversed
_CRC_START = 0xFFFFFFFF
_INSTRUCTIONS = {
    "x86_64": ("sse4.2", "llvm.x86.sse42.crc32.64.64", 64),
    "aarch64": ("crc", "llvm.aarch64.crc32cx", 32),
}

_I32, _I64, _I128 = (ir.IntType(bits) for bits in (32, 64, 128))
_BYTE_POINTER = ir.IntType(8).as_pointer()


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


def _load(_: Any, data: Any, position: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[0], *arguments)
        word = builder.load(builder.bitcast(address, _I64.as_pointer()))
        word.align = 1
        return word if sys.byteorder == "little" else builder.bswap(word)

    return types.uint64(data, position), emit


def _multiply_high(_: Any, a: Any, b: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide_a, wide_b = (builder.zext(argument, _I128) for argument in arguments)
        product = builder.mul(wide_a, wide_b)
        return builder.trunc(builder.lshr(product, ir.Constant(_I128, 64)), _I64)

    return types.uint64(types.uint64, types.uint64), emit


def _prefetch(_: Any, array: Any, index: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[0], *arguments)
        shape = ir.FunctionType(ir.VoidType(), [_BYTE_POINTER, _I32, _I32, _I32])
        hint = builder.module.declare_intrinsic("llvm.prefetch", [_BYTE_POINTER], shape)
        for_writing, keep_close, is_data = (ir.Constant(_I32, value) for value in (1, 3, 1))
        pointer = builder.bitcast(address, _BYTE_POINTER)
        builder.call(hint, [pointer, for_writing, keep_close, is_data])
        return context.get_dummy_value()

    return types.void(array, index), emit


def _copy(_: Any, target: Any, to: Any, source: Any, start: Any, size: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target_type, _, source_type, _, _ = signature.args
        target_address = _address(context, builder, target_type, *arguments[:2])
        source_address = _address(context, builder, source_type, *arguments[2:4])
        move = builder.module.declare_intrinsic("llvm.memcpy", [_BYTE_POINTER] * 2 + [_I64])
        is_volatile = ir.Constant(ir.IntType(1), 0)
        builder.call(move, [target_address, source_address, arguments[4], is_volatile])
        return context.get_dummy_value()

    return types.void(target, to, source, start, size), emit


def _crc_of_word(name: str, state_bits: int) -> Callable[..., Any]:
    """Return the intrinsic of a CRC-32C instruction whose state has this many bits."""

    def declare(_: Any, crc: Any, word: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            state = ir.IntType(state_bits)
            shape = ir.FunctionType(state, [state, _I64])
            step = builder.module.declare_intrinsic(name, (), shape)
            before = arguments[0] if state is _I64 else builder.trunc(arguments[0], state)
            after = builder.call(step, [before, arguments[1]])
            return after if state is _I64 else builder.zext(after, _I64)

        return types.uint64(types.uint64, types.uint64), emit

    return declare


def _slicing_tables() -> npt.NDArray[np.uint32]:
    """Return the tables that look up eight bytes of CRC-32C at once."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_CRC32C_POLYNOMIAL if crc & 1 else 0)
        tables[0, byte] = crc
    for at in range(1, 8):
        tables[at] = tables[at - 1] >> 8 ^ tables[0][tables[at - 1] & 0xFF]
    return tables


def _shift_tables(size: int) -> npt.NDArray[np.uint32]:
    """Return the tables that carry a CRC-32C over `size` zero bytes, a byte of it at once."""
    # The operation is linear, so each bit is shifted on its own.
    shifted = np.uint32(1) << np.arange(32, dtype=np.uint32)
    for _ in range(size):
        shifted = shifted >> 8 ^ _TABLES[0, shifted & 0xFF]
    has_bit = np.arange(256)[:, np.newaxis] >> np.arange(8) & 1 == 1
    by_byte = (np.where(has_bit, bits, 0) for bits in np.split(shifted, 4))
    return np.stack([np.bitwise_xor.reduce(bits, axis=1) for bits in by_byte]).astype(np.uint32)


_TABLES = _slicing_tables()
# Three strands of this many bytes are computed side by side, since the instruction's result
# takes three cycles.
_STRAND = 1024
_SHIFT = _shift_tables(_STRAND)

# load_uint64(data, position): eight bytes, the least significant first.
load_uint64 = cast(Callable[[Bytes, int], int], intrinsic(_load))
# multiply_high(a, b): the upper 64 bits of the product of two uint64s.
multiply_high = cast(Callable[[int, int], int], intrinsic(_multiply_high))
# prefetch(words, index): ask for the cache line of an element that will soon be written.
prefetch = cast(Callable[[Words, int], None], intrinsic(_prefetch))
# copy_bytes(target, to, source, start, size): copy between arrays that do not overlap.
copy_bytes = cast(Callable[[Bytes, int, Bytes, int, int], None], intrinsic(_copy))


@kernel(types.uint64, types.uint64, types.uint64)
def crc32c_word_by_table(crc: int, word: int) -> int:
    """Add eight bytes, the least significant first, to a CRC-32C."""
    word ^= crc
    result = uint64(0)
    for at in range(8):
        byte = (word >> uint64(8 * at)) & uint64(0xFF)
        result ^= uint64(_TABLES[7 - at, byte])
    return result


def _fastest_crc32c_word() -> Callable[[int, int], int]:
    machine = llvm.get_process_triple().split("-")[0]
    feature, name, state_bits = _INSTRUCTIONS.get(machine, ("", "", 0))
    if not llvm.get_host_cpu_features().get(feature):
        return crc32c_word_by_table
    return cast(Callable[[int, int], int], intrinsic(_crc_of_word(name, state_bits)))


crc32c_word = _fastest_crc32c_word()


@kernel(types.uint64, types.uint64)
def pass_strand(crc: int) -> int:
    """Carry a CRC-32C over a strand of zero bytes."""
    result = uint64(0)
    for at in range(4):
        result ^= uint64(_SHIFT[at, (crc >> uint64(8 * at)) & uint64(0xFF)])
    return result


@kernel(INT64, BYTES, INT64, INT64)
def crc32c(data: Bytes, start: int, end: int) -> int:
    """Compute the CRC-32C of bytes; the caller has checked that they are there.

    The package of that name is as fast, but needs the interpreter for each input.
    """
    crc = uint64(_CRC_START)
    position = start
    while position + 3 * _STRAND <= end:
        second = third = uint64(0)
        for at in range(position, position + _STRAND, 8):
            crc = crc32c_word(crc, load_uint64(data, at))
            second = crc32c_word(second, load_uint64(data, at + _STRAND))
            third = crc32c_word(third, load_uint64(data, at + 2 * _STRAND))
        crc = pass_strand(pass_strand(crc) ^ second) ^ third
        position += 3 * _STRAND
    while position + 8 <= end:
        crc = crc32c_word(crc, load_uint64(data, position))
        position += 8
    while position < end:
        byte = (crc ^ uint64(data[position])) & uint64(0xFF)
        crc = uint64(_TABLES[0, byte]) ^ (crc >> uint64(8))
        position += 1
    return int(crc) ^ _CRC_START
