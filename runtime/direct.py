"""The fast path of a call, for numpy arrays that match what the entry function reads exactly.

For small models the work around the call takes longer than the model. Inputs of the right type and shape, contiguous
and aligned, with newly allocated results, are checked by compiled code (`direct.ll`, compiled once per process). It
binds the symbols of dynamic dims, computes the run-time sizes, allocates the results and calls the entry function.
Every other call takes the general path, which reports errors.
"""

from __future__ import annotations

import ctypes
import importlib
import re
import struct
import sys
import weakref
from collections.abc import Callable, Sequence, Set
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from mirlo.runtime.arena import ArenaPool
from mirlo.runtime.artifact import Artifact
from mirlo.runtime.dtypes import numpy_dtype
from mirlo.runtime.loaders import EntryFunction, LoadedCode
from mirlo.runtime.memory import LARGE
from mirlo.runtime.object_loader import compile_llvm
from mirlo.runtime.packed import REQUIRE
from mirlo.runtime.sizes import FIRST, Sizes

_ALIGNED_FROM = 4096
"""Size in bytes from which aligning a result to a cache line pays off."""
_KEPT_FROM = 1 << 16
"""Size in bytes from which memory of a data-dependent size is kept for the next call: C libraries map large blocks."""
_READABLE = 0x101
"""NumPy's flags C_CONTIGUOUS and ALIGNED."""
_CARRAY = 0x501
"""NumPy's flags C_CONTIGUOUS, ALIGNED and WRITEABLE."""
_METH_FASTCALL = 0x80
_MAX_RANK = 64
"""Maximum rank of an array: NumPy's limit."""
_HEADER = object.__basicsize__
_FIELDS = {"DATA": 0, "RANK": 8, "DIMS": 16, "DTYPE": 40, "FLAGS": 48}
"""Offsets of the fields of an array in NumPy's C interface, after the object header."""
_NUMPY_FUNCTIONS = {"NEW_FROM_MEMORY": 94, "NEW_EMPTY": 184, "SET_BASE": 282}
"""Indices of PyArray_NewFromDescr, PyArray_Empty and PyArray_SetBaseObject in NumPy's C interface, fixed by its ABI."""


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
        # Memory of the call before that the next one takes: the first of the blocks that `direct.ll` links.
        self._spare = (ctypes.c_void_p * 1)()
        weakref.finalize(self, _release_blocks, self._spare)
        numbers += [sizes.arena_word if sizes.is_dynamic else 0, int(allocates), ctypes.addressof(self._spare)]
        for i, (spec, dtype) in enumerate(zip((*artifact.inputs, *artifact.outputs), self._dtypes, strict=True)):
            output = i - len(artifact.inputs)
            numbers += [id(dtype)] if output < 0 else [id(dtype), dtype.itemsize, int(output in late)]
            numbers += [len(spec.shape), *(_encoded(dim, sizes) for dim in spec.shape)]
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
        if any(len(spec.shape) > _MAX_RANK for spec in specs):
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
    """Free a list of blocks, each of which begins with the address of the next."""
    block, first[0] = first[0], None
    while block:
        following = ctypes.c_void_p.from_address(block).value
        ctypes.pythonapi.PyMem_RawFree(ctypes.c_void_p(block))
        block = following


def _encoded(dim: int | str, sizes: Sizes) -> int:
    """Encode a dim for `direct.ll`: a size, or the negated index of a word of the call record."""
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
def _builder() -> Callable[[bytes], Any] | None:
    """Return the function that builds a fast path from a model's description; None if object layouts are unknown."""
    if sys.implementation.name != "cpython" or not _is_known_layout():
        return None
    numpy_functions = _numpy_functions()
    if numpy_functions is None:
        return None
    code = compile_llvm(_text(), opt=1, addresses=_addresses(numpy_functions), is_kept=True)
    name = b"mirlo_call"
    method = _MethodDef(name, code.address(name.decode()), _METH_FASTCALL, None)
    # A separate prototype: attributes set on functions of ctypes.pythonapi are global.
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
        ("PyCFunction_NewEx", ctypes.pythonapi)
    )
    keep = code, method
    return lambda state, keep=keep: make(ctypes.addressof(method), state, None)  # type: ignore[misc]


