"""Functions of the bit patterns: abs, copysign, nextafter, ldexp, isnan, isinf, isfinite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.passes.lower.expansions.elementary import INFINITY, elementary
from mirlo.passes.lower.expansions.exponential import scale
from mirlo.passes.lower.expansions.logarithm import split_power
from mirlo.passes.lower.formats import FORMATS
from mirlo.passes.lower.values import Num, ValueBuilder
from mirlo.passes.rules import Decline, decline, intrinsic

if TYPE_CHECKING:
    from mirlo.passes.lower.intrinsics import IntrinsicCall


@elementary("abs", *FORMATS)
def absolute(b: ValueBuilder, x: Num) -> Num:
    return b.from_bits(b.bits(x) & (x.format.sign_bit - 1), x.kind)


@elementary("copysign", *FORMATS)
def copysign(b: ValueBuilder, x: Num, sign: Num) -> Num:
    mask = x.format.sign_bit
    return b.from_bits((b.bits(x) & (mask - 1)) | (b.bits(sign) & mask), x.kind)


@elementary("nextafter", *FORMATS)
def nextafter(b: ValueBuilder, x: Num, y: Num) -> Num:
    wide = x.kind if x.format.bits >= 32 else "f32"
    wide_x, wide_y = b.convert(x, wide), b.convert(y, wide)
    bits = b.bits(x)
    # Away from zero is one more, towards it one less, for either sign.
    outwards = b.compare("eq", wide_x < wide_y, wide_x > 0.0)
    moved = b.select(outwards, bits + 1, bits - 1)
    from_zero = (b.bits(y) & x.format.sign_bit) | 1
    moved = b.select(wide_x.equals(0.0), from_zero, moved)
    moved = b.select(wide_x.equals(wide_y), b.bits(y), moved)
    moved = b.select(wide_y.is_nan, b.bits(y), moved)
    return b.from_bits(b.select(wide_x.is_nan, bits, moved), x.kind)


@intrinsic("ldexp")
def ldexp(op: IntrinsicCall, b: ValueBuilder) -> Decline | Num:
    if op.dtype not in ("f32", "f64"):
        return decline("only for f32 and f64", dtype=op.dtype)
    x, n = op.nums
    size = b.abs(x)
    m, e = split_power(b, size)
    # Beyond this, every value overflows or underflows.
    limit = 2 * (x.format.bias + x.format.fraction)
    n = _resized(b, _clamped(b, n, limit), x.format.int_kind)
    total = _clamped(
        b,
        n + b.bits(e + x.format.rounding_constant) - b.bits(b.constant(x.kind, x.format.rounding_constant)),
        limit // 2 + 4,
    )
    result = b.copysign(scale(b, m, total), x)
    return b.select((size < INFINITY) & (size > 0.0), result, x)


def _clamped(b: ValueBuilder, n: Num, limit: int) -> Num:
    """Clamp n to -limit and limit."""
    if _width(n) <= 8:
        return n
    return b.select(n > limit, limit, b.select(n < -limit, -limit, n))


def _width(n: Num) -> int:
    return 64 if n.kind == "index" else int(n.kind[1:])


def _resized(b: ValueBuilder, n: Num, kind: str) -> Num:
    if n.kind == "index":
        return b.emit("arith.index_cast", kind, n)
    if n.kind == kind:
        return n
    return b.extend(n, kind) if _width(n) < int(kind[1:]) else b.truncate(n, kind)


@elementary("isnan")
def isnan(b: ValueBuilder, x: Num) -> Num:
    return x.is_nan


@elementary("isinf")
def isinf(b: ValueBuilder, x: Num) -> Num:
    return b.abs(x).equals(INFINITY)


@elementary("isfinite")
def isfinite(b: ValueBuilder, x: Num) -> Num:
    return b.abs(x) < INFINITY
