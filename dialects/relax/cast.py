"""Conversion of element types."""

from __future__ import annotations

from mirlo.dialects.core.attributes import Bool, ElementType
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.op import OpError, operand
from mirlo.dialects.core.traits import Trait
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import meanings
from mirlo.dialects.relax.base import RelaxOp


class Cast(RelaxOp, name="cast"):
    """Convert the elements to another type.

    Floats to integers truncate towards zero; anything to bool is `x != 0`. With `saturate`, a value beyond the
    largest 8-bit float becomes that float, otherwise infinity or NaN.
    """

    TRAITS = (Trait.ELEMENTWISE,)
    FLOPS_PER_ELEMENT = 0
    IN_F32 = False
    meaning = staticmethod(meanings.cast)
    LINEAR = ((0,),)
    x = operand()
    dtype = ElementType()
    saturate = Bool(True)

    @staticmethod
    def infer(x: TensorType, *, dtype: DType, saturate: bool) -> TensorType:
        return x.with_dtype(dtype)


class Bitcast(RelaxOp, name="bitcast"):
    """Reinterpret the bits of the elements as another type of the same size.

    As bool, every bit pattern but 0 is true.
    """

    FLOPS_PER_ELEMENT = 0
    meaning = staticmethod(meanings.bitcast)
    x = operand()
    dtype = ElementType()

    @staticmethod
    def infer(x: TensorType, *, dtype: DType) -> TensorType:
        for element in (x.dtype, dtype):
            if element.bits < 8 and element.name != "bool":
                raise OpError(f"takes and gives elements of 8 bits and more, and bools, got {element}")
        if x.dtype.bytes != dtype.bytes:
            raise OpError(f"needs types of the same size, got {x.dtype} and {dtype}")
        return x.with_dtype(dtype)
