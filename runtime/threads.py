"""The thread pool that compiled models share: one per process, created when a model first asks for threads.

It is LLVM IR (`threads.ll`), compiled when it is needed; generated code calls `mirlo_parallel`. Idle workers sleep.
A model that is called while another one uses the pool runs on the caller's thread alone. Where OpenMP has threads in
the process too, its team serves as the workers (`join_openmp`).
"""

from __future__ import annotations

import ctypes
import platform
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.runtime import system
from mirlo.runtime.locks import UNCUT, make_lock
from mirlo.runtime.object_loader import compile_llvm, define_symbol
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.runtime.elf_linker import ObjectsInMemory

SYMBOL = "mirlo_parallel"
"""`void mirlo_parallel(void (*function)(void*, int32, int32), void* arguments, int32 chunks, int32 threads)`"""

SPINS = 4000
"""Polls of the job, some 10 to 40 ns each with a pause, before a worker goes to sleep."""

SPINS_OF_WASM = 16000
"""The same on WebAssembly, where a fence, some 15 ns, is in the pause's place, and a worker that sleeps costs more: its
caller 20 us to wake it, and as much until it runs. Between the kernels of MobileNetV2 workers slept 29 times a call
after 4000 polls without a fence, which are 8 us; with these, once in two calls."""

MAX_CORES = 1024
"""Maximum number of cores in the pool's masks (`affinity.ll`)."""

_X86, _ARM = "call void @llvm.x86.sse2.pause()", "call void @llvm.aarch64.hint(i32 1)"
_WASM = "wasm32"
_PAUSES = {"x86_64": _X86, "amd64": _X86, "aarch64": _ARM, "arm64": _ARM, _WASM: "fence seq_cst"}
_TICKS = "call i64 @llvm.readcyclecounter()"
"""A counter that every process may read; on other processors nothing is measured, and jobs never leave a busy core."""
_NO_AFFINITY = """
define void @mirlo_pool_cores(ptr %list, i32 %count) { ret void }
define internal void @affinity_started(i32 %id, i64 %thread) { ret void }
define internal void @affinity_place(i32 %workers) { ret void }
"""
_WINDOWS = ("windows", "win32", "w64", "mingw")
_POSIX = re.compile(r"^declare i32 @(pthread_\w+|sched_yield)\(.*\n", re.MULTILINE)
"""The functions of the system that the pool calls."""
_DETACHED = {"darwin": 2, "macos": 2, "apple": 2}
"""PTHREAD_CREATE_DETACHED where it is not 1."""


@dataclass
class _Pool:
    start: Callable[..., object]
    cores: Callable[..., object]
    join_team: Callable[..., object]
    address: int
    keep: _LiveObjects


_lock = make_lock()
_pool: _Pool | None = None
_has_team = False
"""Whether a team of OpenMP has the place of the workers."""
_is_forked = False
"""Whether this is the child of a fork, in which regions of OpenMP would never end."""


def supported() -> bool:
    """Return whether models may run on several threads here, which needs POSIX threads."""
    return system.has_posix_threads()


def ensure(threads: int) -> None:
    """Create a pool for calls on this many threads, and define its symbol for code that is loaded from now on."""
    # Lock order: a thread that loads a model holds the first lock when it gets here.
    with UNCUT, _lock:
        pool = _get_pool()
        if not _has_team:
            # More threads than cores only compete with each other.
            pool.start(min(threads, system.available_cores()) - 1)


def _get_pool() -> _Pool:
    """Return the pool, compiled at first; the caller has the lock."""
    global _pool
    if _pool is None:
        _pool = _compile()
        system.after_fork(_after_fork)
        _set_cores(_pool)
    return _pool


def join_openmp(library: ctypes.CDLL) -> bool:
    """Have the OpenMP team of a library, or of one that it needs, run the jobs from now on; return whether it does.

    Threads of OpenMP spin for milliseconds after a region, as those of PyTorch's kernels do, and would have the cores
    that workers of the pool need. In the child of a fork a team does not start again.
    """
    global _has_team
    functions = [_address(library, name) for name in ("GOMP_parallel", "omp_get_thread_num")]
    if _is_forked or not all(functions):
        return False
    with UNCUT, _lock:
        if not _has_team:
            _get_pool().join_team(*functions)
            _has_team = True
    return True


