"""Buffers of kernels that are equal but for the sizes of these: they get the same types, of one dim.

Sizes in types are in no code: a kernel gets pointers, and what it sees in one dim has no strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core.value import create
from mirlo.dialects.core.walk import walk
from mirlo.dialects.tir.view import PRIM_FUNC
from mirlo.targets.llvm.flat_views import SCRATCH, WholeViews, flatten_arguments, flatten_scratch, whole_views

VIEWS = frozenset(
    ("memref.view", "memref.collapse_shape", "memref.expand_shape", "memref.reinterpret_cast", "memref.subview")
)
"""Operations whose results are views of buffers."""


def form_of(buffer: ir.Value) -> object:
    """Return what is left of a buffer's type without sizes that code does not depend on, for other values their type.

    These are sizes of buffers of one dim, and of those that are seen in one dim only.
    """
    kind = buffer.type
    if not isinstance(kind, ir.MemRefType) or not kind.has_static_shape:
        return hash(kind)
    if _is_flat(kind):
        return "flat", hash(kind.element_type), hash(kind.memory_space)
    views = whole_views(buffer)
    if views is None or not _is_flat(views.kind) or not _can_be_flat(buffer, views):
        return hash(kind)
    return "whole", hash(kind.element_type), hash(views.kind.element_type), hash(kind.memory_space)


def _can_be_flat(buffer: ir.Value, views: WholeViews) -> bool:
    """Return whether a buffer is an argument of a kernel, or scratch memory, that `flat_views.py` gives one dim."""
    owner = buffer.owner
    if isinstance(owner, ir.Block):
        return PRIM_FUNC in owner.owner.operation.attributes
    return isinstance(owner.opview, SCRATCH) and views.collapsed == len(views.operations)


def _is_flat(kind: Any) -> bool:
    return bool(kind.rank == 1 and kind.has_static_shape and kind.affine_map == ir.AffineMap.get_identity(1))


def equalize(kernels: Sequence[Sequence[ir.Operation]]) -> None:
    """Give the buffers of kernels of one form the same types: those of one dim have the largest size of all.

    A kernel is its functions with bodies, itself first.
    """
    columns = list(zip(*map(_buffers, kernels), strict=True))
    if all(len({value.type for value in column}) == 1 for column in columns):
        return
    for functions in kernels:
        flatten_arguments(functions[0])
        for function in functions:
            for op in [each for each in function.regions[0].blocks[0].operations if isinstance(each, SCRATCH)]:
                flatten_scratch(op.operation)
    for column in zip(*map(_buffers, kernels), strict=True):
        kinds: set[Any] = {value.type for value in column}
        if len(kinds) > 1:
            largest = max(kinds, key=lambda kind: kind.shape[0])
            for value in column:
                value.set_type(largest)
    for functions in kernels:
        for function in functions:
            set_inputs(function, [argument.type for argument in function.regions[0].blocks[0].arguments])


def _buffers(functions: Sequence[ir.Operation]) -> list[ir.Value]:
    """Return the buffers that the functions of a kernel take, and the views of buffers."""
    buffers: list[ir.Value] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name in VIEWS:
            buffers.append(op.results[0])
        return ir.WalkResult.ADVANCE

    for function in functions:
        buffers += [each for each in function.regions[0].blocks[0].arguments if isinstance(each.type, ir.MemRefType)]
        walk(function, visit)
    return buffers


def set_inputs(function: ir.Operation, kinds: Sequence[ir.Type]) -> None:
    """Change the types of a function's arguments in its own type."""
    results = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).results
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(list(kinds), list(results)))


def cast_operands(call: ir.Operation, function: ir.Operation) -> None:
    """Pass to a function buffers of the types that it takes."""
    kinds = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).inputs
    for i, (operand, kind) in enumerate(zip(list(call.operands), kinds, strict=False)):
        if operand.type != kind:
            with ir.InsertionPoint(call), call.location:
                call.operands[i] = _cast(operand, kind)


def _cast(buffer: ir.Value, kind: Any) -> ir.Value:
    """Return a buffer as one of another type: a view of the same bytes, where it is one, or of the same elements."""
    owner = buffer.owner
    result: ir.OpView
    if isinstance(owner, memref.ViewOp) and len(owner.operation.operands) == 2:
        result = memref.ViewOp(kind, *owner.operation.operands, [])
    elif buffer.type.element_type != kind.element_type:
        result = memref.ViewOp(kind, buffer, create("arith.constant", ir.IndexType.get(), value=_index(0)), [])
    else:
        result = memref.ReinterpretCastOp(kind, buffer, [], [], [], [0], list(kind.shape), [1] * kind.rank)
    value: ir.Value = result.operation.results[0]
    return value


def _index(number: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IndexType.get(), number)
