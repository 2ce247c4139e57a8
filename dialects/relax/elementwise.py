"""Elementwise operators.

Each is a row of a table: its name, the kinds of elements that it accepts, its meaning, and what else it declares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from mirlo.dialects.core.attributes import Bool, ElementType
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.op import OpError, operand
from mirlo.dialects.core.traits import OnnxName, Precision, Trait
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import meanings, scalars
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import (
    ANY,
    BITS,
    BOOL,
    FLOAT,
    INTEGER,
    NUMBER,
    broadcast_shapes,
    class_name,
    require_kind,
    same_dtype,
)
from mirlo.dialects.tir.compute import call, select
from mirlo.dialects.tir.compute.expr import Expr
from mirlo.runtime.records import dataclass


class Elementwise(RelaxOp):
    """Base of elementwise operators, which compute in the element type of their operands."""

    TRAITS = (Trait.ELEMENTWISE,)
    IN_F32 = False


class Unary(Elementwise):
    """Elementwise, same shape and element type as the operand."""

    KINDS: tuple[str, ...] = FLOAT
    x = operand()


class UnaryToBool(Elementwise):
    """Elementwise test, same shape, bool."""

    KINDS: tuple[str, ...] = FLOAT
    x = operand()


class Binary(Elementwise):
    """Elementwise with numpy broadcasting; operands of one element type."""

    KINDS: tuple[str, ...] = NUMBER
    lhs = operand()
    rhs = operand()


class Compare(Elementwise):
    """Elementwise comparison with numpy broadcasting, to bool."""

    KINDS: tuple[str, ...] = ANY
    lhs = operand()
    rhs = operand()


@dataclass(frozen=True)
class ElementwiseOp:
    """The declaration of an operator of one of the tables below."""

    kinds: tuple[str, ...]
    """The element kinds that it accepts."""
    meaning: Callable[..., object]
    onnx: OnnxName | str | None = None
    precision: Precision = Precision.F32
    scalar: Callable[..., Expr] | None = None
    domain: tuple[tuple[float, float], ...] = ((-3.0, 3.0),)
    commutes: bool = False
    flops: int = 1
    is_activation: bool = False
    neutral: float | None = None
    linear: tuple[tuple[int, ...], ...] = ()

    def members(self, infer: Callable[[tuple[str, ...]], Callable[..., TensorType]]) -> dict[str, object]:
        """Return the members of the operator's class."""
        result: dict[str, object] = {
            "KINDS": self.kinds,
            "infer": staticmethod(infer(self.kinds)),
            "__module__": __name__,
        }
        result |= {"meaning": staticmethod(self.meaning), "PRECISION": self.precision, "DOMAIN": self.domain}
        result |= {"ONNX": OnnxName(self.onnx) if isinstance(self.onnx, str) else self.onnx}
        result |= {"FLOPS_PER_ELEMENT": self.flops, "TRAITS": self._traits(), "NEUTRAL": self.neutral}
        result |= {"LINEAR": self.linear}
        if self.scalar is not None:
            result["scalar"] = staticmethod(self.scalar)
        return result

    def _traits(self) -> tuple[Trait, ...]:
        flags = {Trait.COMMUTATIVE: self.commutes, Trait.ACTIVATION: self.is_activation}
        return tuple(trait for trait, has in flags.items() if has)


def _call(name: str) -> Callable[..., Expr]:
    def scalar(*xs: Expr) -> Expr:
        return call(name, *xs)

    return scalar


_POSITIVE, _WIDE, _UNIT = ((0.1, 9.0),), ((-9.0, 9.0),), ((-1.0, 1.0),)
_DIVISOR = ((-3.0, 3.0), (0.5, 3.0))
REGISTERS = Precision.REGISTERS

