"""Ranges of the inputs of a kernel."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.view import PrimView
from mirlo.passes.exact.memory import IntegerInputs
from mirlo.passes.exact.translator import Argument
from mirlo.passes.exact.values import bits_of, element_of, is_float

MASK = "mask"
"""The name of blocks that add a mask to scores: its elements may be minus infinity."""


def integer_inputs(
    arguments: Sequence[Argument], dims: Iterable[Dim], sizes: Mapping[str, int], bools: Collection[int]
) -> dict[int, IntegerInputs]:
    """Return the ranges of integer arguments by position; bytes that are no bools may be anything.

    Wider integers are mostly indices and sizes: the ends of all dims are among them.
    """
    numbers = {dim for dim in dims if isinstance(dim, int) and dim > 0} | set(sizes.values()) | {1}
    ends = {x for n in numbers for x in (0, 1, -1, n - 1, n, n + 1, -n, -n - 1, -n + 1, n // 2)}
    special = IntegerInputs(np.array(sorted(ends)))
    values = {i: special for i, each in enumerate(arguments) if each.role == "in" and each.bits > 8}
    return values | {i: IntegerInputs(special.special, is_bool=True) for i in bools}


def bool_arguments(view: PrimView) -> set[int]:
    """Return the positions of arguments of bytes that are truth values."""
    return {
        i for i, argument in enumerate(view.arguments)
        if not is_float(element_of(argument.type)) and bits_of(element_of(argument.type)) <= 8
        and _is_bool(view, argument)
    }  # fmt: skip


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
