"""LLVM's back end for NVIDIA GPUs, that of llvmlite."""

from __future__ import annotations

from functools import cache
from types import ModuleType


@cache
def load_llvmlite() -> ModuleType:
    """Return llvmlite's binding with all back ends."""
    import llvmlite.binding as binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    found: ModuleType = binding
    return found
