"""tir: blocks, loops, intrinsics: what MLIR lacks to say what TIR says, and nothing that it has."""

from mirlo.dialects.tir import block, calls, intrinsics, loops, sizes
from mirlo.dialects.tir.base import DIALECT, TirOp

__all__ = ["DIALECT", "TirOp", "block", "calls", "intrinsics", "loops", "sizes"]
