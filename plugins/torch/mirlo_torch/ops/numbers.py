"""Floats computed from sizes, such as the scale of attention: tensors of f64 without dims."""

from __future__ import annotations

import operator
from collections.abc import Callable

from mirlo.extend.frontend import Tensor
from mirlo_torch.operation import AtenOperation, Operand
from mirlo_torch.registry import CONVERTERS, Converter, converter


@converter("number.sym_float")
def sym_float(op: AtenOperation, x: Operand) -> Tensor:
    return op.operand(x, "f64")


def _of_numbers(function: Callable[..., Tensor]) -> Converter:
    """Return the converter of a function of numbers."""
    return lambda op, *operands: function(*(op.operand(x, "f64") for x in operands))


for _function in (operator.truediv, operator.mul, operator.add, operator.sub, operator.pow, operator.neg):
    CONVERTERS[f"number.{_function.__name__}"] = _of_numbers(_function)
for _name in ("sqrt", "log2", "exp", "log"):
    CONVERTERS[f"number._sym_{_name}"] = _of_numbers(getattr(Tensor, _name))
