"""tir: blocks, loops and intrinsics, the parts of TIR that upstream MLIR lacks."""

from mirlo.dialects.tir import block, calls, intrinsics, loops, sizes
from mirlo.dialects.tir.base import DIALECT, TirOp

__all__ = ["DIALECT", "TirOp", "block", "calls", "intrinsics", "loops", "sizes"]
