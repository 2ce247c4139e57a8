"""The processor of this machine, by LLVM's names; only this module detects it."""

from __future__ import annotations

import ctypes
import json
import platform
from collections.abc import Collection
from functools import cache

from mirlo.runtime.cache import OBJECTS, Cache, default_folder, digest_of
from mirlo.runtime.object_loader import compile_llvm, runtime_ir
from mirlo.runtime.records import dataclass
from mirlo.runtime.sources import library_versions
from mirlo.runtime.system import processor_description, scalable_vector_bits

AMX = frozenset({"amx-bf16", "amx-int8", "amx-tile"})
"""The matrix unit of x86, whose registers a process may use only where the system permits it (`permits_tiles`)."""

_LEAVES = ((1, 0), (7, 0), (7, 1), (0x80000001, 0))
"""Arguments of CPUID for which it returns features."""


@dataclass(frozen=True)
class HostCpu:
    """A processor that code is compiled for and loaded on."""

    name: str
    """LLVM's name of the model."""
    features: frozenset[str]
    """All features by LLVM's names, and `sve256` for scalable vectors of 256 bits."""
    triple: str
    """LLVM's name of the processor's kind and of the system."""


_RESTRICTIONS: list[tuple[str, frozenset[str]]] = []
"""What `restrict_host_cpu` was called with."""


@cache
def host_cpu() -> HostCpu:
    """Return the processor of this machine, within the limits of `restrict_host_cpu`."""
    known = _known_to_llvm()
    bits = scalable_vector_bits()
    name, features = known.name, known.features | ({f"sve{bits}"} if bits else set())
    for other, lacked in _RESTRICTIONS:
        name, features = other, features - lacked
    return HostCpu(name, frozenset(features), known.triple)


def restrict_host_cpu(cpu: str, lacked: Collection[str]) -> None:
    """Simulate a processor without some features and with LLVM's name `cpu` in this process, for tests.

    Call it before the processor is first used.
    """
    if host_cpu.cache_info().currsize:
        raise RuntimeError("restrict_host_cpu must come first: code was compiled or loaded for the whole processor")
    _RESTRICTIONS.append((cpu, frozenset(lacked)))


def _known_to_llvm() -> HostCpu:
    """Return what LLVM finds, from the cache where it has it: a process that only runs models needs no LLVM."""
    try:
        described = _description()
    except OSError:  # no code may be made here
        described = ""
    if not described:
        return _ask_llvm()
    cache = Cache(default_folder())
    key = digest_of("\n".join(("host", *library_versions(), described)).encode())
    stored = cache.get(OBJECTS, key)
    if stored is not None:
        row = json.loads(stored)
        return HostCpu(row["name"], frozenset(row["features"]), row["triple"])
    cpu = _ask_llvm()
    row = {"name": cpu.name, "features": sorted(cpu.features), "triple": cpu.triple}
    cache.put(OBJECTS, key, json.dumps(row).encode())
    return cpu


def _description() -> str:
    """Return the features that the system and the processor report; nothing where the system lists none.

    An emulator shows the list of the system that it runs on, so the processor is asked too.
    """
    listed = processor_description()
    return f"{listed} {_identification()}" if listed and platform.machine() == "x86_64" else listed


def _identification() -> list[list[int]]:
    """Return the features that the instruction CPUID reports; OSError if no code may be generated."""
    code = compile_llvm(runtime_ir("cpuid-x86_64-linux"), is_kept=True)
    ask = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)(code.address("mirlo_cpuid"))
    words = (ctypes.c_uint32 * 4)()
    result = []
    for leaf, part in _LEAVES:
        ask(leaf, part, words)
        # The second word of the first leaf names the core on which this runs.
        result.append([word for i, word in enumerate(words) if (leaf, i) != (1, 1)])
    return result


def _ask_llvm() -> HostCpu:
    import llvmlite.binding as llvm

    features = frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)
    return HostCpu(llvm.get_host_cpu_name(), features, llvm.get_process_triple())
