"""Reductions along an axis, which is kept as 1."""

from __future__ import annotations

import numpy as np

from mirlo.extend.frontend import Tensor
from mirlo_tflite.operation import TosaOperation
from mirlo_tflite.registry import converter

_METHODS = {
    "reduce_sum": Tensor.sum, "reduce_product": Tensor.prod, "reduce_max": Tensor.max, "reduce_min": Tensor.min,
    "reduce_any": Tensor.any, "reduce_all": Tensor.all,
}  # fmt: skip


@converter(*_METHODS)
def reduction(op: TosaOperation) -> Tensor:
    x = op.regarding_nan(op.operands[0], -np.inf if op.name == "reduce_max" else np.inf)
    return _METHODS[op.name](x, (op.integer("axis"),), keepdims=True)


@converter("argmax")
def argmax(op: TosaOperation) -> Tensor:
    """Convert `argmax`: the first NaN wins, or, where it is ignored, no NaN does."""
    x = op.regarding_nan(op.operands[0], -np.inf)
    return op.position_of_extreme("max", x, op.integer("axis"), keepdims=False).cast("i32")