UNARY = {
    "abs": ElementwiseOp(NUMBER, np.abs, "Abs", REGISTERS),
    "negative": ElementwiseOp(NUMBER, np.negative, "Neg", REGISTERS, linear=((0,),)),
    "sign": ElementwiseOp(NUMBER, np.sign, "Sign", REGISTERS, scalars.sign),
    "exp": ElementwiseOp(FLOAT, np.exp, "Exp"),
    "exp2": ElementwiseOp(FLOAT, np.exp2),
    "expm1": ElementwiseOp(FLOAT, np.expm1),
    "log": ElementwiseOp(FLOAT, np.log, "Log", domain=_POSITIVE),
    "log2": ElementwiseOp(FLOAT, np.log2, domain=_POSITIVE),
    "log10": ElementwiseOp(FLOAT, np.log10, domain=_POSITIVE),
    "log1p": ElementwiseOp(FLOAT, np.log1p, domain=((-0.9, 9.0),)),
    "sqrt": ElementwiseOp(FLOAT, np.sqrt, "Sqrt", REGISTERS, domain=_POSITIVE),
    "rsqrt": ElementwiseOp(
        FLOAT,
        lambda x: 1 / np.sqrt(x),
        scalar=_call("rsqrt"),
        domain=_POSITIVE,
    ),
    "cbrt": ElementwiseOp(FLOAT, np.cbrt, domain=_WIDE),
    "sin": ElementwiseOp(FLOAT, np.sin, "Sin", domain=_WIDE),
    "cos": ElementwiseOp(FLOAT, np.cos, "Cos", domain=_WIDE),
    "tan": ElementwiseOp(FLOAT, np.tan, "Tan", domain=((-1.2, 1.2),)),
    "asin": ElementwiseOp(FLOAT, np.arcsin, "Asin", domain=_UNIT),
    "acos": ElementwiseOp(FLOAT, np.arccos, "Acos", domain=_UNIT),
    "atan": ElementwiseOp(FLOAT, np.arctan, "Atan", domain=_WIDE),
    "sinh": ElementwiseOp(FLOAT, np.sinh, "Sinh"),
    "cosh": ElementwiseOp(FLOAT, np.cosh, "Cosh"),
    "tanh": ElementwiseOp(FLOAT, np.tanh, "Tanh", flops=4, is_activation=True),
    "asinh": ElementwiseOp(FLOAT, np.arcsinh, "Asinh", domain=_WIDE),
    "acosh": ElementwiseOp(FLOAT, np.arccosh, "Acosh", domain=((1.0, 9.0),)),
    "atanh": ElementwiseOp(FLOAT, np.arctanh, "Atanh", domain=((-0.9, 0.9),)),
    "erf": ElementwiseOp(FLOAT, meanings.erf, "Erf", scalar=_call("erf")),
    "erfc": ElementwiseOp(FLOAT, meanings.erfc, scalar=_call("erfc")),
    "erfinv": ElementwiseOp(FLOAT, meanings.erfinv, scalar=_call("erfinv"), domain=((-0.99, 0.99),)),
    "lgamma": ElementwiseOp(FLOAT, meanings.lgamma, scalar=_call("lgamma"), domain=_POSITIVE),
    "digamma": ElementwiseOp(FLOAT, meanings.digamma, scalar=_call("digamma"), domain=_POSITIVE),
    "bessel_j0": ElementwiseOp(FLOAT, meanings.bessel_j0, scalar=_call("j0"), domain=_WIDE),
    "bessel_j1": ElementwiseOp(FLOAT, meanings.bessel_j1, scalar=_call("j1"), domain=_WIDE),
    "bessel_i0": ElementwiseOp(FLOAT, meanings.bessel_i0, scalar=_call("i0"), domain=_WIDE),
    "bessel_i0e": ElementwiseOp(FLOAT, meanings.bessel_i0e, scalar=_call("i0e"), domain=_WIDE),
    "bessel_i1": ElementwiseOp(FLOAT, meanings.bessel_i1, scalar=_call("i1"), domain=_WIDE),
    "bessel_i1e": ElementwiseOp(FLOAT, meanings.bessel_i1e, scalar=_call("i1e"), domain=_WIDE),
    "floor": ElementwiseOp(FLOAT, np.floor, "Floor", REGISTERS, domain=_WIDE),
    "ceil": ElementwiseOp(FLOAT, np.ceil, "Ceil", REGISTERS, domain=_WIDE),
    "trunc": ElementwiseOp(FLOAT, np.trunc, precision=REGISTERS, domain=_WIDE),
    "round": ElementwiseOp(FLOAT, np.rint, "Round", REGISTERS, domain=_WIDE),
    "reciprocal": ElementwiseOp(FLOAT, lambda x: 1 / x, "Reciprocal", domain=_POSITIVE),
    "square": ElementwiseOp(NUMBER, np.square, precision=REGISTERS),
    "logical_not": ElementwiseOp(BOOL, np.logical_not, "Not"),
    "bitwise_not": ElementwiseOp(BITS, np.invert, "BitwiseNot"),
}
UNARY_TO_BOOL = {
    "isnan": ElementwiseOp(FLOAT, np.isnan, "IsNaN"),
    "isinf": ElementwiseOp(FLOAT, np.isinf, OnnxName("IsInf", imported=False)),
    "isfinite": ElementwiseOp(FLOAT, np.isfinite),
}
BINARY = {
    "add": ElementwiseOp(NUMBER, np.add, "Add", REGISTERS, linear=((0, 1),), commutes=True, neutral=0.0),
    "subtract": ElementwiseOp(NUMBER, np.subtract, "Sub", REGISTERS, linear=((0, 1),), neutral=0.0),
    "multiply": ElementwiseOp(
        NUMBER,
        np.multiply,
        "Mul",
        REGISTERS,
        linear=((0,), (1,)),
        commutes=True,
        neutral=1.0,
    ),
    "divide": ElementwiseOp(
        NUMBER,
        meanings.divide,
        OnnxName("Div", exported=False),
        REGISTERS,
        scalars.divide,
        _DIVISOR,
        linear=((0,),),
        neutral=1.0,
    ),
    "floor_divide": ElementwiseOp(NUMBER, np.floor_divide, scalar=scalars.floor_divide, domain=_DIVISOR),
    "mod": ElementwiseOp(NUMBER, np.mod, scalar=scalars.mod, domain=_DIVISOR),
    "fmod": ElementwiseOp(NUMBER, np.fmod, scalar=scalars.fmod, domain=_DIVISOR),
    "power": ElementwiseOp(
        NUMBER,
        meanings.power,
        OnnxName("Pow", imported=False),
        scalar=scalars.power,
        domain=((0.5, 3.0), (0.0, 3.0)),
    ),
    "maximum": ElementwiseOp(
        NUMBER,
        np.maximum,
        OnnxName("Max", imported=False),
        REGISTERS,
        commutes=True,
    ),
    "minimum": ElementwiseOp(
        NUMBER,
        np.minimum,
        OnnxName("Min", imported=False),
        REGISTERS,
        commutes=True,
    ),
    "atan2": ElementwiseOp(FLOAT, np.arctan2),
    "logical_and": ElementwiseOp(BOOL, np.logical_and, "And", commutes=True),
    "logical_or": ElementwiseOp(BOOL, np.logical_or, "Or", commutes=True),
    "logical_xor": ElementwiseOp(BOOL, np.logical_xor, "Xor", commutes=True),
    "bitwise_and": ElementwiseOp(
        BITS,
        np.bitwise_and,
        "BitwiseAnd",
        commutes=True,
    ),
    "bitwise_or": ElementwiseOp(
        BITS,
        np.bitwise_or,
        "BitwiseOr",
        commutes=True,
    ),
    "bitwise_xor": ElementwiseOp(
        BITS,
        np.bitwise_xor,
        "BitwiseXor",
        commutes=True,
    ),
    "shift_left": ElementwiseOp(INTEGER, np.left_shift, scalar=scalars.shift_left, domain=_DIVISOR),
    "shift_right": ElementwiseOp(INTEGER, np.right_shift, scalar=scalars.shift_right, domain=_DIVISOR),
}
COMPARE = {
    "equal": ElementwiseOp(ANY, np.equal, "Equal", commutes=True),
    "not_equal": ElementwiseOp(ANY, np.not_equal, commutes=True),
    "less": ElementwiseOp(ANY, np.less, "Less"),
    "less_equal": ElementwiseOp(ANY, np.less_equal, "LessOrEqual"),
    "greater": ElementwiseOp(ANY, np.greater, "Greater"),
    "greater_equal": ElementwiseOp(ANY, np.greater_equal, "GreaterOrEqual"),
}


