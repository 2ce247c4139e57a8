"""tir: blocks, loops and intrinsics, the parts of TIR that upstream MLIR lacks."""

from mirlo.dialects.tir import block, intrinsics, sizes
from mirlo.dialects.tir.block import DIALECT, TirOp

__all__ = ["DIALECT", "TirOp", "block", "intrinsics", "sizes"]
