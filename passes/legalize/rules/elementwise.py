"""The default rule of all elementwise operators: the function of their class, applied to each element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.errors import OpMistake
from mirlo.dialects.core.op import class_of
from mirlo.dialects.core.traits import Trait
from mirlo.dialects.tir.compute.numpy_functions import ELEMENT, as_scalar_function
from mirlo.passes.legalize.helpers import elementwise, tensor_type, wide
from mirlo.passes.rules import legalize
from mirlo.runtime.callbacks import checked

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder


@legalize(Trait.SCALAR)
def each_element(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    """Apply the operator's `scalar`, or its `meaning` in numpy, to the broadcast elements."""
    cls, values, attributes = class_of(op), list(op.operation.operands), op.attribute_values()
    function = cls.scalar
    if function is None:
        assert cls.meaning is not None, "the trait SCALAR says that there is one"
        function = as_scalar_function(cls.meaning)
    function = checked(function, ELEMENT, f"'{cls.OPERATION_NAME}'", OpMistake)
    if not cls.IN_F32:
        return elementwise(op, b, values, lambda *xs: function(*xs, **attributes))
    element = tensor_type(op.operation.results[0]).dtype
    return elementwise(op, b, values, lambda *xs: function(*map(wide, xs), **attributes).cast(element))
