"""Native code between generated code and the library: no Python is on the way of a call.

For each function there is a table: which memories take the addresses of the caller's tensors, and the primitives with
their arguments. A page of LLVM IR walks it.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mirlo.runtime.loaders import compile_llvm
from mirlo.runtime.thunks import bind_state
from mirlo.targets.onednn.native.library import load_library

WRONG_COUNT = -1
"""What a function returns that is called with another number of tensors than it has."""
NO_THREAD = -2
"""What it returns in the child of a fork when the system has no thread for it."""


@dataclass(frozen=True)
class CallTable:
    """A function as native code reads it."""

    tensors: int
    boundary: tuple[tuple[int, int, int], ...]
    """Number of a tensor of the call, offset in it, memory object that is to point there."""
    steps: tuple[tuple[int, int, int], ...]
    """Primitive, count and address of its arguments."""


_WALK = """
%tensor = type { ptr, i32, i32, i32, i8, i8, i16, ptr, ptr, i64 }
%bound = type { i64, i64, ptr }
%step = type { ptr, i64, ptr }
%table = type { i64, i64, ptr, i64, ptr }

%call = type { ptr, ptr, i64, i32 }

declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)

; In the child of a fork, the threads that the library made for the forking thread are gone, and it would wait for them
; for ever: it is called on a fresh thread there, which has none yet.
define i32 @call(ptr %table, ptr %tensors, i64 %count) {
entry:
  %forked = load volatile i64, ptr inttoptr (i64 FORKED to ptr)
  %here = icmp eq i64 %forked, 0
  br i1 %here, label %direct, label %elsewhere
direct:
  %done = tail call i32 @walk(ptr %table, ptr %tensors, i64 %count)
  ret i32 %done
elsewhere:
  %thread = alloca i64
  %frame = alloca %call
  %p1 = getelementptr %call, ptr %frame, i32 0, i32 1
  %p2 = getelementptr %call, ptr %frame, i32 0, i32 2
  %p3 = getelementptr %call, ptr %frame, i32 0, i32 3
  store ptr %table, ptr %frame
  store ptr %tensors, ptr %p1
  store i64 %count, ptr %p2
  %failed = call i32 @pthread_create(ptr %thread, ptr null, ptr @on_thread, ptr %frame)
  %created = icmp eq i32 %failed, 0
  br i1 %created, label %join, label %refused
refused:
  ret i32 NO_THREAD
join:
  %id = load i64, ptr %thread
  %joined = call i32 @pthread_join(i64 %id, ptr null)
  %code = load i32, ptr %p3
  ret i32 %code
}

define internal ptr @on_thread(ptr %frame) {
  %table = load ptr, ptr %frame
  %p1 = getelementptr %call, ptr %frame, i32 0, i32 1
  %tensors = load ptr, ptr %p1
  %p2 = getelementptr %call, ptr %frame, i32 0, i32 2
  %count = load i64, ptr %p2
  %code = call i32 @walk(ptr %table, ptr %tensors, i64 %count)
  %p3 = getelementptr %call, ptr %frame, i32 0, i32 3
  store i32 %code, ptr %p3
  ret ptr null
}

