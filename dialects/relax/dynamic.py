"""Dims that only data tells: from the elements of a tensor to symbols."""

from __future__ import annotations

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.attributes import Dims, Str, Strs
from mirlo.dialects.core.op import OpError, operand
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.base import RelaxOp


class BindDims(RelaxOp, name="bind_dims"):
    """From here on the symbols stand for these numbers: element i of `values`, a vector of i64, is `symbols[i]`.

    A number that is negative, or more than its entry in `bounds` (a dim, or "?" where nothing is known), ends the call
    with an error that says `what`.
    """

    DEFAULT_RESULT = False
    PURE = False
    values = operand()
    symbols = Strs()
    bounds = Dims(())
    what = Str("a size")

    def check(self) -> None:
        found = TensorType.from_mlir(self.operation.operands[0].type)
        count = len(self.symbols)
        if found is None or found.dtype.name != "i64" or found.shape != (count,):
            raise OpError(f"values must be a tensor<{count}xi64>, an element per symbol, got {found}")
        for name in self.symbols:
            if not D.is_symbol_name(name):
                raise OpError(f"'{name}' is not a name for a dim")
        if len(set(self.symbols)) != count:
            raise OpError("symbols must be different names")
        if self.bounds and len(self.bounds) != count:
            raise OpError(f"bounds must have an entry for each of {count} symbols, got {len(self.bounds)}")
