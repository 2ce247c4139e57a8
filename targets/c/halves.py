"""f16 and bf16 in C, which has no types for them: structures of their bits, computed in float or double."""

from __future__ import annotations

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.runtime.records import dataclass

HALVES = {"f16": "mirlo_f16", "bf16": "mirlo_bf16"}
"""The C types by element type."""
_MOVED = ("arith.select", "arith.bitcast")
"""Operations that do not look at the number."""

_TYPE = "typedef struct {{\n  uint16_t bits;\n}} {name};\n"
_ROUND = """static inline {name} {function}(double x) {{
  union {{ double number; uint64_t bits; }} u;
  {name} made;
  uint32_t sign;
  u.number = x;
  sign = (uint32_t)(u.bits >> 48) & 0x8000u;
  u.bits &= (uint64_t)INT64_MAX;
  if (u.number != u.number) {{
    made.bits = (uint16_t)(sign | {nan}u);
  }} else if (u.number >= {overflow}) {{
    made.bits = (uint16_t)(sign | {infinity}u);
  }} else if (u.number < {normal}) {{ /* subnormal: a multiple of the smallest number */
    made.bits = (uint16_t)(sign | (uint32_t)rint(u.number * {steps}));
  }} else {{
    const uint64_t kept = u.bits >> {shift}, rest = u.bits & ((UINT64_C(1) << {shift}) - 1), half = UINT64_C(1) << ({shift} - 1);
    const uint64_t rounded = kept + (rest > half || (rest == half && (kept & 1)));
    made.bits = (uint16_t)(sign | (uint32_t)(rounded - (UINT64_C({bias}) << (52 - {shift}))));
  }}
  return made;
}}
"""  # noqa: E501
_F16_VALUE = """static inline float f16_value(mirlo_f16 x) {
  const uint32_t exponent = x.bits >> 10 & 31u, fraction = x.bits & 1023u;
  union { uint32_t bits; float number; } u;
  u.bits = (exponent == 31 ? 255u : exponent + 112) << 23 | fraction << 13;
  if (exponent == 0) u.number = (float)fraction * 5.9604644775390625e-08f;
  return x.bits >> 15 ? -u.number : u.number;
}
"""
_BF16_VALUE = """static inline float bf16_value(mirlo_bf16 x) {
  union { uint32_t bits; float number; } u;
  u.bits = (uint32_t)x.bits << 16;
  return u.number;
}
"""
DEFINITIONS = {
    "int128_t": "typedef __int128 int128_t; /* GCC and Clang have it */\n",
    "uint128_t": "typedef unsigned __int128 uint128_t;\n",
    "mirlo_f16": _TYPE.format(name="mirlo_f16"),
    "mirlo_bf16": _TYPE.format(name="mirlo_bf16"),
    "f16_value": _F16_VALUE,
    "bf16_value": _BF16_VALUE,
    "f16_of": _ROUND.format(
        name="mirlo_f16", function="f16_of", nan=0x7E00, infinity=0x7C00, overflow="65520.0",
        normal="6.103515625e-05", steps="16777216.0", shift=42, bias=1008,
    ),
    "bf16_of": _ROUND.format(
        name="mirlo_bf16", function="bf16_of", nan=0x7FC0, infinity=0x7F80, overflow=repr(float.fromhex("0x1.FFp127")),
        normal=repr(2.0**-126), steps=repr(2.0**133), shift=45, bias=896,
    ),
}  # fmt: skip
"""The types, and the functions between them and float or double, by name."""


def is_half(kind: ir.Type) -> bool:
    """Return whether a type is f16 or bf16."""
    return str(kind) in HALVES


def half_bits(value: float, kind: ir.Type) -> int:
    """Return the bits of a number as f16 or bf16."""
    if str(kind) == "f16":
        return int(np.float16(value).view(np.uint16))
    import ml_dtypes

    return int(np.array(value).astype(ml_dtypes.bfloat16).view(np.uint16))


@dataclass(frozen=True)
class _TypedValue:
    type: ir.Type


class WidenedOperation:
    """An operation on f16 or bf16 as expressions read it: on a wider type."""

    def __init__(self, op: ir.Operation) -> None:
        # Of what is rounded once, as conversions are, double keeps all digits.
        is_conversion = op.name in ("arith.truncf", "arith.sitofp", "arith.uitofp")
        wide = ir.F64Type.get() if is_conversion else ir.F32Type.get()
        self.attributes = op.attributes
        self.operands = [_TypedValue(wide if is_half(v.type) else v.type) for v in op.operands]
        self.results = [_TypedValue(wide if is_half(v.type) else v.type) for v in op.results]


def computes_halves(op: ir.Operation) -> bool:
    """Return whether an operation computes with f16 or bf16."""
    return op.name not in _MOVED and any(is_half(value.type) for value in (*op.operands, *op.results))


def widened(text: str, kind: ir.Type) -> str:
    """Return an operand as float, if it is f16 or bf16."""
    return f"{kind}_value({text})" if is_half(kind) else text


def rounded(text: str, kind: ir.Type) -> str:
    """Return a result in its type."""
    return f"{kind}_of({text})" if is_half(kind) else text