def _infer_unary(kinds: tuple[str, ...]) -> Callable[[TensorType], TensorType]:
    def infer(x: TensorType) -> TensorType:
        require_kind(x, kinds, "operand")
        return x

    return infer


def _infer_to_bool(kinds: tuple[str, ...]) -> Callable[[TensorType], TensorType]:
    def infer(x: TensorType) -> TensorType:
        require_kind(x, kinds, "operand")
        return x.with_dtype("bool")

    return infer


def _infer_binary(kinds: tuple[str, ...]) -> Callable[[TensorType, TensorType], TensorType]:
    def infer(lhs: TensorType, rhs: TensorType) -> TensorType:
        same_dtype("operands", lhs, rhs)
        require_kind(lhs, kinds, "operands")
        return TensorType(broadcast_shapes(lhs.shape, rhs.shape), lhs.dtype)

    return infer


def _infer_compare(kinds: tuple[str, ...]) -> Callable[[TensorType, TensorType], TensorType]:
    def infer(lhs: TensorType, rhs: TensorType) -> TensorType:
        result: TensorType = _infer_binary(kinds)(lhs, rhs).with_dtype("bool")
        return result

    return infer


def _define(
    table: Mapping[str, ElementwiseOp], base: type, infer: Callable[[tuple[str, ...]], Callable[..., TensorType]]
) -> None:
    for name, row in table.items():
        globals()[class_name(name)] = type(class_name(name), (base,), row.members(infer), name=name)


