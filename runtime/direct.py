"""The short way of a call: numpy arrays that are exactly what the entry function reads.

For small models what surrounds the call takes longer than the model. Inputs that are arrays of the right type and
shape, contiguous and aligned, with new arrays for the results, are looked at by a function of machine code
(`direct.ll`, compiled once per process), which then calls the entry function. Every other call goes the long way, which
explains what is wrong.
"""

from __future__ import annotations

import ctypes
import re
import struct
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mirlo.runtime.arena import ArenaPool
from mirlo.runtime.artifact import Artifact
from mirlo.runtime.container import empty_aligned
from mirlo.runtime.dtypes import numpy_dtype
from mirlo.runtime.loaders import EntryFunction, compile_llvm

_ALIGNED_FROM = 4096
"""Bytes of a result from which on it pays to begin on a cache line."""
_READABLE = 0x101
"""NumPy's flags C_CONTIGUOUS and ALIGNED."""
_METH_FASTCALL = 0x80
_HEADER = object.__basicsize__
_FIELDS = {"DATA": 0, "RANK": 8, "DIMS": 16, "DTYPE": 40, "FLAGS": 48}
"""Where NumPy's C interface has the fields of an array, after the header that all objects have."""


class DirectCall:
    """The short way of calls of an artifact whose shapes are all known, and that calls no Python functions."""

    def __init__(self, artifact: Artifact, entry: Any, params: Any, arenas: ArenaPool, maker: Any) -> None:
        self._keep = entry, params
        self._dtypes = [numpy_dtype(spec.dtype) for spec in artifact.inputs]
        numbers = [ctypes.cast(entry, ctypes.c_void_p).value, ctypes.addressof(params)]
        numbers += [len(artifact.inputs), len(artifact.outputs)]
        for spec, dtype in zip(artifact.inputs, self._dtypes, strict=True):
            numbers += [id(dtype), len(spec.static_shape), *spec.static_shape]
        self._call = maker(struct.pack(f"{len(numbers)}q", *numbers))
        self._arenas = arenas if artifact.arena_bytes else None
        self._outputs = [_new_array(numpy_dtype(spec.dtype), spec.static_shape) for spec in artifact.outputs]

    @staticmethod
    def of(artifact: Artifact, entry: Any, params: Any, arenas: ArenaPool) -> DirectCall | None:
        """The short way, if calls of this artifact may go it; an entry that is no C function takes no addresses."""
        is_fixed = not artifact.symbols and "sizes" not in artifact.metadata
        if not is_fixed or artifact.packed or not isinstance(entry, EntryFunction):
            return None
        maker = _maker()
        return None if maker is None else DirectCall(artifact, entry, params, arenas, maker)

    def run(self, values: Sequence[Any]) -> list[np.ndarray] | None:
        """The results; None if a value is not exactly what is wanted, or there are more or fewer."""
        results = [make() for make in self._outputs]
        if self._arenas is None:
            return results if self._call(*values, *results, 0) else None
        arena = self._arenas.take()
        done = self._call(*values, *results, arena.address)
        self._arenas.give_back(arena)
        return results if done else None


def _new_array(dtype: np.dtype, shape: tuple[int, ...]) -> Callable[[], np.ndarray]:
    count = int(np.prod(shape, dtype=np.int64))
    if count * dtype.itemsize < _ALIGNED_FROM:
        return lambda empty=np.empty: empty(shape, dtype)  # type: ignore[misc]
    return lambda: empty_aligned(dtype, shape)


class _MethodDef(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@cache
def _maker() -> Callable[[bytes], Any] | None:
    """From the numbers of a model to its function; None where objects do not lie in memory as expected."""
    if sys.implementation.name != "cpython" or not _is_known_layout():
        return None
    engine = compile_llvm(_text(), opt=0)
    name = b"mirlo_call"
    method = _MethodDef(name, engine.get_function_address(name.decode()), _METH_FASTCALL, None)
    # A prototype of its own: what is set on ctypes.pythonapi's functions is seen by everyone.
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
        ("PyCFunction_NewEx", ctypes.pythonapi)
    )
    keep = engine, method
    return lambda state, keep=keep: make(ctypes.addressof(method), state, None)  # type: ignore[misc]


def _text() -> str:
    api = ctypes.pythonapi
    functions = {
        "AS_POINTER": api.PyLong_AsVoidPtr,
        "SAVE_THREAD": api.PyEval_SaveThread,
        "RESTORE_THREAD": api.PyEval_RestoreThread,
        "INCREF": api.Py_IncRef,
    }
    addresses = {key: ctypes.cast(function, ctypes.c_void_p).value for key, function in functions.items()}
    fields = {key: _HEADER + offset for key, offset in _FIELDS.items()}
    objects = {"NDARRAY": id(np.ndarray), "TRUE": id(True), "FALSE": id(False)}
    # Bytes objects end with their content and one byte more.
    layout = {"TYPE": _HEADER - 8, "BYTES_DATA": bytes.__basicsize__ - 1, "READABLE": _READABLE}
    numbers = {**addresses, **fields, **objects, **layout}
    template = Path(__file__).with_name("direct.ll").read_text(encoding="utf-8")
    return re.sub(r"\b[A-Z_]{4,}\b", lambda word: str(numbers[word.group()]), template)


def _is_known_layout() -> bool:
    """Whether an array's fields are where they are looked for: read one of which everything is known."""
    array = np.arange(6, dtype=np.int32).reshape(2, 3)[:, ::2]
    content = b"content"

    def at(base: int, offset: int, kind: Any) -> Any:
        return kind.from_address(base + offset).value

    def field(name: str, kind: Any) -> Any:
        return at(id(array), _HEADER + _FIELDS[name], kind)

    word = ctypes.c_void_p
    if ctypes.sizeof(word) != 8 or np.ndarray.__basicsize__ < _HEADER + 56:
        return False
    return (
        at(id(array), _HEADER - 8, word) == id(np.ndarray)
        and field("DATA", word) == array.ctypes.data
        and field("RANK", ctypes.c_int) == 2
        and [at(field("DIMS", word), 8 * i, ctypes.c_int64) for i in range(2)] == [2, 2]
        and field("DTYPE", word) == id(array.dtype)
        and field("FLAGS", ctypes.c_int) == array.flags.num
        and ctypes.string_at(id(content) + bytes.__basicsize__ - 1, len(content)) == content
    )
