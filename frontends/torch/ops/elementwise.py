"""Elementwise arithmetic, comparison, logic and choice."""

from __future__ import annotations

import math
from collections.abc import Callable

from mirlo.dialects.core.types import TensorType
from mirlo.frontends.builder import UnsupportedOperation
from mirlo.frontends.tensor import Tensor
from mirlo.frontends.torch.bounds import require_divisors
from mirlo.frontends.torch.operation import AtenOperation, Operand
from mirlo.frontends.torch.registry import CONVERTERS, converter

FLOATS = {
    "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh", "atan": "atan", "atanh": "atanh", "cos": "cos",
    "cosh": "cosh", "digamma": "digamma", "erf": "erf", "erfc": "erfc", "erfinv": "erfinv", "exp": "exp",
    "exp2": "exp2", "expm1": "expm1", "lgamma": "lgamma", "log": "log", "log10": "log10", "log1p": "log1p",
    "log2": "log2", "reciprocal": "reciprocal", "rsqrt": "rsqrt", "sigmoid": "sigmoid", "sin": "sin", "sinh": "sinh",
    "sqrt": "sqrt", "tan": "tan", "tanh": "tanh",
    "special_erf": "erf", "special_erfc": "erfc", "special_exp2": "exp2", "special_expm1": "expm1",
    "special_expit": "sigmoid", "special_log1p": "log1p", "special_digamma": "digamma", "special_psi": "digamma",
    "special_erfinv": "erfinv", "special_gammaln": "lgamma",
}  # fmt: skip
"""Operators of one operand that compute with floats."""
ROUNDING = {"ceil": "ceil", "floor": "floor", "trunc": "trunc", "round": "round", "fix": "trunc",
            "special_round": "round"}  # fmt: skip
"""Operators that change floats only."""
COMPARISONS = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
    "equal": "equal", "not_equal": "not_equal", "less": "less", "less_equal": "less_equal", "greater": "greater",
    "greater_equal": "greater_equal",
}  # fmt: skip
EXTREMES = {
    "maximum.default": "maximum", "minimum.default": "minimum", "max.other": "maximum", "min.other": "minimum",
    "atan2.default": "atan2", "arctan2.default": "atan2",
}  # fmt: skip
LOGIC = {"logical_and": "logical_and", "logical_or": "logical_or", "logical_xor": "logical_xor"}
BITS = {"bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor"}


def _float(name: str) -> Callable[..., Tensor]:
    def convert(op: AtenOperation, x: Tensor) -> Tensor:
        return op.apply(name, op.cast(x, op.dtype))

    return convert


def _rounded(name: str) -> Callable[..., Tensor]:
    def convert(op: AtenOperation, x: Tensor) -> Tensor:
        return op.apply(name, x) if x.dtype.is_float else x

    return convert


def _compared(name: str) -> Callable[..., Tensor]:
    def convert(op: AtenOperation, x: Operand, y: Operand) -> Tensor:
        return op.apply(name, *op.promoted(x, y))

    return convert


def _of_bools(name: str) -> Callable[..., Tensor]:
    def convert(op: AtenOperation, x: Tensor, y: Tensor) -> Tensor:
        return op.apply(name, op.cast(x, "bool"), op.cast(y, "bool"))

    return convert


def _of_result(name: str) -> Callable[..., Tensor]:
    """Return a converter of an operator that computes in the type of its result."""

    def convert(op: AtenOperation, x: Operand, y: Operand) -> Tensor:
        return op.apply(name, op.operand(x, op.dtype), op.operand(y, op.dtype))

    return convert


def _remainder(name: str) -> Callable[..., Tensor]:
    """Return a converter of a remainder, of 16-bit floats in f32."""

    def convert(op: AtenOperation, x: Operand, y: Operand) -> Tensor:
        given = [op.wide(op.operand(each, op.dtype)) for each in (x, y)]
        require_divisors(op, given[1])
        return op.cast(op.apply(name, *given), op.dtype)

    return convert


for _name, _operator in FLOATS.items():
    CONVERTERS[f"aten.{_name}.default"] = _float(_operator)
for _name, _operator in ROUNDING.items():
    CONVERTERS[f"aten.{_name}.default"] = _rounded(_operator)
for _name, _operator in COMPARISONS.items():
    CONVERTERS[f"aten.{_name}.Tensor"] = CONVERTERS[f"aten.{_name}.Scalar"] = _compared(_operator)
del CONVERTERS["aten.equal.Tensor"], CONVERTERS["aten.equal.Scalar"]
for _name, _operator in LOGIC.items():
    CONVERTERS[f"aten.{_name}.default"] = _of_bools(_operator)
