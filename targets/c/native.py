"""Native code as a shared library of this machine, which Python and compiled code call."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mirlo.runtime.loaders import llvm_host
from mirlo.runtime.native import NativeCode
from mirlo.runtime.object_loader import define_symbol
from mirlo.targets.c.compiler import CompilerError, compile_shared, compile_shared_files, find_compiler
from mirlo.targets.c.libraries import open_library

_HEAD = """/* What Python calls: a packed function for each region. */
#include "mirlo.h"

"""
_LIBRARIES: dict[bytes, bytes] = {}
"""Libraries that this process compiled, by the digest of their code."""
_DEFINED: dict[bytes, ctypes.CDLL] = {}
"""Libraries of functions that code of this process may call: they stay open."""
MAX_LIBRARIES = 64
"""Most libraries that are kept: loading a model again then needs no compiler."""


def with_host_library(code: NativeCode, regions: Sequence[str], compiler: str = "") -> NativeCode:
    """Return native code with its library for this machine, so that loading it needs no compiler."""
    triple = str(llvm_host()["triple"])
    return replace(code, library=host_library(code, regions, compiler), library_triple=triple)


def host_library(code: NativeCode, regions: Sequence[str], compiler: str = "") -> bytes:
    """Compile native code for this machine: with its simulator, and a function for each region that Python calls."""
    files = {**code.sources, **code.simulator, "mirlo_calls.c": _calls(code, regions)}
    is_here = code.triple.partition("-")[0] == str(llvm_host()["triple"]).partition("-")[0]
    objects = code.objects if is_here else {}
    key = _digest(files, objects, code.flags, compiler)
    if key not in _LIBRARIES:
        if len(_LIBRARIES) >= MAX_LIBRARIES:
            _LIBRARIES.clear()
        _LIBRARIES[key] = compile_shared_files(files, objects, find_compiler(compiler), code.flags)
    return _LIBRARIES[key]


def define_c_functions(source: str, names: Sequence[str], flags: Sequence[str] = ()) -> None:
    """Compile a C file for this machine, and define its functions for code that is loaded from now on.

    A target whose code calls a driver does so before it loads a model.
    """
    key = _digest({"functions.c": source}, {}, flags, "")
    if key not in _DEFINED:
        library = open_library(compile_shared(source, find_compiler(), flags))
        missing = [name for name in names if not hasattr(library, name)]
        if missing:
            raise CompilerError(f"the C source does not define '{missing[0]}'")
        _DEFINED[key] = library
    for name in names:
        define_symbol(name, ctypes.cast(_DEFINED[key][name], ctypes.c_void_p).value or 0)


def _calls(code: NativeCode, regions: Sequence[str]) -> str:
    lines = [_HEAD, f"mirlo_region mirlo_regions[{max(len(regions), 1)}];\n"]
    for number, region in enumerate(regions):
        driver = code.function(region)
        lines.append(
            f"int {driver}(const mirlo_region *region, DLTensor **tensors, int64_t count);\n"
            f"int mirlo_call_{number}(DLTensor **tensors, int64_t count) {{\n"
            f"  return {driver}(&mirlo_regions[{number}], tensors, count);\n}}\n"
        )
    return "".join(lines)


def _digest(files: Mapping[str, str], objects: Mapping[str, bytes], flags: Sequence[str], compiler: str) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for name, text in files.items():
        digest.update(f"{name} {len(text)}\n{text}".encode())
    for name, content in objects.items():
        digest.update(f"{name} {len(content)}\n".encode() + content)
    digest.update(repr((list(flags), compiler)).encode())
    return digest.digest()
