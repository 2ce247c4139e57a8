"""Operations of the SPIR-V dialect as expressions of WGSL."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mirlo.extend.ops import ir
from mirlo.extend.target import PassError

_VECTOR = re.compile(r"vector<(\d)x(\w+)>")
_SCALARS = {"i32": "u32", "f32": "f32", "i1": "bool"}


@dataclass(frozen=True)
class Operand:
    """A value in WGSL: its name or literal, and its type in MLIR."""

    text: str
    kind: str
    integer: int | None = None
    """The number of a constant."""

    @property
    def signed(self) -> str:
        """Return an integer as `i32`."""
        if self.integer is not None:
            value = self.integer - (1 << 32) if self.integer >> 31 else self.integer
            return f"{value}i" if value > -(1 << 31) else "i32(-2147483648)"
        return f"{_with_scalar(self.kind, 'i32')}({self.text})"

    @property
    def bits(self) -> str:
        """Return a float as integers."""
        return f"bitcast<{_with_scalar(self.kind, 'u32')}>({self.text})"


def type_name(kind: str) -> str:
    """Return the name of a type of values."""
    if kind == "!spirv.struct<(i32, i32)>":
        return "vec2<u32>"
    match = _VECTOR.fullmatch(kind)
    scalar = match[2] if match else kind
    if scalar not in _SCALARS:
        raise PassError(f"values of type '{kind}' have no counterpart in WGSL")
    return _with_scalar(kind, _SCALARS[scalar])


def _with_scalar(kind: str, scalar: str) -> str:
    match = _VECTOR.fullmatch(kind)
    return f"vec{match[1]}<{scalar}>" if match else scalar


def _splat(kind: str, value: str) -> str:
    return f"{_with_scalar(kind, 'u32')}({value})" if _VECTOR.fullmatch(kind) else value


def shielded(expression: str, kind: str, zero: str) -> str:
    """Return a float passed through integer operations, so that drivers cannot simplify it."""
    bits = f"bitcast<{_with_scalar(kind, 'u32')}>({expression})"
    return f"bitcast<{type_name(kind)}>({bits} ^ {_splat(kind, zero)})"


def literal(attribute: ir.Attribute, kind: str, variable: Callable[[int], str]) -> Operand:
    """Return a constant; `variable` returns the name of a variable for bits without a literal."""
    if kind == "i1":
        return Operand("true" if ir.BoolAttr(attribute).value else "false", kind)
    if kind == "i32":
        number = int(ir.IntegerAttr(attribute).value) & 0xFFFFFFFF
        return Operand(f"{number}u", kind, number)
    if kind == "f32":
        return Operand(_float(float(ir.FloatAttr(attribute).value), variable), kind)
    match = _VECTOR.fullmatch(kind)
    if match is None:
        raise PassError(f"constants of type '{kind}' have no counterpart in WGSL")
    dense = ir.DenseFPElementsAttr(attribute) if match[2] == "f32" else ir.DenseIntElementsAttr(attribute)
    parts = [_part(dense[i], match[2], variable) for i in range(int(match[1]))]
    return Operand(f"{type_name(kind)}({', '.join(parts)})", kind)


def _part(value: float, scalar: str, variable: Callable[[int], str]) -> str:
    if scalar == "f32":
        return _float(float(value), variable)
    return ("true" if value else "false") if scalar == "i1" else f"{int(value) & 0xFFFFFFFF}u"


def _float(value: float, variable: Callable[[int], str]) -> str:
    if not math.isfinite(value):
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
        return f"bitcast<f32>({variable(bits)})"
    text = next(t for digits in range(1, 10) if _as_f32(float(t := f"{value:.{digits}g}")) == value)
    return f"{text}f" if value >= 0 and not text.startswith("-") else f"({text}f)"


def _as_f32(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:  # the shortest text of the largest number is beyond it
        return math.inf


Expression = Callable[[ir.Operation, Sequence[Operand]], str]


def _infix(symbol: str) -> Expression:
    return lambda op, x: f"({x[0].text} {symbol} {x[1].text})"


def _signed_infix(symbol: str) -> Expression:
    return lambda op, x: f"{type_name(x[0].kind)}({x[0].signed} {symbol} {x[1].signed})"


def _signed_comparison(symbol: str) -> Expression:
    return lambda op, x: f"({x[0].signed} {symbol} {x[1].signed})"


def _or_nan(symbol: str) -> Expression:
    """Return a comparison that is true for NaN, by bits: drivers may replace a negation by the opposite comparison."""
    return lambda op, x: f"(({x[0].text} {symbol} {x[1].text}) | {_has_nan(op, x)})"


def _has_nan(op: ir.Operation, x: Sequence[Operand]) -> str:
    return " | ".join(dict.fromkeys(_is_nan(op, [each]) for each in x))


def _call(name: str) -> Expression:
    return lambda op, x: f"{name}({', '.join(each.text for each in x)})"


def _signed_call(name: str) -> Expression:
    return lambda op, x: f"{type_name(x[0].kind)}({name}({', '.join(each.signed for each in x)}))"


def _convert(op: ir.Operation, x: Sequence[Operand]) -> str:
    return f"{type_name(str(op.results[0].type))}({x[0].text})"


def _to_signed(op: ir.Operation, x: Sequence[Operand]) -> str:
    kind = str(op.results[0].type)
    return f"{type_name(kind)}({_with_scalar(kind, 'i32')}({x[0].text}))"


def _from_signed(op: ir.Operation, x: Sequence[Operand]) -> str:
    return f"{type_name(str(op.results[0].type))}({x[0].signed})"


def _bitcast(op: ir.Operation, x: Sequence[Operand]) -> str:
    return f"bitcast<{type_name(str(op.results[0].type))}>({x[0].text})"


def _is_nan(op: ir.Operation, x: Sequence[Operand]) -> str:
    return f"(({x[0].bits} & {_splat(x[0].kind, '0x7fffffffu')}) > {_splat(x[0].kind, '0x7f800000u')})"


def _is_inf(op: ir.Operation, x: Sequence[Operand]) -> str:
    return f"(({x[0].bits} & {_splat(x[0].kind, '0x7fffffffu')}) == {_splat(x[0].kind, '0x7f800000u')})"


def _shift(symbol: str) -> Expression:
    def expression(op: ir.Operation, x: Sequence[Operand]) -> str:
        # A constant shift must be less than the width; larger ones are of values that are not used.
        amount = x[1].text if x[1].integer is None else f"{x[1].integer & 31}u"
        return f"({x[0].text} {symbol} {amount})"

    return expression


def _arithmetic_shift(op: ir.Operation, x: Sequence[Operand]) -> str:
    amount = x[1].text if x[1].integer is None else f"{x[1].integer & 31}u"
    return f"{type_name(x[0].kind)}({x[0].signed} >> {amount})"


def _part_of(op: ir.Operation, x: Sequence[Operand]) -> str:
    return f"{x[0].text}.{_member(op)}"


def _member(op: ir.Operation) -> str:
    (position,) = (ir.IntegerAttr(each).value for each in ir.ArrayAttr(op.attributes["indices"]))
    return "xyzw"[position]


def _replace_part(op: ir.Operation, x: Sequence[Operand]) -> str:
    part, whole = x
    kind = str(op.results[0].type)
    match = _VECTOR.fullmatch(kind)
    assert match is not None
    at = _member(op)
    parts = [part.text if member == at else f"{whole.text}.{member}" for member in "xyzw"[: int(match[1])]]
    return f"{type_name(kind)}({', '.join(parts)})"


def _construct(op: ir.Operation, x: Sequence[Operand]) -> str:
    return f"{type_name(str(op.results[0].type))}({', '.join(each.text for each in x)})"


def _add_with_carry(op: ir.Operation, x: Sequence[Operand]) -> str:
    a, b = x[0].text, x[1].text
    return f"vec2<u32>({a} + {b}, select(0u, 1u, ({a} + {b}) < {a}))"


def _subtract_with_borrow(op: ir.Operation, x: Sequence[Operand]) -> str:
    a, b = x[0].text, x[1].text
    return f"vec2<u32>({a} - {b}, select(0u, 1u, {a} < {b}))"


def _select(op: ir.Operation, x: Sequence[Operand]) -> str:
    return f"select({x[2].text}, {x[1].text}, {x[0].text})"


EXPRESSIONS: dict[str, Expression] = {
    **{f"spirv.{name}": _infix(symbol) for name, symbol in {
        "IAdd": "+", "ISub": "-", "IMul": "*", "UDiv": "/", "UMod": "%",
        "FAdd": "+", "FSub": "-", "FMul": "*", "FDiv": "/", "FRem": "%",
        "BitwiseAnd": "&", "BitwiseOr": "|", "BitwiseXor": "^", "LogicalAnd": "&", "LogicalOr": "|",
        "IEqual": "==", "INotEqual": "!=", "LogicalEqual": "==", "LogicalNotEqual": "!=",
        "ULessThan": "<", "ULessThanEqual": "<=", "UGreaterThan": ">", "UGreaterThanEqual": ">=",
        "FOrdEqual": "==", "FOrdLessThan": "<", "FOrdLessThanEqual": "<=", "FOrdGreaterThan": ">",
        "FOrdGreaterThanEqual": ">=",
    }.items()},
    **{f"spirv.{name}": _signed_infix(symbol) for name, symbol in {"SDiv": "/", "SRem": "%"}.items()},
    **{f"spirv.{name}": _signed_comparison(symbol) for name, symbol in {
        "SLessThan": "<", "SLessThanEqual": "<=", "SGreaterThan": ">", "SGreaterThanEqual": ">=",
    }.items()},
    **{f"spirv.{name}": _or_nan(symbol) for name, symbol in {
        "FUnordEqual": "==", "FUnordNotEqual": "!=", "FUnordLessThan": "<", "FUnordLessThanEqual": "<=",
        "FUnordGreaterThan": ">", "FUnordGreaterThanEqual": ">=",
    }.items()},
    **{f"spirv.{name}": _call(function) for name, function in {
        "GL.FAbs": "abs", "GL.FMax": "max", "GL.FMin": "min", "GL.UMax": "max", "GL.UMin": "min", "GL.Fma": "fma",
        "GL.Floor": "floor", "GL.Ceil": "ceil", "GL.Trunc": "trunc", "GL.RoundEven": "round", "GL.Sqrt": "sqrt",
        "GL.InverseSqrt": "inverseSqrt", "GL.Exp": "exp", "GL.Exp2": "exp2", "GL.Log": "log", "GL.Log2": "log2",
        "GL.Sin": "sin", "GL.Cos": "cos", "GL.Tan": "tan", "GL.Asin": "asin", "GL.Acos": "acos", "GL.Atan": "atan",
        "GL.Sinh": "sinh", "GL.Cosh": "cosh", "GL.Tanh": "tanh", "GL.Pow": "pow", "GL.FSign": "sign",
        "GL.FMix": "mix", "GL.FClamp": "clamp", "GL.UClamp": "clamp", "GL.FindUMsb": "firstLeadingBit",
        "GL.FindILsb": "firstTrailingBit", "BitCount": "countOneBits", "BitReverse": "reverseBits", "Not": "~",
        "LogicalNot": "!", "FNegate": "-", "SNegate": "0u - ",
    }.items()},
    **{f"spirv.{name}": _signed_call(function) for name, function in {
        "GL.SAbs": "abs", "GL.SMax": "max", "GL.SMin": "min", "GL.SClamp": "clamp", "GL.SSign": "sign",
        "GL.FindSMsb": "firstLeadingBit",
    }.items()},
    "spirv.FOrdNotEqual": lambda op, x: f"(({x[0].text} != {x[1].text}) & !({_has_nan(op, x)}))",
    "spirv.Ordered": lambda op, x: f"!({_has_nan(op, x)})",
    "spirv.Unordered": lambda op, x: f"({_has_nan(op, x)})",
    "spirv.IsNan": _is_nan, "spirv.IsInf": _is_inf, "spirv.Select": _select, "spirv.Bitcast": _bitcast,
    "spirv.ConvertFToS": _to_signed, "spirv.ConvertFToU": _convert, "spirv.ConvertSToF": _from_signed,
    "spirv.ConvertUToF": _convert, "spirv.ShiftLeftLogical": _shift("<<"), "spirv.ShiftRightLogical": _shift(">>"),
    "spirv.ShiftRightArithmetic": _arithmetic_shift, "spirv.CompositeExtract": _part_of,
    "spirv.CompositeInsert": _replace_part, "spirv.CompositeConstruct": _construct,
    "spirv.VectorExtractDynamic": lambda op, x: f"{x[0].text}[{x[1].text}]",
    "spirv.IAddCarry": _add_with_carry, "spirv.ISubBorrow": _subtract_with_borrow,
    "spirv.UMulExtended": lambda op, x: f"multiply_extended({x[0].text}, {x[1].text})",
    "spirv.Undef": lambda op, x: f"{type_name(str(op.results[0].type))}()",
}  # fmt: skip
"""Printers of expressions by operation name."""

MULTIPLY_EXTENDED = """fn multiply_extended(a: u32, b: u32) -> vec2<u32> {
  let low = (a & 0xffffu) * (b & 0xffffu);
  let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
  let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
  return vec2<u32>(a * b, (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u));
}"""
"""The 64 bits of a product."""
