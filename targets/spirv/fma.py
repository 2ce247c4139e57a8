"""Fused multiply-add for devices that round twice, which SPIR-V permits and software devices do.

The product is computed as a sum of two numbers (Veltkamp, Dekker) and added to the third with error compensation.
"""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.passes.lower.calls import find
from mirlo.passes.lower.values import Num, ValueBuilder

_SPLITTER = {"f32": 4097.0, "f64": 134217729.0}
_LARGE = {"f32": 60, "f64": 480}
"""Exponents beyond which an operand is scaled down first, so that no part of the product is lost."""


def expand_fma(root: ir.Module | ir.OpView) -> None:
    """Replace every `math.fma` that must round once; those marked `contract` need not."""
    for op in find(root, "math.fma"):
        kind = str(op.results[0].type)
        if "contract" in str(op.attributes["fastmath"]) or kind not in (*_SPLITTER, "f16"):
            continue
        b = ValueBuilder(None)
        with ir.InsertionPoint(op), op.location:
            value = _fma(b, *(b.num(operand) for operand in op.operands)).value
        op.results[0].replace_all_uses_with(value)
        op.erase()


def _fma(b: ValueBuilder, x: Num, y: Num, z: Num) -> Num:
    if x.kind == "f16":
        # In f32 the product is exact and the sum is rounded twice, which matters for f16 only on ties of ties.
        wide = [b.convert(value, "f32") for value in (x, y, z)]
        return b.convert(_fma(b, *wide), "f16")
    plain = x * y + z
    x, x_back = _moderate(b, x)
    y, y_back = _moderate(b, y)
    z = z * (1.0 / x_back) * (1.0 / y_back)
    product = x * y
    error = _product_error(b, x, y, product)
    total = product + z
    virtual = total - product
    lost = (product - (total - virtual)) + (z - virtual)
    exact = (total + (lost + error)) * x_back * y_back
    finite = b.abs(exact) < float("inf")
    return b.select(finite, exact, plain)


def _moderate(b: ValueBuilder, x: Num) -> tuple[Num, Num]:
    """Return x with an exponent near zero, and the power of two that restores it."""
    limit = _LARGE[x.kind]
    size = b.abs(x)
    up = b.select(size > 2.0**limit, b.constant(x.kind, 2.0**limit), b.constant(x.kind, 1.0))
    back = b.select(size < 2.0**-limit, b.constant(x.kind, 2.0**-limit), up)
    return x * (1.0 / back), back


def _product_error(b: ValueBuilder, x: Num, y: Num, product: Num) -> Num:
    (x_high, x_low), (y_high, y_low) = _halves(x), _halves(y)
    return ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low


def _halves(x: Num) -> tuple[Num, Num]:
    """Split x into a sum of two numbers with half of the digits."""
    scaled = x * _SPLITTER[x.kind]
    high = scaled - (scaled - x)
    return high, x - high
