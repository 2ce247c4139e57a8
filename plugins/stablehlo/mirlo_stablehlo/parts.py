"""The tensors that a value of a program is imported as.

A tensor becomes one tensor, a complex tensor its real and imaginary parts, a tuple the tensors of its elements, and a
token none. Functions and regions take and return these tensors.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from mirlo.extend.frontend import TensorType, UnsupportedOperation, dtype_of_mlir, ir, stablehlo


def is_complex(type_: ir.Type) -> bool:
    """Return whether a type is a tensor of complex numbers."""
    return isinstance(type_, ir.RankedTensorType) and isinstance(type_.element_type, ir.ComplexType)


def component_type(type_: ir.Type) -> TensorType | None:
    """Return the type of the real part of a complex tensor; None for another type."""
    if not isinstance(type_, ir.RankedTensorType) or not isinstance(type_.element_type, ir.ComplexType):
        return None
    element = dtype_of_mlir(type_.element_type.element_type)
    return None if element is None else TensorType(type_.shape, element)


def part_types(type_: ir.Type) -> tuple[TensorType, ...]:
    """Return the types of the parts of a value; raise `UnsupportedOperation` for a type that is not supported."""
    tensor_type = TensorType.from_mlir(type_)
    if tensor_type is not None:
        return (tensor_type,)
    component = component_type(type_)
    if component is not None:
        return component, component
    if isinstance(type_, ir.TupleType):
        return types_of(type_.get_type(i) for i in range(type_.num_types))
    if stablehlo().TokenType.isinstance(type_):
        return ()
    raise UnsupportedOperation(f"has the type {type_}, which is not supported")


def types_of(types: Iterable[ir.Type]) -> tuple[TensorType, ...]:
    """Return the types of the parts of values, in order."""
    return tuple(chain.from_iterable(map(part_types, types)))
