"""The thread pool that compiled models share: one per process, created when a model first requests threads.

It is C (`c/threads.c`), whose LLVM IR is compiled when it is needed; generated code calls `mirlo_parallel`. Idle
workers sleep. A model that is called while another one uses the pool runs on its caller's thread alone. Where OpenMP
has threads in the process too, its team serves as the workers (`join_openmp`).
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.runtime import processes, system
from mirlo.runtime.errors import ArtifactError
from mirlo.runtime.locks import UNCUT, make_lock
from mirlo.runtime.names import PARALLEL
from mirlo.runtime.object_loader import compile_llvm, define_symbol, has_runtime_ir, runtime_ir
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.runtime.elf_linker import ObjectsInMemory

MAX_CORES = 1024
"""Maximum number of cores in the pool's masks (`c/affinity.h`)."""

WASM = "wasm32"
_MACHINES = {name: name for name in ("x86_64", "aarch64", "riscv64", WASM)} | {"amd64": "x86_64", "arm64": "aarch64"}
"""The processors of the pool's texts, by the names that systems and triples have for them."""
_WINDOWS = ("windows", "win32", "w64", "mingw")


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
    return system.has_posix_threads() and has_pool(platform.machine().lower(), sys.platform)


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
        processes.after_fork(_after_fork)
        _set_cores(_pool)
    return _pool


def has_openmp_team() -> bool:
    """Return whether a team of OpenMP runs the jobs."""
    return _has_team


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


def has_pool(machine: str, system: str) -> bool:
    """Return whether there is a pool for a processor and a system, by their names in triples."""
    return has_runtime_ir(_text_name(machine, system))


def pool_text(machine: str, system: str) -> str:
    """Return the pool's LLVM IR for a processor and a system, by their names in triples."""
    if not has_pool(machine, system):
        raise ArtifactError(f"there is no thread pool for {machine} on '{system}': compile the model for one thread")
    return runtime_ir(_text_name(machine, system))


def _text_name(machine: str, system: str) -> str:
    if machine == WASM:
        return f"threads-{WASM}"
    is_windows = any(name in system for name in _WINDOWS)
    kind = "windows" if is_windows else "linux" if "linux" in system else "posix"
    return f"threads-{_MACHINES.get(machine, machine)}-{kind}"


def _compile() -> _Pool:
    code = compile_llvm(pool_text(platform.machine().lower(), sys.platform), is_kept=True)
    reset = ctypes.CFUNCTYPE(None)(code.address("mirlo_pool_reset"))
    start = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(code.address("mirlo_pool_start"))
    kind = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_int32), ctypes.c_int32)
    cores = kind(code.address("mirlo_pool_cores"))
    join_team = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2)(code.address("mirlo_pool_team"))
    address = code.address(PARALLEL)
    reset()
    define_symbol(PARALLEL, address)
    return _Pool(start, cores, join_team, address, _LiveObjects(code, reset))
