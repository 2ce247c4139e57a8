"""relax: pure operators on ranked tensors. One file per family of operators."""

from mirlo.dialects.relax import calls, constant, elementwise, matmul
from mirlo.dialects.relax.base import DIALECT, RelaxOp

__all__ = ["DIALECT", "RelaxOp", "calls", "constant", "elementwise", "matmul"]