for _name, _operator in BITS.items():
    for _overload in ("Tensor", "Scalar", "Scalar_Tensor"):
        CONVERTERS[f"aten.{_name}.{_overload}"] = _of_result(_operator)
    CONVERTERS[f"aten.__{_name.removeprefix('bitwise_')}__.Tensor"] = _of_result(_operator)
    CONVERTERS[f"aten.__{_name.removeprefix('bitwise_')}__.Scalar"] = _of_result(_operator)
for _name, _operator in EXTREMES.items():
    CONVERTERS[f"aten.{_name}"] = _of_result(_operator)
for _name in ("fmod.Tensor", "fmod.Scalar"):
    CONVERTERS[f"aten.{_name}"] = _remainder("fmod")
for _name in ("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor"):
    CONVERTERS[f"aten.{_name}"] = _remainder("mod")
for _name in ("mul.Tensor", "mul.Scalar", "multiply.Tensor", "multiply.Scalar"):
    CONVERTERS[f"aten.{_name}"] = _of_result("multiply")


@converter("aten.abs.default", "aten.absolute.default")
def abs_(op: AtenOperation, x: Tensor) -> Tensor:
    return x if x.dtype.is_bool or x.dtype.is_unsigned else op.apply("abs", x)


@converter("aten.neg.default", "aten.negative.default")
def neg(op: AtenOperation, x: Tensor) -> Tensor:
    if x.dtype.is_unsigned:
        return op.apply("subtract", op.constant(0, x.dtype), x)
    return op.apply("negative", x)


@converter("aten.positive.default")
def positive(op: AtenOperation, x: Tensor) -> Tensor:
    return x


@converter("aten.sign.default", "aten.sgn.default")
def sign(op: AtenOperation, x: Tensor) -> Tensor:
    """Convert `sign`, which is 0 for NaN."""
    if x.dtype.is_bool:
        return x
    if x.dtype.is_unsigned:
        return op.apply("minimum", x, 1)
    above, below = op.apply("greater", x, 0), op.apply("less", x, 0)
    return op.choose(above, 1, op.choose(below, -1, 0, x.dtype), x.dtype)


@converter("aten.square.default")
def square(op: AtenOperation, x: Tensor) -> Tensor:
    y = op.cast(x, op.dtype)
    return op.apply("multiply", y, y)


@converter("aten.logical_not.default")
def logical_not(op: AtenOperation, x: Tensor) -> Tensor:
    return op.apply("logical_not", op.cast(x, "bool"))


@converter("aten.isnan.default", "aten.isinf.default", "aten.isfinite.default")
def test_of_floats(op: AtenOperation, x: Tensor) -> Tensor:
    name = op.name.split(".")[1]
    if not x.dtype.is_float:
        return op.constant(name == "isfinite", op.dtype, x.shape)
    return op.apply(name, x)


@converter("aten.signbit.default")
def signbit(op: AtenOperation, x: Tensor) -> Tensor:
    return _is_negative(op, x)


def _is_negative(op: AtenOperation, x: Tensor) -> Tensor:
    """Return the sign of each element; -0 has one."""
    kind = x.dtype
    if kind.is_bool:
        return op.constant(False, TensorType.of((), "bool").dtype, x.shape)
    if not kind.is_float:
        return op.apply("less", x, 0)
    if kind.bits not in (16, 32, 64):
        raise UnsupportedOperation(f"reads the signs of {kind}")
    return op.apply("less", op.apply("bitcast", x, dtype=f"i{kind.bits}"), 0)


@converter("aten.copysign.Tensor", "aten.copysign.Scalar")
def copysign(op: AtenOperation, x: Tensor, y: Operand) -> Tensor:
    size = op.apply("abs", op.cast(x, op.dtype))
    return op.choose(_is_negative(op, op.operand(y, op.dtype)), op.apply("negative", size), size, op.dtype)


@converter("aten.add.Tensor", "aten.add.Scalar")
def add(op: AtenOperation, x: Operand, y: Operand, other: Operand = 1, *, alpha: Operand = 1) -> Tensor:
    return _added(op, "add", x, y, other if op.name.endswith("Scalar") else alpha)


@converter("aten.sub.Tensor", "aten.sub.Scalar", "aten.subtract.Tensor")
def sub(op: AtenOperation, x: Operand, y: Operand, other: Operand = 1, *, alpha: Operand = 1) -> Tensor:
    return _added(op, "subtract", x, y, other if op.name.endswith("Scalar") else alpha)


