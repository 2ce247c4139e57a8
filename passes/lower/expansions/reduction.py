"""Exact reduction of trigonometric arguments of any magnitude by a multiple of π/2.

Small arguments subtract the multiple of π/2 in three parts, with fused products. Large ones use the method of Payne
and Hanek: with x = M · 2^k, the bits of 2^k / 2π before the binary point are whole turns and do not matter, so that
M times the bits after it is the fraction of a turn.
"""

from __future__ import annotations

from mirlo.passes.lower.expansions.elementary import INFINITY, NAN, sign_bit
from mirlo.passes.lower.values import Num, ValueBuilder

TWO_OVER_PI = 0.6366197723675814

HALF_PI_TERMS = {
    "f32": (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    "f64": (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
}
"""π/2 as a sum of values of the format. A fused n · part - x is exact for the first, so three suffice."""

LARGE_EXPONENT = {"f32": 17, "f64": 45}
"""The binary exponent from which on arguments are large."""

_TWO_PI, _TWO_PI_LOW = 6.283185307179586, 2.4492935982947064e-16

# The bits of 1/2π after the binary point.
_INVERSE_TWO_PI = (
    "28be60db9391054a7f09d5f47d4d377036d8a5664f10e4107f9458eaf7aef158"
    "6dc91b8e909374b801924bba827464873f877ac72c4a69cfba208d7d4baed121"
    "3a671c09ad17df904e64758e60d4ce7d272117e2ef7e4a0ec7fe25fff7816603"
    "fbcbc462d6829b47db4d9fb3c9f2c26dd3d18fd9a797fa8b5d49eeb1faf97c5e"
    "cf41ce7de294a4ba9afed7ec47e357421580cc11bf1edaeafc33ef0826bd0d87"
)


def reduce_by_half_pi(b: ValueBuilder, x: Num) -> tuple[Num, Num]:
    """Return r and q with x = r + q · π/2 and |r| ≤ π/4; only the lowest two bits of q are valid.

    r is NaN for infinite x.
    """
    r, quadrant = _reduce_by_terms(b, x)
    large = b.abs(x) >= 2.0 ** LARGE_EXPONENT[x.kind]

    def exact() -> list[Num]:
        large_r, large_quadrant = _by_bits(b, x)
        return [b.select(large, large_r, r), b.select(large, large_quadrant, quadrant)]

    # The exact method is long and rarely needed: it is skipped if no lane needs it. A scalar f32 stays branch-free,
    # so that a loop over it vectorizes.
    without_branch = b.shape is None and x.kind == "f32"
    r, quadrant = exact() if without_branch else b.if_any(large, exact, r, quadrant)
    return b.select(b.abs(x) < INFINITY, r, NAN), quadrant


def _reduce_by_terms(b: ValueBuilder, x: Num) -> tuple[Num, Num]:
    shifted = b.multiply_add(x, TWO_OVER_PI, x.format.rounding_constant)
    n = shifted - x.format.rounding_constant
    r = x
    for part in HALF_PI_TERMS[x.kind]:
        r = b.fma(n, -part, r)
    return r, b.bits(shifted)


def _by_bits(b: ValueBuilder, x: Num) -> tuple[Num, Num]:
    form, first = x.format, LARGE_EXPONENT[x.kind]
    bits = b.bits(x)
    significand = (bits & ((1 << form.fraction) - 1)) | (1 << form.fraction)
    position = ((bits & (form.sign_bit - 1)) >> form.fraction) - (form.bias + first)
    if x.kind == "f32":
        significand, position = (b.extend(n, "i64", signed=False) for n in (significand, position))
    # |x| = significand · 2^(position + first - fraction)
    before = form.fraction - first
    r, quadrant = (_fraction_f32 if x.kind == "f32" else _fraction_f64)(b, significand, position, before)
    sign = sign_bit(b, x)
    return b.from_bits(b.bits(r) ^ sign, x.kind), b.select(sign.differs(0), -quadrant, quadrant)


def _fraction_f32(b: ValueBuilder, significand: Num, position: Num, before: int) -> tuple[Num, Num]:
    words = _words(b, position, before, index_bits=2, count=3)
    turns = (significand * words[0] << 32) + significand * words[1] + (significand * words[2] >> 32)
    quadrant, rest = _nearest_quarter(turns)
    r = b.convert(b.to_float(rest, "f64") * (_TWO_PI * 2.0**-64), "f32")
    return r, b.truncate(quadrant, "i32")


def _fraction_f64(b: ValueBuilder, significand: Num, position: Num, before: int) -> tuple[Num, Num]:
    words = _words(b, position, before, index_bits=5, count=6)
    mask = (1 << 32) - 1
    upper, lower = significand >> 32, significand & mask
    by_lower = [lower * word for word in words]
    by_upper = [upper * word for word in words]
    # Column k has weight 2^(-32 k); the fifth only provides its carry.
    carry = b.constant("i64", 0)
    columns = []
    for k in (5, 4, 3, 2, 1):
        column = carry + (by_lower[k - 1] & mask) + (by_lower[k] >> 32) + (by_upper[k] & mask)
        if k < 5:
            column = column + (by_upper[k + 1] >> 32)
        columns.append(column & mask)
        carry = column >> 32
    _, fourth, third, second, first = columns
    quadrant, rest = _nearest_quarter((first << 32) | second)
    low = (third << 32) | fourth
    # rest · 2^64 + low in two floats, times 2π.
    top = b.to_float(rest, "f64")
    left = b.to_float(rest - b.to_int(top, "i64"), "f64")
    tail = left * 2.0**-64 + b.to_float(low >> 1, "f64") * 2.0**-127
    top = top * 2.0**-64
    r = top * _TWO_PI
    lost = b.fma(top, _TWO_PI, -r)
    return r + b.fma(tail, _TWO_PI, b.fma(top, _TWO_PI_LOW, lost)), quadrant


def _nearest_quarter(turns: Num) -> tuple[Num, Num]:
    """Return the nearest quarter turn and the signed remainder, in units of 2^-64 turns."""
    quadrant = (turns + (1 << 61)) >> 62
    return quadrant, turns - (quadrant << 62)


def _words(b: ValueBuilder, position: Num, before: int, index_bits: int, count: int) -> list[Num]:
    """Return `count` words of 32 bits, from bit `position` on, of 1/2π after `before` zero bits; as i64."""
    text = f"{int(_INVERSE_TWO_PI, 16):0{4 * len(_INVERSE_TWO_PI)}b}"
    text = "0" * before + text
    last = (1 << index_bits) + count
    words = [b.constant("i64", int(text[32 * k : 32 * k + 32], 2)) for k in range(last)]
    index = position >> 5
    for bit in reversed(range(index_bits)):
        step = 1 << bit
        taken = (index & step).differs(0)
        words = [b.select(taken, words[k + step], words[k]) for k in range(step + count)]
    shift = position & 31
    return [((high << 32 | low) << shift) >> 32 for high, low in zip(words, words[1:], strict=False)]
