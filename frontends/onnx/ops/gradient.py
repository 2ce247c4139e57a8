"""The operator Gradient: the named part of the graph is imported again at given values."""

from __future__ import annotations

from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.gradient import gradients
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.training import DOMAIN
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import AnyValue, Converted
from mirlo.frontends.tensor import Tensor


@converter("Gradient", domain=DOMAIN)
def gradient(node: Node) -> Converted:
    xs, zs = node.attr.strs("xs"), node.attr.strs("zs", [])
    if len(node.inputs) != len(xs) + len(zs):
        raise NodeError(f"expected an input for each of {', '.join([*xs, *zs])}, got {len(node.inputs)}")
    given: dict[str, AnyValue] = {}
    for i, name in enumerate([*xs, *zs]):
        # A separate value, so that only these names lead to it.
        result = node[i].reshape(node.type(i).shape)
        given[name] = result
    y = node.builder.evaluated(node.attr.str("y"), given)
    if not isinstance(y, Tensor) or not y.type.dtype.is_float:
        raise NodeError(f"'{node.attr.str('y')}' is {y}: only floating point tensors have gradients")
    values = [given[name] for name in xs]
    return gradients(node.ssa(y), [node.ssa(value) for value in values], node.builder)
