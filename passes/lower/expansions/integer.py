"""Intrinsics on integers: bit counts, saturating arithmetic, fixed-point products, shifts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.passes.lower.values import Num, ValueBuilder
from mirlo.passes.rules import Decline, decline, intrinsic

if TYPE_CHECKING:
    from mirlo.passes.lower.intrinsics import IntrinsicCall

COUNTS = {"popcount": "math.ctpop", "clz": "math.ctlz", "ctz": "math.cttz"}
"""Intrinsics that are one upstream operation, which every LLVM back end supports without a call."""
SATURATING = ("sat_adds", "sat_addu", "sat_subs", "sat_subu")

WORD = "i64"
"""The type in which `index` is computed."""


@intrinsic(*COUNTS)
def count_bits(op: IntrinsicCall, b: ValueBuilder) -> Decline | Num:
    if op.dtype == "index":
        return decline("has no form on index", dtype=op.dtype)
    return b.emit(COUNTS[op.name], op.dtype, *op.nums)


@intrinsic("sat_addu", "sat_subu")
def saturate_unsigned(op: IntrinsicCall, b: ValueBuilder) -> Decline | Num:
    if op.dtype == "index":
        return decline("has no form on index", dtype=op.dtype)
    x, y = op.nums
    if op.name == "sat_addu":
        total = x + y
        return b.select(b.compare("ult", total, x), -1, total)
    return b.select(b.compare("ult", x, y), 0, x - y)


@intrinsic("sat_adds", "sat_subs")
def saturate_signed(op: IntrinsicCall, b: ValueBuilder) -> Decline | Num:
    if op.dtype == "index":
        return decline("has no form on index", dtype=op.dtype)
    x, y = op.nums
    result = x + y if op.name == "sat_adds" else x - y
    # It overflows if the result has another sign than x and y does not account for it.
    wrapped = (x ^ result) & ((y ^ result) if op.name == "sat_adds" else (x ^ y))
    limit = b.shift_right_signed(x, _bits(x) - 1) ^ ((1 << (_bits(x) - 1)) - 1)
    return b.select(wrapped < 0, limit, result)


@intrinsic(*COUNTS, *SATURATING, "fixed_mul", "shl", "shrs", "shru", priority=-1)
def index_as_word(op: IntrinsicCall, b: ValueBuilder) -> Decline | Num:
    if op.dtype != "index":
        return decline("only for index", dtype=op.dtype)
    words = [b.emit("arith.index_cast", WORD, x) for x in op.nums]
    return b.emit("arith.index_cast", "index", b.call(op.name, *words))


def _bits(x: Num) -> int:
    return int(x.kind[1:])


@intrinsic("shl", "shru")
def shift_in_zeros(op: IntrinsicCall, b: ValueBuilder) -> Decline | Num:
    if op.dtype == "index":
        return decline("has no form on index", dtype=op.dtype)
    x, count = op.nums
    shifted = x << count if op.name == "shl" else x >> count
    # A shift by the width or more is undefined, and not selected.
    return b.select(b.compare("ult", count, _bits(x)), shifted, 0)


@intrinsic("shrs")
def shift_in_signs(op: IntrinsicCall, b: ValueBuilder) -> Decline | Num:
    if op.dtype == "index":
        return decline("has no form on index", dtype=op.dtype)
    x, count = op.nums
    most = _bits(x) - 1
    return b.shift_right_signed(x, b.select(b.compare("ult", count, most), count, most))


@intrinsic("fixed_mul")
def fixed_mul(op: IntrinsicCall, b: ValueBuilder) -> Decline | Num:
    if op.dtype == "index":
        return decline("has no form on index", dtype=op.dtype)
    x, y, shift = op.nums
    bits = _bits(x)
    wide = f"i{2 * bits}"
    product = b.extend(x, wide) * b.extend(y, wide)
    # No sum overflows: the magnitude of the product is at most 2^(2 · bits - 2).
    most = 2 * bits - 2
    count = b.extend(b.select(b.compare("ult", shift, most), shift, most), wide, signed=False)
    # Half a unit of the result, zero if nothing is shifted out.
    half = (b.constant(wide, 1) << count) >> 1
    return b.truncate(b.shift_right_signed(product + half, count), x.kind)
