"""Native code between generated code and the library, so that calls do not enter Python.

A table lists the memories that get addresses of the caller's tensors, and the primitives with their arguments. LLVM IR
(`trampoline.ll`) finds the table of a call and executes it.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mirlo.extend.runtime import after_fork, bind_state, compile_llvm
from mirlo_onednn.native.library import load_library

WRONG_COUNT = -1
"""The status of a call with a wrong number of tensors."""
NO_THREAD = -2
"""The status in the child of a fork if the system cannot start a thread."""
NO_TABLE = -3
"""The status if the function could not be compiled for the sizes of the call."""

Miss = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
"""Builds the table for new sizes: `table* miss(DLTensor** tensors)`."""


@dataclass(frozen=True)
class CallTable:
    """A function of fixed shapes in the form that native code reads."""

    stream: int
    boundary: tuple[tuple[int, int, int], ...]
    """The index of a tensor of the call, an offset in it, and the memory object that gets this address."""
    steps: tuple[tuple[int, int, int], ...]
    """Primitive, count and address of its arguments."""


class _Bound(ctypes.Structure):
    _fields_ = [("index", ctypes.c_int64), ("offset", ctypes.c_int64), ("memory", ctypes.c_void_p)]


class _Step(ctypes.Structure):
    _fields_ = [("primitive", ctypes.c_void_p), ("count", ctypes.c_int64), ("arguments", ctypes.c_void_p)]


class _Table(ctypes.Structure):
    _fields_ = [
        ("stream", ctypes.c_void_p),
        ("nbound", ctypes.c_int64),
        ("bound", ctypes.POINTER(_Bound)),
        ("nsteps", ctypes.c_int64),
        ("steps", ctypes.POINTER(_Step)),
    ]


class _Axis(ctypes.Structure):
    _fields_ = [("tensor", ctypes.c_int64), ("axis", ctypes.c_int64)]


class _Entry(ctypes.Structure):
    _fields_ = [("sizes", ctypes.POINTER(ctypes.c_int64)), ("table", ctypes.POINTER(_Table))]


class _State(ctypes.Structure):
    _fields_ = [
        ("tensors", ctypes.c_int64),
        ("tables", ctypes.POINTER(ctypes.POINTER(_Table))),
        ("naxes", ctypes.c_int64),
        ("axes", ctypes.POINTER(_Axis)),
        ("nentries", ctypes.c_int64),
        ("entries", ctypes.POINTER(_Entry)),
        ("miss", Miss),
    ]

    def set_entries(self, entries: Sequence[tuple[ctypes.Array[ctypes.c_int64], _Table]]) -> None:
        """Set the known tables, each with its sizes."""
        array = (_Entry * len(entries))(*[_Entry(sizes, ctypes.pointer(table)) for sizes, table in entries])
        self.entries, self.nentries = array, len(array)


class _Shared(ctypes.Structure):
    """State shared by calls: whether this is the child of a fork, the lock, and the locks of the contexts."""

    _fields_ = [("forked", ctypes.c_int64), ("turn", ctypes.c_int64), ("mutexes", ctypes.c_char * (128 * 8))]


class Trampoline:
    """Compiled functions; their code and tables live as long as this object."""

    def __init__(self, threads: int, contexts: int) -> None:
        self._shared = _Shared()
        self._states: dict[str, _State] = {}
        self._code = compile_llvm(_text(threads, contexts, self._shared))
        self._thunks: object = None
        _alive.add(self)

    def add(self, name: str, tensors: int, tables: Sequence[CallTable]) -> None:
        """Add a function of fixed shapes, with a table for each context."""
        pointers = [ctypes.pointer(native_table(table)) for table in tables]
        array = (ctypes.POINTER(_Table) * len(pointers))(*pointers)
        self._states[name] = _State(tensors=tensors, tables=array)

    def add_dynamic(self, name: str, tensors: int, dims: Sequence[tuple[int, int, str]], miss: object) -> _State:
        """Add a function whose tables are built on demand."""
        axes = (_Axis * len(dims))(*[_Axis(tensor, axis) for tensor, axis, _ in dims])
        self._states[name] = _State(tensors=tensors, naxes=len(axes), axes=axes, miss=miss)
        return self._states[name]

    def bind(self) -> Mapping[str, Callable[..., object]]:
        """Return the functions that were added, by name."""
        entry = self._code.address("entry")
        functions, self._thunks = bind_state({name: (entry, state) for name, state in self._states.items()})
        return functions

    def after_fork(self) -> None:
        """Reset the child of a fork, where no thread holds the lock and the library has no threads."""
        ctypes.memset(ctypes.addressof(self._shared), 0, ctypes.sizeof(_Shared))
        self._shared.forked = 1


_alive: weakref.WeakSet[Trampoline] = weakref.WeakSet()


def _after_fork() -> None:
    for trampoline in _alive:
        trampoline.after_fork()


after_fork(_after_fork)


def native_table(table: CallTable) -> _Table:
    """Write the table to memory that native code reads."""
    bound = (_Bound * len(table.boundary))(*[_Bound(*row) for row in table.boundary])
    steps = (_Step * len(table.steps))(*[_Step(*row) for row in table.steps])
    return _Table(table.stream, len(bound), bound, len(steps), steps)


def key_array(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """Write sizes to memory as a key."""
    return (ctypes.c_int64 * len(values))(*values)


def _text(threads: int, contexts: int, shared: _Shared) -> str:
    library = load_library()
    place = ctypes.addressof(shared)
    numbers = {
        "GET_THREADS": library.address("omp_get_max_threads"),
        "SET_THREADS": library.address("omp_set_num_threads"),
        "SET_HANDLE": library.address("dnnl_memory_set_data_handle"),
        "EXECUTE": library.address("dnnl_primitive_execute"),
        "WAIT": library.address("dnnl_stream_wait"),
        "CONTEXTS": contexts,
        "NO_THREAD": NO_THREAD,
        "NO_TABLE": NO_TABLE,
        "WRONG_COUNT": WRONG_COUNT,
        "THREADS": threads,
        "FORKED": place + _Shared.forked.offset,
        "TURN": place + _Shared.turn.offset,
        "MUTEXES": place + _Shared.mutexes.offset,
    }
    text = Path(__file__).with_name("trampoline.ll").read_text(encoding="utf-8")
    for name, number in numbers.items():
        text = text.replace(name, str(number))
    return text
