"""What the inputs of a kernel are drawn from."""

from __future__ import annotations

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.types import dims_of
from mirlo.dialects.tir.view import PrimView
from mirlo.passes.exact.memory import IntegerInputs
from mirlo.passes.exact.values import element_of, is_float

MASK = "mask"
"""The name of blocks that add a mask to scores: its elements may be minus infinity."""


def integer_values(view: PrimView, sizes: dict[str, int]) -> dict[int, IntegerInputs]:
    """Return what integer arguments are drawn from, by position; bytes that are no bools may be anything.

    Wider integers are mostly indices and sizes: the ends of all dims are among them.
    """
    dims = {dim for value in (*view.arguments, *view.returned) for dim in dims_of(value.type)}
    dims |= {dim for block in view.blocks for operand in block.inputs for dim in operand.shape}
    numbers = {dim for dim in dims if isinstance(dim, int) and dim > 0} | set(sizes.values()) | {1}
    ends = {x for n in numbers for x in (0, 1, -1, n - 1, n, n + 1, -n, -n - 1, -n + 1, n // 2)}
    special = IntegerInputs(np.array(sorted(ends)))
    values = {}
    for i, argument in enumerate(view.arguments):
        element = element_of(argument.type)
        if isinstance(element, ir.IntegerType) and element.width > 8:
            values[i] = special
        elif isinstance(element, ir.IntegerType) and _is_bool(view, argument):
            values[i] = IntegerInputs(special.special, is_bool=True)
    return values


def _is_bool(view: PrimView, argument: ir.Value) -> bool:
    """Return whether bytes are read as truth values in some block."""
    for block in view.blocks:
        for operand, inside in zip(block.inputs, block.input_arguments, strict=True):
            if operand.value == argument and any(_is_test(use.owner.operation) for use in inside.uses):
                return True
    return False


def _is_test(op: ir.Operation) -> bool:
    if op.name == "arith.trunci":
        return str(element_of(op.results[0].type)) == "i1"
    if op.name == "tensor.extract":
        return any(_is_test(use.owner.operation) for use in op.results[0].uses)
    return op.name == "arith.cmpi"


def mask_arguments(view: PrimView) -> set[int]:
    """Return the positions of float arguments that are added to scores as a mask."""
    masks = {operand.value for block in view.blocks if block.name == MASK for operand in block.inputs}
    return {i for i, each in enumerate(view.arguments) if each in masks and is_float(element_of(each.type))}
