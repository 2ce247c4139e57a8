"""Constants.

Small constants are in the IR. Weights are in the parameter store, and the IR holds their names.
"""

from __future__ import annotations

from mirlo.dialects.core.attributes import Raw, Str
from mirlo.dialects.core.op import OpError, result
from mirlo.dialects.core.traits import Trait
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.base import RelaxOp


class Constant(RelaxOp, name="constant"):
    """A tensor known at compile time: `value` in the IR, or `param`, the name of an array in the parameter store."""

    TRAITS = (Trait.INTERFACE,)
    output = result()
    value = Raw("DenseElementsAttr", None)
    param = Str(None)

    def check(self) -> None:
        declared = TensorType.from_mlir(self.output.type)
        if declared is None or not declared.is_static:
            raise OpError(f"result must be a tensor whose dims are numbers, got {self.output.type}")
        if (self.value is None) == (self.param is None):
            raise OpError("needs either 'value', a dense attribute, or 'param', the name of a parameter")
        if self.value is not None and self.value.type != self.output.type:
            raise OpError(f"value is {self.value.type}, but the result is declared {self.output.type}")
