"""Conversion of element types."""

from __future__ import annotations

from mirlo.dialects.core.attributes import Bool, ElementType
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.op import operand
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.base import RelaxOp


class Cast(RelaxOp, name="cast"):
    """The elements in another type.

    Floats to integers truncate towards zero; anything to bool is `x != 0`. `saturate` says whether a value beyond the
    largest 8-bit float becomes that float, or infinity or NaN.
    """

    x = operand()
    dtype = ElementType()
    saturate = Bool(True)

    @staticmethod
    def infer(x: TensorType, *, dtype: DType, saturate: bool) -> TensorType:
        return x.with_dtype(dtype)
