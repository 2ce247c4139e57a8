"""Elementwise operators whose ONNX form differs; the others say on their classes what ONNX calls them."""

from __future__ import annotations

import operator
from functools import reduce

from mirlo.dialects.core.dtypes import DType
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.tensor import Tensor, maximum, minimum


@converter("Sum")
def sum_(node: Node) -> Converted:
    return reduce(operator.add, node.all())


@converter("Max")
def max_(node: Node) -> Converted:
    return reduce(maximum, node.all())


@converter("Min")
def min_(node: Node) -> Converted:
    return reduce(minimum, node.all())


@converter("Mean")
def mean(node: Node) -> Converted:
    total = reduce(lambda left, right: left + right, node.all())
    return total / len(node)


@converter("Mod")
def mod(node: Node) -> Converted:
    """Convert Mod: with fmod=1 the result has the sign of the dividend, otherwise of the divisor."""
    return node[0].fmod(node[1]) if node.attr.bool("fmod", 0) else node[0] % node[1]


@converter("Pow")
def power(node: Node) -> Converted:
    """Convert Pow; the exponent may have another element type, the result has the base's."""
    base, exponent = node.type(0), node.type(1)
    if base.dtype is exponent.dtype:
        return node[0] ** node[1]
    if base.dtype.is_float:
        return node[0] ** node[1].cast(base.dtype)
    # An integer base is computed in a float type that fits both, then truncated, as in the ONNX reference.
    wide = exponent.dtype if exponent.dtype.is_float else "f64"
    result = node[0].cast(wide) ** cast_to(node, node[1], exponent.dtype, wide)
    return result.cast(base.dtype)


def cast_to(node: Node, value: Tensor, value_type: DType, wanted: DType | str) -> Tensor:
    return value if str(value_type) == str(wanted) else value.cast(wanted)


@converter("BitShift")
def bit_shift(node: Node) -> Converted:
    direction = node.attr.choice("direction", "", ("LEFT", "RIGHT"))
    return node[0] << node[1] if direction == "LEFT" else node[0] >> node[1]


@converter("IsInf")
def is_inf(node: Node) -> Converted:
    negative, positive = node.attr.bool("detect_negative", 1), node.attr.bool("detect_positive", 1)
    if negative and positive:
        return node[0].isinf()
    if not negative and not positive:
        node.ignore(0)
        return node.emit("full", shape=node.type(0).shape, value=0, dtype="bool")
    return node[0].isinf() & (node[0] > 0 if positive else node[0] < 0)
