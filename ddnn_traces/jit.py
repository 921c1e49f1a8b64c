"""How functions are compiled by numba and cached on disk, and how they read integers from bytes.

numba caches compiled code next to the source, but checks only the one file that a function is in. Where functions of
several files are compiled into one, the code goes into a folder named by the content of all of them. So a second
environment with the same version finds it, too.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from llvmlite import ir
from numba import config, njit, types
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.imputils import impl_ret_untracked
from numba.core.runtime import rtsys
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

CHECKED = bool(config.BOUNDSCHECK)  # NUMBA_BOUNDSCHECK=1: for tests; every read is checked, slowly
#: NUMBA_DISABLE_JIT=1: nothing is compiled, Python itself runs the functions: no wait before the first packet, and some
#: 15,000 packets a second in place of millions.
INTERPRETED = bool(config.DISABLE_JIT)


class _Place:
    """Where numba finds the code of a function, wherever its source is: numba's own locators look next to the source,
    or in a folder named by its path."""

    def __init__(self, folder):
        self._folder = folder

    def from_function(self, function, _path):
        self._line = function.__code__.co_firstlineno
        return self

    def ensure_cache_path(self):
        self._folder.mkdir(parents=True, exist_ok=True)

    def get_cache_path(self):
        return str(self._folder)

    def get_source_stamp(self):
        return ""  # the folder's name has it

    def get_disambiguator(self):
        return str(self._line)


class _Files(CompileResultCacheImpl):
    def __init__(self, function, folder):
        self._locator_classes = [_Place(folder)]  # type: ignore[list-item]
        super().__init__(function)


class _Cache(FunctionCache):
    """The cache of njit(cache=True), which prepares numba for compiling before it loads what is compiled.

    That takes most of the time to the first packet. Only the runtime of numba's arrays is needed; a compilation
    prepares the rest itself.
    """

    def __init__(self, function, folder):
        self._impl_class = lambda of: _Files(of, folder)  # type: ignore[assignment]
        super().__init__(function)

    def load_overload(self, sig, target_context):
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


def compiled(function, folder):
    """Compile a function that Python calls, and cache the result on disk in `folder`; None: not cached."""
    if INTERPRETED:
        return np.errstate(over="ignore")(function)  # integers wrap around, as compiled ones do
    dispatcher = njit(nogil=True, boundscheck=False)(function)
    if folder is not None:
        dispatcher._cache = _Cache(function, folder)
    return dispatcher


#: A function that compiled ones call for few packets.
helper = njit(nogil=True, boundscheck=False)

#: A function that is called for every packet. A call, and a view of a row, costs reference counts on its arrays, which
#: took half of the loop's time: these are inlined, and arrays indexed by row and column.
inlined = njit(nogil=True, boundscheck=False, inline="always")


@intrinsic
def _borrowed(typing_context, array):
    """The same array without an owner: it is not reference-counted, and lives no longer than the one it was made from.

    Counting is atomic; done for every packet, it took two thirds of the loop's time, and threads waited for each other.
    """

    def generate(context, builder, signature, arguments):
        make = context.make_array(signature.return_type)
        owned, bare = make(context, builder, arguments[0]), make(context, builder)
        parts = {name: getattr(owned, name) for name in ("data", "shape", "strides", "itemsize")}
        populate_array(bare, **parts, meminfo=None)
        return impl_ret_untracked(context, builder, signature.return_type, bare._getvalue())

    return array(array), generate


@intrinsic
def _prefetch(typing_context, array, at):
    """Prefetch the cache line of element `at`, counted through all rows, of an array in C order."""

    def generate(context, builder, signature, arguments):
        source = context.make_array(signature.args[0])(context, builder, arguments[0])
        byte, number = ir.IntType(8), ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", (byte.as_pointer(),), ir.FunctionType(ir.VoidType(), [byte.as_pointer(), *[number] * 3])
        )
        address = builder.bitcast(builder.gep(source.data, [arguments[1]]), byte.as_pointer())
        builder.call(function, [address, number(1), number(3), number(1)])  # for writing, highest locality, data
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


def _unaligned_load(bits, big_endian):
    """An intrinsic that reads an unsigned integer of that many bits at a byte offset, as int64 (64 bits: uint64).

    LLVM does not join single bytes into one load by itself here; this made the loop 1.5 times as fast.
    """

    @intrinsic
    def load(typing_context, buf, i):
        def generate(context, builder, signature, arguments):
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            kind = ir.IntType(bits)
            address = builder.gep(array.data, [arguments[1]])
            value = builder.load(builder.bitcast(address, kind.as_pointer()), align=1)
            if big_endian:
                value = builder.bswap(value)
            return builder.zext(value, ir.IntType(64)) if bits < 64 else value

        return (types.uint64 if bits == 64 else types.int64)(buf, types.int64), generate

    return load


def _checked_load(bits, big_endian):
    """The same, byte by byte, so that bounds are checked."""
    shifts = [8 * k for k in range(bits // 8)]
    order = np.array(shifts[::-1] if big_endian else shifts, np.uint64)

    @njit(nogil=True)
    def load(buf, i):
        value = np.uint64(0)
        for k in range(len(order)):
            value |= np.uint64(buf[i + k]) << order[k]
        return value

    if bits == 64:
        return load
    return njit(nogil=True)(lambda buf, i: np.int64(load(buf, i)))


def _interpreted_load(bits, big_endian):
    """The same in plain Python."""
    size, kind = bits // 8, np.uint64 if bits == 64 else np.int64
    order: Literal["big", "little"] = "big" if big_endian else "little"
    return lambda buf, i: kind(int.from_bytes(buf[i : i + size].tobytes(), order))


_load: Any = _interpreted_load if INTERPRETED else _checked_load if CHECKED else _unaligned_load
borrowed: Any = (lambda array: array) if INTERPRETED else _borrowed
prefetch: Any = (lambda array, at: None) if INTERPRETED else _prefetch
u16 = _load(16, True)
u32 = _load(32, True)
u64 = _load(64, True)
u16_little = _load(16, False)
u32_little = _load(32, False)
u64_little = _load(64, False)