@converter("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(op: AtenOperation, x: Operand, y: Operand, other: Operand = 1, *, alpha: Operand = 1) -> Tensor:
    return _added(op, "subtract", y, x, other if op.name.endswith("Scalar") else alpha)


def _added(op: AtenOperation, name: str, x: Operand, y: Operand, alpha: Operand) -> Tensor:
    """Return x + alpha * y or the difference, computed in f32 for 16-bit floats."""
    target = op.dtype
    left, right = op.operand(x, target), op.operand(y, target)
    if isinstance(alpha, (int, float)) and alpha == 1:
        return op.apply(name, left, right)
    left, right = op.wide(left), op.wide(right)
    scaled = op.apply("multiply", right, op.operand(alpha, right.dtype))
    return op.cast(op.apply(name, left, scaled), target)


@converter("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor", "aten.divide.Tensor", "aten.divide.Scalar")
def div(op: AtenOperation, x: Operand, y: Operand) -> Tensor:
    return op.apply("divide", op.operand(x, op.dtype), op.operand(y, op.dtype))


@converter("aten.div.Tensor_mode", "aten.div.Scalar_mode", "aten.divide.Tensor_mode", "aten.divide.Scalar_mode")
def div_mode(op: AtenOperation, x: Operand, y: Operand, *, rounding_mode: str | None = None) -> Tensor:
    if rounding_mode is None:
        return div(op, x, y)
    if rounding_mode == "floor":
        return floor_divide(op, x, y)
    left, right = op.operand(x, op.dtype), op.operand(y, op.dtype)
    if op.dtype.is_float:
        wide = op.apply("divide", op.wide(left), op.wide(right))
        return op.cast(op.apply("trunc", wide), op.dtype)
    require_divisors(op, right)
    return op.apply("divide", left, right)


@converter("prims.fma.default")
def fma(op: AtenOperation, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return op.apply("add", op.apply("multiply", x, y), z)


@converter("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(op: AtenOperation, x: Operand, y: Operand) -> Tensor:
    """Convert `floor_divide`: the remainder of floats is exact, and so is the quotient that it leaves."""
    left, right = op.operand(x, op.dtype), op.operand(y, op.dtype)
    if not op.dtype.is_float:
        require_divisors(op, right)
        return op.apply("floor_divide", left, right)
    a, b = op.wide(left), op.wide(right)
    kind = a.dtype
    rest = op.apply("fmod", a, b)
    quotient = op.apply("divide", op.apply("subtract", a, rest), b)
    signs = op.apply("not_equal", op.apply("less", b, 0), op.apply("less", rest, 0))
    below = op.apply("logical_and", op.apply("not_equal", rest, 0), signs)
    quotient = op.choose(below, op.apply("subtract", quotient, 1), quotient, kind)
    whole = op.apply("floor", quotient)
    far = op.apply("greater", op.apply("subtract", quotient, whole), 0.5)
    whole = op.choose(far, op.apply("add", whole, 1), whole, kind)
    zero = op.apply("divide", a, b)  # infinite or NaN where b is 0, and a signed 0 where the quotient is
    whole = op.choose(op.apply("equal", quotient, 0), op.apply("multiply", zero, 0), whole, kind)
    return op.cast(op.choose(op.apply("equal", b, 0), zero, whole, kind), op.dtype)


@converter("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar")
def pow_(op: AtenOperation, x: Operand, y: Operand) -> Tensor:
    base = op.operand(x, op.dtype)
    if isinstance(y, (int, float)) and float(y) in (1.0, 2.0):
        return base if y == 1 else op.apply("multiply", base, base)
    if isinstance(y, float) and y == 0.5:
        # The square root of -inf is NaN, its power inf.
        return op.apply("power", base, op.operand(y, op.dtype))
    if isinstance(y, int) and y < 0 and op.dtype.is_integer:
        raise UnsupportedOperation("raises integers to a negative power")
    return op.apply("power", base, op.operand(y, op.dtype))


@converter("aten.fmax.default", "aten.fmin.default")
def fmax(op: AtenOperation, x: Tensor, y: Tensor) -> Tensor:
    """Convert `fmax` and `fmin`, which leave NaN out."""
    name = "maximum" if "fmax" in op.name else "minimum"
    left, right = op.cast(x, op.dtype), op.cast(y, op.dtype)
    result = op.apply(name, left, right)
    if not op.dtype.is_float:
        return result
    result = op.choose(op.apply("isnan", right), left, result, op.dtype)
    return op.choose(op.apply("isnan", left), right, result, op.dtype)


@converter("aten.hypot.default")
def hypot(op: AtenOperation, x: Tensor, y: Tensor) -> Tensor:
    a, b = (op.apply("abs", op.wide(op.cast(each, op.dtype))) for each in (x, y))
    kind = a.dtype
    high, low = op.apply("maximum", a, b), op.apply("minimum", a, b)
    ratio = op.apply("divide", low, op.choose(op.apply("equal", high, 0), 1, high, kind))
    result = op.apply("multiply", high, op.apply("sqrt", op.apply("add", op.apply("multiply", ratio, ratio), 1)))
    infinite = op.apply("logical_or", op.apply("isinf", a), op.apply("isinf", b))
    return op.cast(op.choose(infinite, math.inf, result, kind), op.dtype)


@converter("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(op: AtenOperation, condition: Tensor, x: Operand, y: Operand) -> Tensor:
    return op.choose(op.cast(condition, "bool"), x, y, op.dtype)


@converter("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(op: AtenOperation, x: Tensor, mask: Tensor, value: Operand) -> Tensor:
    return op.expanded(op.choose(mask, value, x, op.dtype), op.shape)


@converter("aten.clamp.default", "aten.clip.default", "aten.hardtanh.default")
def clamp(op: AtenOperation, x: Tensor, least: Operand | None = None, most: Operand | None = None) -> Tensor:
    y = op.cast(x, op.dtype)
    given = {key: value for key, value in (("min", least), ("max", most)) if value is not None}
    bounds = {key: float(value) for key, value in given.items() if isinstance(value, (int, float))}
    numbers = list(bounds.values())
    in_order = numbers == sorted(numbers) and not any(map(math.isnan, numbers))
    if op.dtype.is_float and len(bounds) == len(given) and in_order:
        return op.apply("clip", y, **bounds)
    return _bounded(op, y, least, most)


@converter("aten.clamp.Tensor", "aten.clip.Tensor")
def clamp_tensor(op: AtenOperation, x: Tensor, least: Operand | None = None, most: Operand | None = None) -> Tensor:
    return _bounded(op, op.cast(x, op.dtype), least, most)


def _bounded(op: AtenOperation, x: Tensor, least: Operand | None, most: Operand | None) -> Tensor:
    if least is not None:
        x = op.apply("maximum", x, op.operand(least, op.dtype))
    if most is not None:
        x = op.apply("minimum", x, op.operand(most, op.dtype))
    return x


@converter("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(op: AtenOperation, x: Tensor, least: Operand | None) -> Tensor:
    return clamp(op, x, least)


@converter("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(op: AtenOperation, x: Tensor, most: Operand | None) -> Tensor:
    return clamp(op, x, None, most)


@converter("aten.lerp.Scalar", "aten.lerp.Tensor")
def lerp(op: AtenOperation, x: Tensor, end: Tensor, weight: Operand) -> Tensor:
    """Convert `lerp`, from the nearer end."""
    a, b = op.wide(x), op.wide(end)
    kind = a.dtype
    w = op.operand(weight, kind)
    span = op.apply("subtract", b, a)
    low = op.apply("add", a, op.apply("multiply", w, span))
    rest = op.apply("multiply", span, op.apply("subtract", op.constant(1, kind), w))
    near = op.apply("less", op.apply("abs", w), 0.5)
    return op.cast(op.choose(near, low, op.apply("subtract", b, rest), kind), op.dtype)


@converter("aten.addcmul.default", "aten.addcdiv.default")
def addcmul(op: AtenOperation, x: Tensor, a: Tensor, b: Tensor, *, value: Operand = 1) -> Tensor:
    wide: list[Tensor] = [op.wide(op.cast(each, op.dtype)) for each in (x, a, b)]
    if "addcdiv" in op.name:
        result = op.apply("divide", op.apply("multiply", wide[1], op.operand(value, wide[1].dtype)), wide[2])
    else:
        result = op.apply("multiply", op.apply("multiply", wide[1], op.operand(value, wide[1].dtype)), wide[2])
    return op.cast(op.apply("add", wide[0], result), op.dtype)


@converter("aten.deg2rad.default", "aten.rad2deg.default")
def degrees(op: AtenOperation, x: Tensor) -> Tensor:
    factor = math.pi / 180 if "deg2rad" in op.name else 180 / math.pi
    return op.cast(op.apply("multiply", op.wide(op.cast(x, op.dtype)), factor), op.dtype)


@converter("aten.frac.default")
def frac(op: AtenOperation, x: Tensor) -> Tensor:
    return op.apply("subtract", x, op.apply("trunc", x))


@converter("aten.round.decimals")
def round_decimals(op: AtenOperation, x: Tensor, *, decimals: int = 0) -> Tensor:
    if not x.dtype.is_float:
        return x
    scale = float(10 ** abs(decimals))
    y = op.wide(x)
    there, back = ("multiply", "divide") if decimals >= 0 else ("divide", "multiply")
    return op.cast(op.apply(back, op.apply("round", op.apply(there, y, scale)), scale), op.dtype)
