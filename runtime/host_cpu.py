"""The processor of this machine, by LLVM's names: Mirlo asks for it here only."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

from mirlo.runtime.lazy_dataclass import dataclass
from mirlo.runtime.system import scalable_vector_bits


@dataclass(frozen=True)
class HostCpu:
    """A processor that code is compiled for and loaded on."""

    name: str
    """LLVM's name of the model."""
    features: frozenset[str]
    """All features by LLVM's names, and `sve256` for scalable vectors of 256 bits."""


_RESTRICTIONS: list[tuple[str, frozenset[str]]] = []
"""What `restrict_host_cpu` was called with."""


@cache
def host_cpu() -> HostCpu:
    """Return the processor of this machine, with what `restrict_host_cpu` left of it."""
    import llvmlite.binding as llvm

    features = {name for name, present in llvm.get_host_cpu_features().items() if present}
    bits = scalable_vector_bits()
    name, features = llvm.get_host_cpu_name(), features | ({f"sve{bits}"} if bits else set())
    for other, lacked in _RESTRICTIONS:
        name, features = other, features - lacked
    return HostCpu(name, frozenset(features))


def restrict_host_cpu(cpu: str, lacked: Collection[str]) -> None:
    """Let this process see a processor that lacks features and has LLVM's name `cpu`, as tests of older machines do.

    This must happen before anything asks for the processor.
    """
    if host_cpu.cache_info().currsize:
        raise RuntimeError("restrict_host_cpu must come first: code was compiled or loaded for the whole processor")
    _RESTRICTIONS.append((cpu, frozenset(lacked)))