def _address(library: ctypes.CDLL, name: str) -> int:
    """Return the address of a function, 0 if there is none of this name."""
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    except AttributeError:
        return 0


def _after_fork() -> None:
    """Reset the pool: a child has its memory but none of its threads; models that it calls start new ones."""
    global _has_team, _is_forked
    _has_team, _is_forked = False, True
    if _pool is not None:
        _pool.keep.reset()
        _set_cores(_pool)
        _restart.append(True)


_restart: list[bool] = []


def revive(threads: int) -> None:
    """Start the workers again in the child of a fork."""
    if _restart:
        _restart.clear()
        ensure(threads)


@dataclass
class _LiveObjects:
    code: ObjectsInMemory
    reset: Callable[[], object]


def _set_cores(pool: _Pool) -> None:
    cores = _cores_in_order()
    pool.cores((ctypes.c_int32 * max(len(cores), 1))(*cores), len(cores))


def _cores_in_order() -> list[int]:
    """Return the cores of the process: one of each physical core, then a second one of each, and so on."""
    cores = system.cores()
    if not cores or cores[-1] >= MAX_CORES:
        return []  # more than the masks of the pool hold: the system places the workers
    rank = {core: _siblings(core).index(core) for core in cores}
    return sorted(cores, key=lambda core: (rank[core], core))


def _siblings(core: int) -> list[int]:
    """Return the logical cores of a physical one, as Linux reports them."""
    path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    try:
        text = path.read_text(encoding="ascii").strip()
        ends = [[int(end) for end in part.split("-")] for part in text.split(",")]
    except (OSError, ValueError):
        return [core]
    siblings = [i for first, *last in ends for i in range(first, (last[0] if last else first) + 1)]
    return siblings if core in siblings else [core]


def pool_text(machine: str, system: str) -> str:
    """Return the pool's LLVM IR for a processor and a system, by their names in triples."""
    template = Path(__file__).with_name("threads.ll").read_text(encoding="utf-8")
    file = "threads_wasm.ll" if machine == _WASM else "threads_windows.ll"
    if machine == _WASM or any(name in system for name in _WINDOWS):
        own = Path(__file__).with_name(file).read_text(encoding="utf-8")
        template = f"{_POSIX.sub('', template)}\n{own}"
    pause = _PAUSES.get(machine, "")
    # What LLVM knows of another processor need not be declared; a fence is no function.
    is_called = pause.startswith("call")
    declared = pause.replace("call", "declare").replace(" 1)", ")") if is_called else ""
    detached = str(next((number for name, number in _DETACHED.items() if name in system), 1))
    is_linux = "linux" in system
    affinity = Path(__file__).with_name("affinity.ll").read_text(encoding="utf-8") if is_linux else _NO_AFFINITY
    template = f"{template}\n{affinity}\n{declared}\n"
    ticks = "declare i64 @llvm.readcyclecounter()" if is_called else ""
    template = f"{template}\n{ticks}\n".replace("TICKS", _TICKS if is_called else "add i64 0, 0")
    spins = SPINS_OF_WASM if machine == _WASM else SPINS
    return template.replace("SPINS", str(spins)).replace("PAUSE", pause).replace("DETACHED", detached)


def _compile() -> _Pool:
    code = compile_llvm(pool_text(platform.machine().lower(), sys.platform), is_kept=True)
    reset = ctypes.CFUNCTYPE(None)(code.address("mirlo_pool_reset"))
    start = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(code.address("mirlo_pool_start"))
    kind = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_int32), ctypes.c_int32)
    cores = kind(code.address("mirlo_pool_cores"))
    join_team = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2)(code.address("mirlo_pool_team"))
    address = code.address(SYMBOL)
    reset()
    define_symbol(SYMBOL, address)
    return _Pool(start, cores, join_team, address, _LiveObjects(code, reset))
