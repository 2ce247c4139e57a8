"""Arithmetic that depends on rounding, which WGSL lets drivers simplify, such as `(x + c) - c` to `x`.

Elementary functions round by adding a large constant, find the error of a sum by subtracting its parts again, and add
the product with a constant in two parts.
Such intermediate results are passed through an integer operation with a zero that no driver knows.
"""

from __future__ import annotations

from mirlo.extend.ops import ir

_SUMS = frozenset({"spirv.FAdd", "spirv.FSub"})
_ARITHMETIC = _SUMS | {"spirv.FMul", "spirv.GL.Fma"}
_PRODUCTS = frozenset({"spirv.FMul", "spirv.GL.Fma"})
_DEPTH = 3
"""Most operations between a value and the sum that restores it, in compensated sums and split products."""


def must_round(op: ir.Operation) -> bool:
    """Return whether users of a result depend on its rounding."""
    if op.name not in _ARITHMETIC:
        return False
    users = [(use.owner.operation, use.operand_number) for use in op.results[0].uses]
    if any(_shares_factor(op, user, number) for user, number in users):
        return True
    sums = [(user, number) for user, number in users if user.name in _SUMS]
    if op.name == "spirv.FMul":
        # Fused into one of its users only, a product differs from what the others see.
        return bool(sums) and len(users) > 1
    return any(_gives_back(op, user.operands[1 - number]) for user, number in sums)


def _shares_factor(op: ir.Operation, user: ir.Operation, number: int) -> bool:
    """Return whether n·a is added to n·b, which drivers may rewrite to n·(a + b)."""
    if op.name not in _PRODUCTS or user.name != "spirv.GL.Fma" or number != 2:
        return False
    factors = list(op.operands)[:2]
    return any(factor in factors for factor in list(user.operands)[:2])


def _gives_back(op: ir.Operation, other: ir.Value) -> bool:
    """Return whether a sum with another value may cancel an operation."""
    return _is_constant(other) or _depends(op, other, _DEPTH)


def _is_constant(value: ir.Value) -> bool:
    owner = value.owner
    return isinstance(owner, ir.Operation | ir.OpView) and owner.operation.name == "spirv.Constant"


def _depends(op: ir.Operation, value: ir.Value, depth: int) -> bool:
    """Return whether an operation uses a value."""
    for operand in op.operands:
        if operand == value:
            return True
        owner = operand.owner
        is_sum = isinstance(owner, ir.Operation | ir.OpView) and owner.operation.name in _ARITHMETIC
        if depth > 1 and is_sum and _depends(owner.operation, value, depth - 1):
            return True
    return False
