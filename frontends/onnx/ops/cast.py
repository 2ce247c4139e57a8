"""Conversions of element types."""

from __future__ import annotations

from mirlo.dialects.core.dtypes import DType, dtype
from mirlo.frontends.onnx.dtypes import onnx_code, onnx_dtype
from mirlo.frontends.onnx.graph import STRING_CODE
from mirlo.frontends.onnx.node import Node, NodeTrait
from mirlo.frontends.onnx.ops.string import cast_strings
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted, Output
from mirlo.frontends.tensor import Tensor, minimum, where


@converter("Cast", traits=[NodeTrait.SAME_SHAPE, NodeTrait.SAME_VALUES])
def cast(node: Node) -> Converted:
    code = node.attr.int("to")
    if code == STRING_CODE or node.is_string(0):
        return cast_strings(node, code)
    return _cast(node, onnx_dtype(code, "attribute 'to'").dtype)


@converter("CastLike", traits=[NodeTrait.SAME_SHAPE, NodeTrait.SAME_VALUES])
def cast_like(node: Node) -> Converted:
    node.ignore(1)
    if node.is_string(0) or node.is_string(1):
        return cast_strings(node, STRING_CODE if node.is_string(1) else onnx_code(_dtype_of(node, 1)))
    return _cast(node, _dtype_of(node, 1))


@converter("BitCast", since=26)
def bit_cast(node: Node) -> Converted:
    return node[0].bitcast(onnx_dtype(node.attr.int("to"), "attribute 'to'").dtype)


def _dtype_of(node: Node, index: int) -> DType:
    """Return the element type of an input, which has one even if its rank depends on data."""
    return dtype(node.any_value(index).kind.name)


def _cast(node: Node, wanted: DType) -> Output:
    saturate = node.attr.bool("saturate", 1)
    rounding = node.attr.choice("round_mode", "up", ("up", "down", "nearest"))
    value = node.any_value(0)
    if value.kind.name == wanted.name:  # also of a tensor whose rank depends on data
        return value
    if wanted.name == "f8e8m0":
        return _powers_of_two(node, rounding, saturate)
    return node[0].cast(wanted, saturate=saturate)


def _powers_of_two(node: Node, rounding: str, saturate: bool) -> Tensor:
    """Cast to the exponent-only type: the exponent of the nearest f32, or of the next one."""

    def number(value: int) -> Tensor:
        return node.constant(value, "u32")

    x = node.type(0)
    single = node[0] if x.dtype.name == "f32" else node[0].cast("f32")
    bits = single.bitcast("u32")
    magnitude = bits & number(0x7FFFFFFF)
    exponent = magnitude >> number(23)
    fraction = bits & number(0x7FFFFF)
    # A tie rounds up, but not from the smallest exponent, whose values are subnormal.
    least = {"up": 1, "nearest": 0x400000, "down": 0x800000}[rounding]
    goes_up = fraction >= least
    if rounding == "nearest":
        is_tie = magnitude.equals(0x400000)
        goes_up = goes_up & ~is_tie
    top = number(0xFE if saturate else 0xFF)
    raised = minimum(exponent + goes_up.cast("u32"), top)
    special = exponent.equals(0xFF)
    # The value itself, which is then cast exactly; the smallest one is subnormal.
    normal = raised << number(23)
    power = where(raised.equals(0), number(1 << 22), normal)
    result = where(special, number(0x7FC00000), power)
    return result.bitcast("f32").cast("f8e8m0", saturate=True)
