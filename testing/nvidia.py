"""Internals of target `nvvm` that the tests of libraries for NVIDIA's GPUs replace or inspect."""

from mirlo.targets.nvvm import library_loading, wheels
from mirlo.targets.nvvm.device import gpu
from mirlo.targets.nvvm.library_plan import read
from mirlo.targets.nvvm.memory import pool

__all__ = ["gpu", "library_loading", "pool", "read", "wheels"]
