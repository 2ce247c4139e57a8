"""The loader of native code: a shared library of the C functions of regions, compiled here where it is not yet.

Models of older versions have a library of target `c` whose functions take their constants alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial

from mirlo.runtime.errors import ArtifactError
from mirlo.runtime.external import ExternalArtifact, ExternalFunctions, LoadContext, load_external
from mirlo.runtime.loaders import llvm_host
from mirlo.runtime.native import NativeCode, is_native, native_code
from mirlo.runtime.system import LIBRARY_SUFFIX
from mirlo.runtime.thunks import bind_state
from mirlo.targets.c.libraries import cannot_open, close, open_bytes

OUT_OF_MEMORY, WRONG_SIZES = 1, 2
"""Return codes of the functions of target `c`."""
ERRORS = {
    OUT_OF_MEMORY: "there is no memory for the intermediate tensors",
    WRONG_SIZES: "the sizes of the inputs do not fit each other, or any memory",
}


class RegionStruct(ctypes.Structure):
    """`mirlo_region` of `mirlo.h`."""

    _fields_ = (
        ("driver", ctypes.c_void_p), ("name", ctypes.c_char_p), ("context", ctypes.c_void_p),
        ("program", ctypes.c_void_p), ("weights", ctypes.c_void_p), ("program_bytes", ctypes.c_uint64),
        ("weight_count", ctypes.c_int32), ("threads", ctypes.c_int32),
    )  # fmt: skip


def load(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
    """Load the functions of the library; it is closed when they are released."""
    if not is_native(artifact):
        return _load_parts(artifact, context)
    code = native_code(artifact)
    if code.loader:
        return load_external(code.loader, artifact, context)
    library, path = open_bytes(_library(artifact, code), LIBRARY_SUFFIX, partial(_explain_opening, code))
    regions = (RegionStruct * max(len(artifact.functions), 1)).in_dll(library, "mirlo_regions")
    weights, arrays = _addresses(artifact.params, context)
    programs = []
    for number, name in enumerate(artifact.functions):
        region, program = regions[number], code.programs.get(name, b"")
        programs.append((_aligned_copy(program), artifact.packed_name(name).encode()))
        region.name, region.weights, region.weight_count = programs[-1][1], ctypes.addressof(weights), len(arrays)
        region.program, region.program_bytes = programs[-1][0][1] if program else None, len(program)
        region.threads = context.threads
    functions = {name: getattr(library, f"mirlo_call_{i}") for i, name in enumerate(artifact.functions)}
    keep = (library, weights, arrays, programs)
    return ExternalFunctions(
        functions, keep=keep, release=lambda: close(library, path), explain=partial(_explain, code)
    )


def _library(artifact: ExternalArtifact, code: NativeCode) -> bytes:
    """Return the shared library of native code for this machine."""
    here = str(llvm_host()["triple"])
    if code.library and code.library_triple == here:
        return code.library
    if code.library and not (code.sources or code.simulator):
        raise ArtifactError(
            f"it was compiled for {code.library_triple}, this machine is {here}: compile the model again for it"
        )
    from mirlo.targets.c.native import host_library

    return host_library(code, artifact.functions)


def _explain(code: NativeCode, function: str, number: int) -> str | None:
    text = code.errors.get(number)
    return None if text is None else f"'{function}' returned {number}: {text}"


def _explain_opening(code: NativeCode, error: OSError) -> str:
    if code.is_defined or code.simulator:
        return cannot_open(error)
    return (
        f"its driver '{code.driver or ', '.join(code.functions.values())}' is not in this process ({error}): load the "
        "driver's library first, ctypes.CDLL(path, ctypes.RTLD_GLOBAL), or let the code generator return a simulator"
    )


def _addresses(names: Sequence[str], context: LoadContext) -> tuple[ctypes.Array[ctypes.c_void_p], list[object]]:
    """Return the addresses of constants, and the arrays that they are of."""
    arrays = [context.params[name] for name in names]
    addresses = [array.__array_interface__["data"][0] for array in arrays]
    return (ctypes.c_void_p * max(len(addresses), 1))(*addresses), list(arrays)


def _aligned_copy(content: bytes) -> tuple[object, int]:
    """Return a copy on a multiple of 64, and its address."""
    memory = ctypes.create_string_buffer(len(content) + 64)
    address = -(-ctypes.addressof(memory) // 64) * 64
    ctypes.memmove(address, content, len(content))
    return memory, address


def _load_parts(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
    """Load the functions of a model that an older version compiled."""
    made_for, here = artifact.metadata.get("triple"), llvm_host()["triple"]
    if made_for != here:
        raise ArtifactError(f"it was compiled for {made_for}, this machine is {here}: compile the model again for it")
    library, path = open_bytes(artifact.data, str(artifact.metadata.get("suffix", ".so")))
    state, arrays = _addresses(artifact.params, context)
    symbols: dict[str, str] = artifact.metadata["symbols"]
    pairs = {name: (getattr(library, symbols[name]), state) for name in artifact.functions}
    functions, engine = bind_state(pairs)
    explain = partial(_explain, NativeCode(errors=ERRORS))
    return ExternalFunctions(
        functions, keep=(library, state, arrays, engine), release=lambda: close(library, path), explain=explain
    )
