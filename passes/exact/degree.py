"""A bound for the probability that a fault is not found: the degree of results as rational functions of the inputs.

Two polynomials of degree d that differ modulo P are equal at a random point with probability at most d / P (Schwartz
and Zippel). Numerators and denominators of quotients count both. Functions without an exact meaning are hashes, whose
results are new variables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim, substitute
from mirlo.dialects.tir.view import BlockView, PrimView
from mirlo.passes.exact.primes import P
from mirlo.passes.exact.values import element_of, is_float

Degree = tuple[float, float]
"""Degrees of the numerator and the denominator."""
VARIABLE: Degree = (1, 0)
CONSTANT: Degree = (0, 0)


def proven_bits(
    view: PrimView, rounds: int, sizes: Mapping[str, int], is_combined: bool = False, squares: Sequence[ir.Value] = ()
) -> float:
    """Return b so that a fault of sums, products and quotients passes all rounds with a probability of at most 2^-b.

    With `is_combined`, sums of rows times random numbers are compared, which are of one degree more. Elements of
    arguments in `squares` may be products of two variables.
    """
    known: dict[Any, Degree] = dict.fromkeys(view.arguments, VARIABLE)
    known.update(dict.fromkeys(squares, (2, 0)))
    for block in view.blocks:
        _add_block(block, known, sizes)
    floats = [value for value in view.returned if is_float(element_of(value.type))]
    degree = max([1.0, *(sum(known[value]) * 2 for value in floats if value in known)]) + is_combined
    return rounds * max(0.0, math.log2(P) - math.log2(degree))


def _add_block(block: BlockView, known: dict[Any, Degree], sizes: Mapping[str, int]) -> None:
    for argument, operand in zip(block.input_arguments, block.inputs, strict=True):
        known[argument] = known.get(operand.value, VARIABLE)
    count = math.prod(_number(block.domain[axis], sizes) for axis in block.reduce)
    for argument in block.accumulators:
        known[argument] = CONSTANT
    for op in block.body_ops:
        _add_operation(op, known)
    for output, value in zip(block.outputs, block.yielded, strict=True):
        degree = known.get(value, CONSTANT)
        if count != 1 and _multiplies(block, value):
            degree = degree[0] * count, degree[1] * count
        elif count != 1:  # a sum of quotients has the product of their denominators
            degree = degree[0] + degree[1] * (count - 1), degree[1] * count
        known[output.value] = degree


def _multiplies(block: BlockView, value: ir.Value) -> bool:
    """Return whether a reduction multiplies its accumulator."""
    owner = value.owner
    return not isinstance(owner, ir.Block) and owner.name == "arith.mulf" and any(
        operand in block.accumulators for operand in owner.operands
    )  # fmt: skip


def _add_operation(op: ir.Operation, known: dict[Any, Degree]) -> None:
    degrees = [known.get(value, CONSTANT) for value in op.operands]
    if op.name == "arith.constant":
        result = CONSTANT
    elif op.name in ("arith.addf", "arith.subf"):
        result = _sum(degrees[0], degrees[1])
    elif op.name == "arith.mulf":
        result = degrees[0][0] + degrees[1][0], degrees[0][1] + degrees[1][1]
    elif op.name == "arith.divf":
        result = degrees[0][0] + degrees[1][1], degrees[0][1] + degrees[1][0]
    elif op.name in ("tir.fma", "tir.fmuladd"):
        result = _sum((degrees[0][0] + degrees[1][0], degrees[0][1] + degrees[1][1]), degrees[2])
    elif op.name.startswith("tir.") or op.name == "tensor.extract" or not degrees:
        result = VARIABLE
    else:  # a selection, or a cast
        result = max(each[0] for each in degrees), max(each[1] for each in degrees)
    for value in op.results:
        known[value] = result


def _sum(a: Degree, b: Degree) -> Degree:
    if a[1] == b[1] == 0:
        return max(a[0], b[0]), 0
    return max(a[0] + b[1], b[0] + a[1]), a[1] + b[1]


def _number(dim: Dim, sizes: Mapping[str, int]) -> int:
    value = dim if isinstance(dim, int) else substitute(dim, sizes)
    return value if isinstance(value, int) else 1
