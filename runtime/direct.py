"""The fast path of a call, for numpy arrays that match what the entry function reads exactly.

For small models the work around the call takes longer than the model. Inputs of the right type and shape, contiguous
and aligned, with newly allocated results, are checked by compiled code (`c/direct.c`, compiled once per process). It
binds the symbols of dynamic dims, computes the run-time sizes, allocates the results and calls the entry function.
Every other call takes the general path, which reports errors.
"""

from __future__ import annotations

import ctypes
import importlib
import platform
import struct
import sys
import weakref
from collections.abc import Callable, Sequence, Set
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from mirlo.runtime.arena import ArenaPool
from mirlo.runtime.artifact import Artifact
from mirlo.runtime.dtypes import MAX_RANK, numpy_dtype
from mirlo.runtime.loaders import EntryFunction, LoadedCode
from mirlo.runtime.names import REQUIRE
from mirlo.runtime.object_loader import compile_llvm, runtime_ir
from mirlo.runtime.sizes import Sizes

if TYPE_CHECKING:
    from mirlo.runtime.elf_linker import ObjectsInMemory

_METH_FASTCALL = 0x80
_MACHINES = frozenset(("x86_64", "amd64", "aarch64", "arm64"))
"""Processors whose ABI the text has."""


class DirectCall:
    """The fast path of calls of an artifact without Python functions but for conditions that do not hold.

    `late` are its data-dependent outputs.
    """

    def __init__(
        self,
        artifact: Artifact,
        sizes: Sizes,
        code: LoadedCode,
        params: ctypes.Array[ctypes.c_void_p],
        arenas: ArenaPool,
        late: Set[int],
        allocates: bool,
    ) -> None:
        self._keep = code, params
        self._dtypes = [numpy_dtype(spec.dtype) for spec in (*artifact.inputs, *artifact.outputs)]
        has_record = sizes.is_dynamic or bool(sizes.symbols) or bool(artifact.packed)
        assert isinstance(code.entry, EntryFunction)  # as checked by `of`
        numbers = [ctypes.cast(code.entry, ctypes.c_void_p).value, ctypes.addressof(params)]
        numbers += [len(artifact.inputs), len(artifact.outputs), sizes.words if has_record else 0]
        # Memory of the previous call that the next one takes: a list of blocks.
        self._spare = (ctypes.c_void_p * 1)()
        weakref.finalize(self, _release_blocks, self._spare)
        numbers += [sizes.arena_word if sizes.is_dynamic else 0, int(allocates), ctypes.addressof(self._spare)]
        for i, (spec, dtype) in enumerate(zip((*artifact.inputs, *artifact.outputs), self._dtypes, strict=True)):
            numbers += [id(dtype), dtype.itemsize, int(i - len(artifact.inputs) in late), len(spec.shape)]
            numbers += [_encoded(dim, sizes) for dim in spec.shape]
        maker = _builder()
        assert maker is not None
        self._call = maker(struct.pack(f"{len(numbers)}q", *numbers))
        self._arenas = arenas if artifact.arena_bytes or sizes.is_dynamic else None
        self._arena_bytes = 0 if sizes.is_dynamic else artifact.arena_bytes

    @staticmethod
    def of(
        artifact: Artifact,
        sizes: Sizes,
        code: LoadedCode,
        params: ctypes.Array[ctypes.c_void_p],
        arenas: ArenaPool,
        late: Set[int],
        allocates: bool,
    ) -> DirectCall | None:
        """Return the fast path if calls of this artifact can take it.

        An entry that is no C function takes no addresses.
        """
        if not isinstance(code.entry, EntryFunction) or code.has_memory or set(artifact.packed) - {REQUIRE}:
            return None
        if allocates and not sizes.is_dynamic:
            return None
        specs = (*artifact.inputs, *artifact.outputs)
        if any(len(spec.shape) > MAX_RANK for spec in specs):
            return None
        if any(isinstance(dim, str) and sizes.word(dim) is None for spec in specs for dim in spec.shape):
            return None
        return None if _builder() is None else DirectCall(artifact, sizes, code, params, arenas, late, allocates)

    def run(self, values: Sequence[np.ndarray]) -> tuple[np.ndarray, ...] | None:
        """Return the results; None if values do not match exactly in type, count or size."""
        if self._arenas is None:
            return self._call(*values, 0, 0) or None
        arena = self._arenas.take(self._arena_bytes)
        results = self._call(*values, arena.address, arena.nbytes)
        if results.__class__ is int:
            arena = self._arenas.take(results)
            results = self._call(*values, arena.address, arena.nbytes)
        self._arenas.give_back(arena)
        return results or None


def _release_blocks(first: ctypes.Array[ctypes.c_void_p]) -> None:
    """Free a list of blocks."""
    blocks, first[0] = first[0], None
    code = _code()
    if blocks and code is not None:
        ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(code.address("mirlo_direct_release"))(blocks)


def _encoded(dim: int | str, sizes: Sizes) -> int:
    """Encode a dim for `direct.c`: a size, or the negated index of a word of the call record."""
    if isinstance(dim, int):
        return dim
    word = sizes.word(dim)
    assert word is not None
    return -word


class _MethodDef(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@cache
def _code() -> ObjectsInMemory | None:
    """Return the compiled functions of `direct.c`; None if the layout of objects is unknown here."""
    is_known = sys.implementation.name == "cpython" and platform.machine().lower() in _MACHINES
    if not is_known or struct.calcsize("P") != 8 or object.__basicsize__ != 16:  # free-threaded Python has longer heads
        return None
    code = compile_llvm(runtime_ir("direct"), opt=1, is_kept=True)
    begin = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
    array = np.arange(6, dtype=np.int32).reshape(2, 3)[:, ::2]
    facts = [id(np.ndarray), array.ctypes.data, id(array.dtype), array.ndim, array.shape[1], array.flags.num]
    known = begin(code.address("mirlo_direct_begin"))(_numpy_interface(), array, struct.pack(f"{len(facts)}q", *facts))
    return code if known else None


@cache
def _builder() -> Callable[[bytes], Any] | None:
    """Return the function that builds a fast path from a model's description; None if there is none."""
    code = _code()
    if code is None:
        return None
    method = _MethodDef(b"mirlo_direct_call", code.address("mirlo_direct_call"), _METH_FASTCALL, None)
    # A separate prototype: attributes set on functions of ctypes.pythonapi are global.
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
        ("PyCFunction_NewEx", ctypes.pythonapi)
    )
    keep = code, method
    return lambda state, keep=keep: make(ctypes.addressof(method), state, None)  # type: ignore[misc]


def _numpy_interface() -> int:
    """Return the address of NumPy's C interface, a table of functions."""
    package = "numpy._core" if int(np.__version__.partition(".")[0]) > 1 else "numpy.core"
    core = importlib.import_module(f"{package}._multiarray_umath")
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    return int(pointer(core._ARRAY_API, None) or 0)