def _numpy_functions() -> dict[str, int] | None:
    """Return the addresses of functions of NumPy's C interface; None if its version is unknown."""
    package = "numpy._core" if int(np.__version__.partition(".")[0]) > 1 else "numpy.core"
    core = importlib.import_module(f"{package}._multiarray_umath")
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    table = ctypes.cast(pointer(core._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    version = ctypes.PYFUNCTYPE(ctypes.c_uint)(table[0] or 0)() if table[0] else 0
    if version >> 24 not in (1, 2) or table[2] != id(np.ndarray):
        return None
    return {name: table[index] or 0 for name, index in _NUMPY_FUNCTIONS.items()}


def _addresses(numpy_functions: dict[str, int]) -> dict[str, int]:
    """Return what is elsewhere in each process."""
    api = ctypes.pythonapi
    functions = {
        "AS_POINTER": api.PyLong_AsVoidPtr,
        "SAVE_THREAD": api.PyEval_SaveThread,
        "RESTORE_THREAD": api.PyEval_RestoreThread,
        "INCREF": api.Py_IncRef,
        "DECREF": api.Py_DecRef,
        "CLEAR_ERROR": api.PyErr_Clear,
        "FROM_NUMBER": api.PyLong_FromLongLong,
        "NEW_TUPLE": api.PyTuple_New,
        "SET_ITEM": api.PyTuple_SetItem,
        "NEW_CAPSULE": api.PyCapsule_New,
        "CAPSULE_POINTER": api.PyCapsule_GetPointer,
        "NEW_MEMORY": api.PyMem_RawMalloc,
        "RELEASE_MEMORY": api.PyMem_RawFree,
    }
    addresses = {key: ctypes.cast(function, ctypes.c_void_p).value or 0 for key, function in functions.items()}
    objects = {"NDARRAY": id(np.ndarray), "BYTE_TYPE": id(np.dtype(np.uint8)), "FALSE": id(False)}
    return {**addresses, **numpy_functions, **objects}


def _text() -> str:
    """Return the LLVM IR, in which the words of `_addresses` stay."""
    fields = {key: _HEADER + offset for key, offset in _FIELDS.items()}
    # Bytes objects end with their content and one terminating byte.
    layout = {"TYPE": _HEADER - 8, "BYTES_DATA": bytes.__basicsize__ - 1, "READABLE": _READABLE}
    limits = {
        "LARGE_BYTES": LARGE,
        "MOST_DIMS": _MAX_RANK,
        "ALIGNED_FROM": _ALIGNED_FROM,
        "KEPT_BYTES": _KEPT_FROM,
        "CARRAY": _CARRAY,
        "FIRST_WORD": FIRST,
    }
    numbers = {**fields, **layout, **limits}
    template = Path(__file__).with_name("direct.ll").read_text(encoding="utf-8")
    return re.sub(r"\b[A-Z_]{4,}\b", lambda word: str(numbers.get(word.group(), word.group())), template)


T = TypeVar("T")


def _is_known_layout() -> bool:
    """Return whether the fields of an array are at the expected offsets, checked on a known array."""
    array = np.arange(6, dtype=np.int32).reshape(2, 3)[:, ::2]
    content = b"content"

    def at(base: int, offset: int, kind: type[ctypes._SimpleCData[T]]) -> T:
        return kind.from_address(base + offset).value

    def field(name: str, kind: type[ctypes._SimpleCData[T]]) -> T:
        return at(id(array), _HEADER + _FIELDS[name], kind)

    word = ctypes.c_void_p
    if ctypes.sizeof(word) != 8 or np.ndarray.__basicsize__ < _HEADER + 56:
        return False
    return (
        at(id(array), _HEADER - 8, word) == id(np.ndarray)
        and field("DATA", word) == array.ctypes.data
        and field("RANK", ctypes.c_int) == 2
        and [at(field("DIMS", word) or 0, 8 * i, ctypes.c_int64) for i in range(2)] == [2, 2]
        and field("DTYPE", word) == id(array.dtype)
        and field("FLAGS", ctypes.c_int) == array.flags.num
        and ctypes.string_at(id(content) + bytes.__basicsize__ - 1, len(content)) == content
    )
