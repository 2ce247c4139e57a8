"""Activations whose ONNX form differs from what their classes declare, and the softmax family."""

from __future__ import annotations

from mirlo.dialects.core import dims as D
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.registry import converter, relax_class
from mirlo.frontends.onnx.values import Converted, is_exact
from mirlo.frontends.tensor import Tensor


@converter("Gelu")
def gelu(node: Node) -> Converted:
    return node.emit("gelu", node[0], approximate=node.attr.choice("approximate", "none", ("none", "tanh")))


@converter("Swish")
def swish(node: Node) -> Converted:
    return _swish(node, 1.0)


@converter("QuickGelu", domain="com.microsoft")
def quick_gelu(node: Node) -> Converted:
    return _swish(node, 1.702)


def _swish(node: Node, alpha: float) -> Tensor:
    """Convert to x * sigmoid(alpha * x); `alpha` is the default of the attribute."""
    alpha = node.attr.float("alpha", alpha)
    x = node[0]
    return x.elementwise("silu") if alpha == 1 else x * (x * alpha).sigmoid()


@converter("Clip")
def clip_attributes(node: Node) -> Converted:
    return node[0].clip(node.attr.float("min", None), node.attr.float("max", None))


@converter("Clip", since=11)
def clip(node: Node) -> Converted:
    """Convert constant bounds (that f64 represents) to attributes; apply others as tensors."""
    bounds = [node.value(i) if node.has(i) else None for i in (1, 2)]
    for bound in bounds:
        if bound is not None and bound.type.elements != 1:
            raise NodeError(f"the bounds must be scalars, got '{bound.name}' {bound.type}")
    if all(
        bound is None or (bound.array is not None and is_exact(node.scalar(i)))
        for i, bound in enumerate(bounds, start=1)
    ):
        return node[0].clip(node.scalar(1), node.scalar(2))
    result = node[0]
    for i, operator in ((1, "maximum"), (2, "minimum")):
        if node.has(i):
            result = node.emit(operator, result, scalar_tensor(node, i))
    return result


def scalar_tensor(node: Node, index: int) -> Tensor:
    """Return an input of one element as a tensor of rank 0."""
    return node[index] if node.type(index).rank == 0 else node[index].reshape(())


@converter("Softmax", "LogSoftmax", "Hardmax")
def softmax_flattened(node: Node) -> Tensor:
    """Convert softmax before opset 13: over all dims from `axis` on, flattened."""
    operator, type_ = relax_class(node.operator), node.type(0)
    axis = node.attr.int("axis", 1)
    if not -type_.rank <= axis <= type_.rank:
        raise NodeError(f"attribute 'axis' is {axis}, outside a tensor of rank {type_.rank}")
    axis = axis % type_.rank if axis < type_.rank and type_.rank else axis
    if axis == type_.rank - 1:
        return node.emit(operator, node[0], axis=-1)
    flat = (D.product(type_.shape[:axis]), D.product(type_.shape[axis:]))
    result = node.emit(operator, node[0].reshape(flat), axis=-1)
    return result.reshape(type_.shape)
