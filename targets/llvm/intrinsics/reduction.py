"""Arguments of trigonometric functions, reduced by a multiple of π/2 without loss."""

from __future__ import annotations

from mirlo.passes.lower.values import Num, ValueBuilder
from mirlo.targets.llvm.intrinsics.elementary import INFINITY, NAN, sign_bit

TWO_OVER_PI = 0.6366197723675814

HALF_PI_PARTS = {
    "f32": (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    "f64": (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
}
"""π/2 as a sum of numbers of the format. A fused n · part - x is exact for the first, so three are enough."""

LARGE_F32 = 2.0**17
"""From here on f32 arguments are reduced by integer arithmetic."""

# The first bits of 1/(2π) after the point, 32 in each word, after six zero bits: bit k of the text weighs 2^(6 - k).
_WORDS_BEFORE = 6
_INVERSE_TWO_PI = 0x28BE60DB9391054A7F09D5F47D4D377036D8A5664F10E4107F9458EAF7AEF158


def reduce_by_half_pi(b: ValueBuilder, x: Num) -> tuple[Num, Num]:
    """r and q with x = r + q · π/2 and |r| ≤ π/4; of the integer q only the lowest two bits are right.

    NaN for infinite x. In f64 the error of r grows with |x| from 2^48 on.
    """
    r, quadrant = _by_parts(b, x)
    if x.kind == "f64":
        return b.select(b.abs(x) < INFINITY, r, NAN), quadrant
    large_r, large_quadrant = _by_bits(b, x)
    large = b.abs(x) >= LARGE_F32
    r = b.select(large, large_r, r)
    return b.select(b.abs(x) < INFINITY, r, NAN), b.select(large, large_quadrant, quadrant)


def _by_parts(b: ValueBuilder, x: Num) -> tuple[Num, Num]:
    shifted = b.fma(x, TWO_OVER_PI, x.format.magic)
    n = shifted - x.format.magic
    r = x
    for part in HALF_PI_PARTS[x.kind]:
        r = b.fma(n, -part, r)
    return r, b.bits(shifted)


def _by_bits(b: ValueBuilder, x: Num) -> tuple[Num, Num]:
    """For |x| ≥ 2^17 in f32: the significand times those bits of 1/(2π) that weigh less than a turn, 64 of them."""
    bits = b.bits(x)
    significand = b.extend((bits & 0x7FFFFF) | 0x800000, "i64", signed=False)
    exponent = (bits >> 23) & 0xFF
    # |x| = significand · 2^(exponent - 150), and 2^17 has the exponent 144.
    position = exponent - 144
    word = position >> 5
    shift = b.extend(position & 31, "i64", signed=False)
    windows = [_window(b, word, shift, i) for i in range(3)]
    turns = (significand * windows[0] << 32) + significand * windows[1] + (significand * windows[2] >> 32)
    quadrant = (turns + (1 << 61)) >> 62
    rest = turns - (quadrant << 62)
    r = b.convert(b.to_float(rest, "f64") * 3.4061215800865545e-19, "f32")  # 2π / 2^64
    sign = sign_bit(b, x)
    r = b.from_bits(b.bits(r) ^ sign, "f32")
    quadrant = b.truncate(quadrant, "i32")
    return r, b.select(sign.differs(0), -quadrant, quadrant)


def _window(b: ValueBuilder, word: Num, shift: Num, index: int) -> Num:
    """32 bits of 1/(2π) from bit 32 · (word + index) + shift on, for words 0 to 3."""
    text = _INVERSE_TWO_PI << 64 >> _WORDS_BEFORE  # 320 bits
    pairs = [(text >> (320 - 64 - 32 * (k + index))) & ((1 << 64) - 1) for k in range(4)]
    chosen = b.constant("i64", pairs[0])
    for k in range(1, 4):
        chosen = b.select(word.equals(k), pairs[k], chosen)
    return (chosen << shift) >> 32
