"""Finding and loading the library, which a wheel installs under the prefix of the Python environment."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CDLL
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mirlo.extend.runtime import MirloError, make_lock

NAME = "libdnnl.so.3"
WHEELS = ("onednn-cpu-gomp", "onednn-cpu-iomp")
"""CPU builds of the library with OpenMP, whose number of threads can be set."""

_COMPANIONS = ("libintlc.so.5", "libirng.so", "libimf.so", "libsvml.so", "libiomp5.so")
"""Dependencies of the build with Intel's OpenMP, in loading order, installed beside the library."""

OLDEST = (3, 1)


class OneDnnError(MirloError, RuntimeError):
    """The library is missing, unusable, or refused a call."""


@dataclass(frozen=True)
class Library:
    """The loaded library."""

    handle: CDLL
    path: Path
    version: tuple[int, int, int]

    def address(self, name: str) -> int:
        """Return the address of a function of the library, or of a library that it is linked with."""
        address = ctypes.cast(getattr(self.handle, name), ctypes.c_void_p).value
        assert address is not None
        return address


class _Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int)]


_lock = make_lock()


def load_library() -> Library:
    """Load the library once per process; raise an error that names the package to install if there is none."""
    with _lock:
        return _load()


def is_available() -> bool:
    """Return whether the library can be loaded."""
    try:
        load_library()
    except OneDnnError:
        return False
    return True


def _install_hint() -> str:
    return "install it with: pip install mirlo-onednn"


@cache
def _load() -> Library:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise OneDnnError(
            f"target 'onednn' runs on Linux on x86-64, for which oneDNN's wheels are built; "
            f"this is {sys.platform} on {platform.machine()}"
        )
    path = _find()
    if path is None:
        places = ", ".join(map(str, _folders()))
        raise OneDnnError(f"the oneDNN library ({NAME}) is not installed; looked in {places}: {_install_hint()}")
    try:
        with _patient():
            for companion in map(path.with_name, _COMPANIONS):
                if companion.exists():
                    ctypes.CDLL(str(companion), mode=ctypes.RTLD_GLOBAL)
            handle = ctypes.CDLL(str(path))
    except OSError as problem:
        hint = _install_hint()
        if "libgomp" in str(problem):
            hint = "install the system's package libgomp1, the run time of GCC's OpenMP"
        raise OneDnnError(f"the oneDNN library does not load ({problem}): {hint}") from None
    try:
        handle.dnnl_version.restype = ctypes.POINTER(_Version)
        release = handle.dnnl_version().contents
        version = (release.major, release.minor, release.patch)
        threads = handle.omp_set_num_threads, handle.omp_get_max_threads
    except AttributeError:
        raise OneDnnError(
            f"the oneDNN library at {path} has no setting for the number of threads: it is not a build for OpenMP. "
            f"Install {' or '.join(WHEELS)} in its place"
        ) from None
    if version < OLDEST or version[0] != 3:
        shown = ".".join(map(str, version))
        raise OneDnnError(f"oneDNN {shown} at {path} is not supported, 3.1 or newer is: {_install_hint()}")
    threads[0].argtypes, threads[0].restype = [ctypes.c_int], None
    threads[1].argtypes, threads[1].restype = [], ctypes.c_int
    return Library(handle, path, version)


WAITING = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "0"}
"""How long OpenMP's threads spin before they sleep: tens of microseconds, or not at all."""


@contextmanager
def _patient() -> Iterator[None]:
    """Make waiting OpenMP threads sleep soon, unless the user has set this; OpenMP reads it when it is loaded.

    Left to itself it spins for milliseconds, which costs the threads of everything else in the process, Mirlo's own
    kernels among them, and where cores are shared, most of the time of its own.
    """
    if any(name in os.environ for name in ("OMP_WAIT_POLICY", *WAITING)):
        yield
        return
    os.environ.update(WAITING)
    try:
        yield
    finally:
        for name in WAITING:
            del os.environ[name]


def _folders() -> list[Path]:
    """Return the folders where wheels install it: `lib` of the environment, or of the user's site."""
    import site

    prefixes = dict.fromkeys([sys.prefix, sys.base_prefix, site.getuserbase() or sys.prefix])
    return [Path(prefix) / "lib" for prefix in prefixes]


def _find() -> Path | None:
    return next((folder / NAME for folder in _folders() if (folder / NAME).exists()), None)


@contextmanager
def threads_set(count: int) -> Iterator[None]:
    """Make the library use this number of threads for calls of this thread."""
    handle = load_library().handle
    before = handle.omp_get_max_threads()
    handle.omp_set_num_threads(count)
    try:
        yield
    finally:
        handle.omp_set_num_threads(before)
