"""The pass `share-reciprocals`: divisions by one value become multiplications with its reciprocal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import compare, is_constant
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.passes.lower.calls import find
from mirlo.passes.registry import Pass, register_pass
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session

_TYPES = (ir.F32Type, ir.F16Type, ir.BF16Type)
_LOOPS = ("scf.for", "scf.while", "scf.parallel")
_SCALED_BEYOND = 2.0**100
"""Divisors beyond this, or below its inverse, are scaled first: their reciprocals may be zero or infinite."""
_NEARER = 2.0**64


@register_pass
@dataclass(frozen=True)
class ShareReciprocals(Pass):
    """Replace f32, f16 and bf16 divisions that share a divisor by products with its reciprocal.

    A division is a dozen instructions on NVIDIA GPUs, two of them on the special function unit, and a branch: in a
    softmax of 16-bit elements it takes longer than memory does. If a thread divides several elements by one value,
    or divides in a loop, the product with the reciprocal is corrected by the remainder, which is exact. Quotients
    that are rounded to 16 bits use the product as it is.
    """

    name = "share-reciprocals"
    contained = True

    def run(self, op: ir.OpView, session: Session) -> None:
        for kernel in find(op, "gpu.func"):
            _share_all(kernel)


def _share_all(kernel: ir.Operation) -> None:
    groups: dict[ir.Value, list[ir.Operation]] = {}
    for op in find(kernel, "arith.divf"):
        divisor = op.operands[1]
        if isinstance(divisor.type, _TYPES) and not _is_power_of_two(divisor):
            groups.setdefault(divisor, []).append(op)
    for divisions in groups.values():
        divisor = divisions[0].operands[1]  # may have been a quotient that was replaced
        if len(divisions) > 1 or _repeats(divisions[0], divisor):
            _share(divisor, divisions)


def _share(divisor: ir.Value, divisions: list[ir.Operation]) -> None:
    with _behind(divisor), divisions[0].location:
        f32 = ir.F32Type.get()
        divisor = _wide(divisor)
        size = create("math.absf", f32, divisor)
        nearer, farther = (emit_constant(number, f32) for number in (1 / _NEARER, _NEARER))
        scale = create("arith.select", f32, compare("lt", size, 1 / _SCALED_BEYOND), farther, emit_constant(1.0, f32))
        scale = create("arith.select", f32, compare("gt", size, _SCALED_BEYOND), nearer, scale)
        # Move the sign to the dividend: only then is the remainder of a zero dividend right.
        scale = create("math.copysign", f32, scale, divisor)
        scaled = create("arith.mulf", f32, divisor, scale)
        reciprocal = create("arith.divf", f32, emit_constant(1.0, f32), scaled)
        negative = create("arith.negf", f32, reciprocal)
    for op in divisions:
        with ir.InsertionPoint(op), op.location:
            top = create("arith.mulf", f32, _wide(op.operands[0]), scale)
            near = create("arith.mulf", f32, top, reciprocal)
            shared: ir.Value = near
            kind = op.results[0].type
            if kind != f32:
                shared = create("arith.truncf", kind, near)
            elif not _is_rounded(op.results[0]):
                shared = _corrected(near, top, scaled, negative)
        op.results[0].replace_all_uses_with(shared)
        op.erase()


def _wide(value: ir.Value) -> ir.Value:
    f32 = ir.F32Type.get()
    return value if value.type == f32 else create("arith.extf", f32, value)


def _is_rounded(value: ir.Value) -> bool:
    """Return whether all users of a value round it to 16 bits."""
    users = [use.owner.operation for use in value.uses]
    return all(op.name == "arith.truncf" and op.results[0].type.width == 16 for op in users)


def _corrected(near: ir.Value, top: ir.Value, divisor: ir.Value, negative: ir.Value) -> ir.Value:
    """Correct an approximate quotient, given the negative reciprocal."""
    f32 = near.type
    over = create("math.fma", f32, near, divisor, create("arith.negf", f32, top))
    exact = create("math.fma", f32, over, negative, near)
    # For zero and infinite divisors, and on overflow, the product is the quotient.
    return create("arith.select", f32, compare("unordered", exact, exact), near, exact)


def _behind(value: ir.Value) -> ir.InsertionPoint:
    """Return the insertion point after the definition of a value."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return ir.InsertionPoint.at_block_begin(owner)
    operations = [op.operation for op in owner.operation.block.operations]
    return ir.InsertionPoint(operations[operations.index(owner.operation) + 1])


def _repeats(op: ir.Operation, value: ir.Value) -> bool:
    """Return whether an operation is in a loop that does not contain the definition of a value."""
    defining_block = value.owner if isinstance(value.owner, ir.Block) else value.owner.operation.block
    block = op.operation.block
    while block != defining_block:
        parent = block.owner
        if parent is None or parent.operation.name == "gpu.func":
            return False
        if parent.operation.name in _LOOPS:
            return True
        block = parent.operation.block
    return False


def _is_power_of_two(value: ir.Value) -> bool:
    """Return whether a divisor is a constant power of two, which LLVM turns into a multiplication."""
    if not is_constant(value):
        return False
    number = abs(float(value.owner.attributes["value"].value))
    return number == 0 or math.frexp(number)[0] == 0.5