define internal i32 @walk(ptr %table, ptr %tensors, i64 %count) {
entry:
  %expected = load i64, ptr %table
  %fits = icmp eq i64 %expected, %count
  br i1 %fits, label %begin, label %wrong
wrong:
  ret i32 WRONG_COUNT
begin:
  %locked = call i32 @pthread_mutex_lock(ptr inttoptr (i64 MUTEX to ptr))
  %before = call i32 inttoptr (i64 GET_THREADS to ptr)()
  call void inttoptr (i64 SET_THREADS to ptr)(i32 THREADS)
  %nbound_at = getelementptr %table, ptr %table, i32 0, i32 1
  %nbound = load i64, ptr %nbound_at
  %bounds_at = getelementptr %table, ptr %table, i32 0, i32 2
  %bounds = load ptr, ptr %bounds_at
  %nsteps_at = getelementptr %table, ptr %table, i32 0, i32 3
  %nsteps = load i64, ptr %nsteps_at
  %steps_at = getelementptr %table, ptr %table, i32 0, i32 4
  %steps = load ptr, ptr %steps_at
  br label %bind
bind:
  %i = phi i64 [ 0, %begin ], [ %i1, %bound ]
  %more = icmp ult i64 %i, %nbound
  br i1 %more, label %bound, label %run
bound:
  %index_at = getelementptr %bound, ptr %bounds, i64 %i, i32 0
  %index = load i64, ptr %index_at
  %inner_at = getelementptr %bound, ptr %bounds, i64 %i, i32 1
  %inner = load i64, ptr %inner_at
  %memory_at = getelementptr %bound, ptr %bounds, i64 %i, i32 2
  %memory = load ptr, ptr %memory_at
  %tensor_at = getelementptr ptr, ptr %tensors, i64 %index
  %tensor = load ptr, ptr %tensor_at
  %data = load ptr, ptr %tensor
  %offset_at = getelementptr %tensor, ptr %tensor, i32 0, i32 9
  %outer = load i64, ptr %offset_at
  %offset = add i64 %outer, %inner
  %first = getelementptr i8, ptr %data, i64 %offset
  %set = call i32 inttoptr (i64 SET_HANDLE to ptr)(ptr %memory, ptr %first)
  %i1 = add i64 %i, 1
  br label %bind
run:
  %k = phi i64 [ 0, %bind ], [ %k1, %next ]
  %left = icmp ult i64 %k, %nsteps
  br i1 %left, label %execute, label %wait
execute:
  %primitive_at = getelementptr %step, ptr %steps, i64 %k, i32 0
  %primitive = load ptr, ptr %primitive_at
  %nargs_at = getelementptr %step, ptr %steps, i64 %k, i32 1
  %nargs64 = load i64, ptr %nargs_at
  %nargs = trunc i64 %nargs64 to i32
  %args_at = getelementptr %step, ptr %steps, i64 %k, i32 2
  %args = load ptr, ptr %args_at
  %stream = inttoptr i64 STREAM to ptr
  %status = call i32 inttoptr (i64 EXECUTE to ptr)(ptr %primitive, ptr %stream, i32 %nargs, ptr %args)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %next, label %end
next:
  %k1 = add i64 %k, 1
  br label %run
wait:
  %waited = call i32 inttoptr (i64 WAIT to ptr)(ptr inttoptr (i64 STREAM to ptr))
  br label %end
end:
  %result = phi i32 [ %status, %execute ], [ %waited, %wait ]
  call void inttoptr (i64 SET_THREADS to ptr)(i32 %before)
  %unlocked = call i32 @pthread_mutex_unlock(ptr inttoptr (i64 MUTEX to ptr))
  ret i32 %result
}
"""


class _Bound(ctypes.Structure):
    _fields_ = [("index", ctypes.c_int64), ("offset", ctypes.c_int64), ("memory", ctypes.c_void_p)]


class _Step(ctypes.Structure):
    _fields_ = [("primitive", ctypes.c_void_p), ("count", ctypes.c_int64), ("arguments", ctypes.c_void_p)]


class _Table(ctypes.Structure):
    _fields_ = [
        ("tensors", ctypes.c_int64),
        ("nbound", ctypes.c_int64),
        ("bound", ctypes.POINTER(_Bound)),
        ("nsteps", ctypes.c_int64),
        ("steps", ctypes.POINTER(_Step)),
    ]


class _Shared(ctypes.Structure):
    """What calls look at: whether the process is the child of a fork, and the lock that makes them take turns."""

    _fields_ = [("forked", ctypes.c_int64), ("mutex", ctypes.c_char * 128)]


class Trampoline:
    """Compiled functions; their code and tables live as long as this object."""

    def __init__(self, tables: Mapping[str, CallTable], stream: int, threads: int) -> None:
        self._shared = _Shared()
        self._tables = [_native(table) for table in tables.values()]
        self._engine = compile_llvm(_text(stream, threads, self._shared))
        walk = self._engine.get_function_address("call")
        named = {name: (walk, table) for name, table in zip(tables, self._tables, strict=True)}
        self.functions, self._thunks = bind_state(named)
        _alive.add(self)

    def after_fork(self) -> None:
        """In the child: nobody holds the lock, and the library's threads are gone."""
        ctypes.memset(ctypes.addressof(self._shared), 0, ctypes.sizeof(_Shared))
        self._shared.forked = 1


_alive: weakref.WeakSet[Trampoline] = weakref.WeakSet()


def _after_fork() -> None:
    for trampoline in _alive:
        trampoline.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def _native(table: CallTable) -> Any:
    bound = (_Bound * len(table.boundary))(*[_Bound(*row) for row in table.boundary])
    steps = (_Step * len(table.steps))(*[_Step(*row) for row in table.steps])
    return _Table(table.tensors, len(bound), bound, len(steps), steps)


def _text(stream: int, threads: int, shared: _Shared) -> str:
    library = load_library()
    place = ctypes.addressof(shared)
    numbers = {
        "GET_THREADS": library.address("omp_get_max_threads"),
        "SET_THREADS": library.address("omp_set_num_threads"),
        "SET_HANDLE": library.address("dnnl_memory_set_data_handle"),
        "EXECUTE": library.address("dnnl_primitive_execute"),
        "WAIT": library.address("dnnl_stream_wait"),
        "STREAM": stream,
        "NO_THREAD": NO_THREAD,
        "WRONG_COUNT": WRONG_COUNT,
        "THREADS": threads,
        "FORKED": place + _Shared.forked.offset,
        "MUTEX": place + _Shared.mutex.offset,
    }
    text = _WALK
    for name, number in numbers.items():
        text = text.replace(name, str(number))
    return text
