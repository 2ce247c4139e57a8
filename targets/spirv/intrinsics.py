"""Rules for integer intrinsics that Vulkan provides for 32 bits only."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.passes.lower.values import Num, ValueBuilder
from mirlo.passes.rules import Decline, decline, intrinsic

_LOW = (1 << 32) - 1


@intrinsic("popcount", target="spirv")
def popcount(op: ir.OpView, b: ValueBuilder) -> Num | Decline:
    """Add the bit counts of both 32-bit words."""
    if op.dtype in ("i32", "index"):
        return decline("one operation does it", dtype=op.dtype)
    x = op.nums[0]
    if x.kind == "i64":
        high, low = (b.call("popcount", part) for part in _words(b, x))
        return b.extend(high + low, "i64", signed=False)
    return b.truncate(b.call("popcount", b.extend(x, "i32", signed=False)), x.kind)


@intrinsic("ctz", target="spirv")
def ctz(op: ir.OpView, b: ValueBuilder) -> Num | Decline:
    """Count the bits below the lowest set one; all of them for zero."""
    if op.dtype == "index":
        return decline("has no form on index", dtype=op.dtype)
    x: Num = op.nums[0]
    result: Num = b.call("popcount", (x & (0 - x)) - 1)
    return result


@intrinsic("clz", target="spirv")
def clz(op: ir.OpView, b: ValueBuilder) -> Num | Decline:
    """Count leading zeros by 32-bit words."""
    if op.dtype in ("i32", "index"):
        return decline("one operation does it", dtype=op.dtype)
    x = op.nums[0]
    if x.kind == "i64":
        high, low = _words(b, x)
        count = b.select(high.equals(0), b.call("clz", low) + 32, b.call("clz", high))
        return b.extend(count, "i64", signed=False)
    return b.truncate(b.call("clz", b.extend(x, "i32", signed=False)) - (32 - int(x.kind[1:])), x.kind)


def _words(b: ValueBuilder, x: Num) -> tuple[Num, Num]:
    """Return the high and the low half of 64 bits."""
    return b.truncate(x >> 32, "i32"), b.truncate(x, "i32")


@intrinsic("fixed_mul", target="spirv")
def fixed_mul(op: ir.OpView, b: ValueBuilder) -> Num | Decline:
    """Compute the 128-bit product as two words."""
    if op.dtype != "i64":
        return decline("the product fits a wider integer", dtype=op.dtype)
    x, y, shift = op.nums
    count = b.select(b.compare("ult", shift, 126), shift, 126)
    low, high = x * y, _high_of_product(b, x, y)
    # Half a unit of the result; zero if nothing is shifted out.
    before = count - 1
    half_low = b.select((count > 0) & (before < 64), _bit(b, before), 0)
    half_high = b.select(before >= 64, _bit(b, before - 64), 0)
    total = low + half_low
    carry = b.extend(b.compare("ult", total, low), "i64", signed=False)
    high = high + half_high + carry
    near = (total >> (count & 63)) | (high << ((64 - count) & 63))
    far = b.shift_right_signed(high, (count - 64) & 63)
    return b.select(count.equals(0), total, b.select(count < 64, near, far))


def _bit(b: ValueBuilder, at: Num) -> Num:
    return b.constant("i64", 1) << (at & 63)


def _high_of_product(b: ValueBuilder, x: Num, y: Num) -> Num:
    """Return bits 64 to 127 of the signed product."""
    x_high, x_low, y_high, y_low = x >> 32, x & _LOW, y >> 32, y & _LOW
    middle = x_high * y_low + ((x_low * y_low) >> 32)
    other = x_low * y_high + (middle & _LOW)
    unsigned = x_high * y_high + (middle >> 32) + (other >> 32)
    return unsigned - b.select(x < 0, y, 0) - b.select(y < 0, x, 0)
