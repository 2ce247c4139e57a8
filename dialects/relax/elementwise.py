"""Elementwise operators.

Each is a row of a table: its name, and the kinds of elements that it accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mirlo.dialects.core.op import operand
from mirlo.dialects.core.types import TensorType
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


class Unary(RelaxOp):
    """Elementwise, same shape and element type as the operand."""

    KINDS: tuple[str, ...] = FLOAT
    x = operand()


class UnaryToBool(RelaxOp):
    """Elementwise test, same shape, bool."""

    KINDS: tuple[str, ...] = FLOAT
    x = operand()


class Binary(RelaxOp):
    """Elementwise with numpy broadcasting; operands of one element type."""

    KINDS: tuple[str, ...] = NUMBER
    lhs = operand()
    rhs = operand()


class Compare(RelaxOp):
    """Elementwise comparison with numpy broadcasting, to bool."""

    KINDS: tuple[str, ...] = ANY
    lhs = operand()
    rhs = operand()


# operator: element kinds that it accepts
UNARY = {
    "abs": NUMBER, "negative": NUMBER, "sign": NUMBER, "exp": FLOAT, "exp2": FLOAT, "expm1": FLOAT,
    "log": FLOAT, "log2": FLOAT, "log10": FLOAT, "log1p": FLOAT, "sqrt": FLOAT, "rsqrt": FLOAT, "cbrt": FLOAT,
    "sin": FLOAT, "cos": FLOAT, "tan": FLOAT, "asin": FLOAT, "acos": FLOAT, "atan": FLOAT,
    "sinh": FLOAT, "cosh": FLOAT, "tanh": FLOAT, "asinh": FLOAT, "acosh": FLOAT, "atanh": FLOAT,
    "erf": FLOAT, "erfc": FLOAT, "floor": FLOAT, "ceil": FLOAT, "trunc": FLOAT, "round": FLOAT,
    "reciprocal": FLOAT, "square": NUMBER, "logical_not": BOOL, "bitwise_not": BITS,
}  # fmt: skip
UNARY_TO_BOOL = {"isnan": FLOAT, "isinf": FLOAT, "isfinite": FLOAT}
BINARY = {
    "add": NUMBER, "subtract": NUMBER, "multiply": NUMBER, "divide": NUMBER, "floor_divide": NUMBER,
    "mod": NUMBER, "fmod": NUMBER, "power": NUMBER, "maximum": NUMBER, "minimum": NUMBER, "atan2": FLOAT,
    "logical_and": BOOL, "logical_or": BOOL, "logical_xor": BOOL,
    "bitwise_and": BITS, "bitwise_or": BITS, "bitwise_xor": BITS, "shift_left": INTEGER, "shift_right": INTEGER,
}  # fmt: skip
COMPARE = {"equal": ANY, "not_equal": ANY, "less": ANY, "less_equal": ANY, "greater": ANY, "greater_equal": ANY}


def _infer_unary(kinds: tuple[str, ...]) -> Any:
    def infer(x: TensorType) -> TensorType:
        require_kind(x, kinds, "operand")
        return x

    return infer


def _infer_to_bool(kinds: tuple[str, ...]) -> Any:
    def infer(x: TensorType) -> TensorType:
        require_kind(x, kinds, "operand")
        return x.with_dtype("bool")

    return infer


def _infer_binary(kinds: tuple[str, ...]) -> Any:
    def infer(lhs: TensorType, rhs: TensorType) -> TensorType:
        same_dtype("operands", lhs, rhs)
        require_kind(lhs, kinds, "operands")
        return TensorType(broadcast_shapes(lhs.shape, rhs.shape), lhs.dtype)

    return infer


def _infer_compare(kinds: tuple[str, ...]) -> Any:
    def infer(lhs: TensorType, rhs: TensorType) -> TensorType:
        result: TensorType = _infer_binary(kinds)(lhs, rhs).with_dtype("bool")
        return result

    return infer


def _define(table: Mapping[str, tuple[str, ...]], base: type, make_infer: Callable[[tuple[str, ...]], Any]) -> None:
    for name, kinds in table.items():
        body = {"KINDS": kinds, "infer": staticmethod(make_infer(kinds)), "__module__": __name__}
        globals()[class_name(name)] = type(class_name(name), (base,), body, name=name)


_define(UNARY, Unary, _infer_unary)
_define(UNARY_TO_BOOL, UnaryToBool, _infer_to_bool)
_define(BINARY, Binary, _infer_binary)
_define(COMPARE, Compare, _infer_compare)


class Where(RelaxOp, name="where"):
    """`x` where the condition holds, else `y`; all three broadcast."""

    condition = operand()
    x = operand()
    y = operand()

    @staticmethod
    def infer(condition: TensorType, x: TensorType, y: TensorType) -> TensorType:
        require_kind(condition, BOOL, "condition")
        same_dtype("x and y", x, y)
        return TensorType(broadcast_shapes(condition.shape, x.shape, y.shape), x.dtype)