_define(UNARY, Unary, _infer_unary)
_define(UNARY_TO_BOOL, UnaryToBool, _infer_to_bool)
_define(BINARY, Binary, _infer_binary)
_define(COMPARE, Compare, _infer_compare)


class Where(Elementwise, name="where"):
    """`x` where the condition holds, else `y`; all three broadcast."""

    PRECISION = REGISTERS
    ONNX = OnnxName("Where")
    meaning = staticmethod(np.where)
    scalar = staticmethod(select)
    condition = operand()
    x = operand()
    y = operand()

    @staticmethod
    def infer(condition: TensorType, x: TensorType, y: TensorType) -> TensorType:
        require_kind(condition, BOOL, "condition")
        same_dtype("x and y", x, y)
        return TensorType(broadcast_shapes(condition.shape, x.shape, y.shape), x.dtype)


class Cast(RelaxOp, name="cast"):
    """Convert the elements to another type.

    Floats to integers truncate towards zero; anything to bool is `x != 0`. With `saturate`, a value beyond the
    largest 8-bit float becomes that float, otherwise infinity or NaN.
    """

    TRAITS = (Trait.ELEMENTWISE,)
    FLOPS_PER_ELEMENT = 0
    IN_F32 = False
    meaning = staticmethod(meanings.cast)
    LINEAR = ((0,),)
    x = operand()
    dtype = ElementType()
    saturate = Bool(True)

    @staticmethod
    def infer(x: TensorType, *, dtype: DType, saturate: bool) -> TensorType:
        return x.with_dtype(dtype)


class Bitcast(RelaxOp, name="bitcast"):
    """Reinterpret the bits of the elements as another type of the same size.

    As bool, every bit pattern but 0 is true.
    """

    FLOPS_PER_ELEMENT = 0
    meaning = staticmethod(meanings.bitcast)
    x = operand()
    dtype = ElementType()

    @staticmethod
    def infer(x: TensorType, *, dtype: DType) -> TensorType:
        for element in (x.dtype, dtype):
            if element.bits < 8 and element.name != "bool":
                raise OpError(f"takes and gives elements of 8 bits and more, and bools, got {element}")
        if x.dtype.bytes != dtype.bytes:
            raise OpError(f"needs types of the same size, got {x.dtype} and {dtype}")
        return x.with_dtype(dtype)
