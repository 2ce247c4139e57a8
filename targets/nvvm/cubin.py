"""Ahead-of-time machine code: `nvvm{cubin=true}` assembles PTX when the model is compiled.

The assembler is `ptxas` or nvJitLink, a library of CUDA that the wheel `nvidia-nvjitlink` contains too. The PTX is
kept as well, for other chips.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import subprocess
from functools import cache

from mirlo.runtime.cache import OBJECTS, Cache
from mirlo.targets.nvvm.chips import Chip, ChipError
from mirlo.targets.nvvm.ptxas import AssemblerError, find_ptxas, run_ptxas
from mirlo.targets.nvvm.wheels import find_library

_PTX = 2
"""nvJitLink's number of this input type."""


def to_cubin(ptx: bytes, chip: Chip, cache: Cache | None = None) -> bytes:
    """Return the machine code of PTX for a chip, from the cache if it is there."""
    tool = _tool()
    if tool is None:
        raise ChipError(
            "cubin of target 'nvvm' needs NVIDIA's ptxas or nvJitLink: pip install nvidia-cuda-nvcc, nvidia-nvjitlink, "
            "install CUDA, or leave the option out: the driver finishes PTX when the model is loaded"
        )
    key = hashlib.blake2b(b"\0".join([tool.encode(), chip.name.encode(), ptx]), digest_size=20).hexdigest()
    result = cache.get(OBJECTS, key) if cache is not None else None
    if result is not None:
        return result
    try:
        cubin = run_ptxas(ptx, chip).cubin if find_ptxas() else link(ptx, chip)
    except AssemblerError as error:
        raise ChipError(f"the kernels' PTX is not assembled for {chip.name}: {error}") from error
    if cache is not None:
        cache.put(OBJECTS, key, cubin)
    return cubin


@cache
def _tool() -> str | None:
    """Return the available assembler with its version; None if there is none."""
    path = find_ptxas()
    if path is not None:
        report = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
        return f"ptxas {' '.join(re.findall(r'V[0-9.]+', report)) or path}"
    name = find_nvjitlink()
    if name is None:
        return None
    major, minor = ctypes.c_uint(), ctypes.c_uint()
    ctypes.CDLL(name).nvJitLinkVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"nvJitLink {major.value}.{minor.value}"


def find_nvjitlink() -> str | None:
    """Return the library's path or name, or None."""
    return find_library("nvJitLink")


def link(ptx: bytes, chip: Chip) -> bytes:
    """Assemble with nvJitLink."""
    name = find_nvjitlink()
    if name is None:
        raise AssemblerError("there is no nvJitLink: pip install nvidia-nvjitlink")
    library = ctypes.CDLL(name)
    handle, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = (ctypes.c_char_p * 1)(f"-arch={chip.name}".encode())
    if library.nvJitLinkCreate(ctypes.byref(handle), ctypes.c_uint(1), options):
        raise AssemblerError(f"nvJitLink does not know {chip.name}")
    try:
        data = ctypes.create_string_buffer(ptx)
        failed = library.nvJitLinkAddData(handle, _PTX, data, ctypes.c_size_t(len(data)), b"kernels")
        if failed or library.nvJitLinkComplete(handle):
            library.nvJitLinkGetErrorLogSize(handle, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value or 1)
            library.nvJitLinkGetErrorLog(handle, log)
            raise AssemblerError(log.value.decode(errors="replace").strip() or "nvJitLink failed")
        library.nvJitLinkGetLinkedCubinSize(handle, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        library.nvJitLinkGetLinkedCubin(handle, buffer)
        return buffer.raw
    finally:
        library.nvJitLinkDestroy(ctypes.byref(handle))
