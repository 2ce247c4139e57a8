"""Fused multiply-add for processors without such an instruction.

LLVM otherwise calls a function of the C library, or of its run-time library, for each lane. Where one rounding or two
are permitted, a product and a sum take its place. In f32 and f16 the product is exact in f64; the sum is rounded to odd
there, which makes the second rounding that of the exact result (Boldo and Melquiond). In f64 the function is called:
few kernels do. bf16 is computed in f32, as LLVM does where there are instructions for it.
"""

from __future__ import annotations

from collections.abc import Collection

from mirlo.dialects.bindings import ir
from mirlo.passes.lower.calls import find
from mirlo.passes.lower.values import Num, ValueBuilder


def expand_fma(root: ir.Module | ir.OpView, kinds: Collection[str]) -> None:
    """Replace every `math.fma` of these element types that code can compute without a function call."""
    if not kinds:
        return
    operations = find(root.operation, "math.fma")
    while operations:
        op = operations.pop()
        kind = op.results[0].type
        shape = tuple(kind.shape) if isinstance(kind, ir.VectorType) else None
        b = ValueBuilder(shape)
        with ir.InsertionPoint(op), op.location:
            x, y, z = (b.num(operand) for operand in op.operands)
            if x.kind not in kinds:
                continue
            loose = "contract" in str(op.attributes["fastmath"])
            if x.kind in ("f16", "bf16") and (loose or x.kind == "bf16"):
                wide = [b.emit("arith.extf", "f32", value) for value in (x, y, z)]
                total = b.multiply_add(*wide) if loose else b.fma(*wide)
                operations.append(total.value.owner.operation)
                result = b.emit("arith.truncf", x.kind, total)
            elif loose:
                result = x * y + z
            elif x.kind in ("f32", "f16"):
                result = _fused(b, x, y, z)
            else:
                continue
        op.results[0].replace_all_uses_with(result.value)
        op.erase()


def _fused(b: ValueBuilder, x: Num, y: Num, z: Num) -> Num:
    wide_x, wide_y, wide_z = (b.convert(value, "f64") for value in (x, y, z))
    product = wide_x * wide_y
    total = product + wide_z
    virtual = total - product
    lost = (product - (total - virtual)) + (wide_z - virtual)
    bits = b.bits(total)
    # Toward zero where the sum was rounded away from it, then odd: the last bit tells that something was lost.
    away = b.select((lost < 0.0) ^ (total < 0.0), b.constant("i64", 1), b.constant("i64", 0))
    odd = b.from_bits((bits - away) | 1, "f64")
    is_inexact = b.compare("ne", lost, 0.0) & (b.abs(total) < float("inf"))
    return b.convert(b.select(is_inexact, odd, total), x.kind)
