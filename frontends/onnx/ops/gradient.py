"""The operator Gradient: the named part of the graph is imported again at given values, and differentiated.

Gradients of relax operations are accumulated in reverse, by one rule per differentiable operator.

A rule takes the operation and the gradient of its result, and returns that of each operand (None if it has none).
Rules emit relax operations, which can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import pi, prod, sqrt
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.installed import register_in
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node, NodeImporter
from mirlo.frontends.onnx.ops.training import DOMAIN
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import AnyValue, Converted
from mirlo.frontends.tensor import Tensor, where

Rule = Callable[["TensorOperation", Tensor], Sequence[Tensor | None]]
RULES: dict[str, Rule] = {}


@converter("Gradient", domain=DOMAIN)
def gradient(node: Node) -> Converted:
    xs, zs = node.attr.strs("xs"), node.attr.strs("zs", [])
    if len(node.inputs) != len(xs) + len(zs):
        raise NodeError(f"expected an input for each of {', '.join([*xs, *zs])}, got {len(node.inputs)}")
    copies: dict[str, AnyValue] = {}
    for i, name in enumerate([*xs, *zs]):
        # A separate value, so that only these names lead to it.
        result = node[i].reshape(node.type(i).shape)
        copies[name] = result
    y = node.builder.evaluated(node.attr.str("y"), copies)
    if not isinstance(y, Tensor) or not y.type.dtype.is_float:
        raise NodeError(f"'{node.attr.str('y')}' is {y}: only floating point tensors have gradients")
    values = [copies[name] for name in xs]
    return gradients(node.ssa(y), [node.ssa(value) for value in values], node.builder)


def gradients(y: Tensor, xs: Sequence[Tensor], builder: NodeImporter) -> list[Tensor]:
    """Return the gradient of the sum of y with respect to each of xs; zeros if y does not depend on it."""
    result, inputs = builder.full(y), [builder.full(x) for x in xs]
    adjoints = {result: _filled(builder, y.type, 1)}
    for op in reversed(_between(result, inputs)):
        upper = adjoints.get(op.results[0])
        if upper is None:
            continue
        for operand, part in zip(op.operands, _rule_of(op)(TensorOperation(op.opview, builder), upper), strict=True):
            if part is not None:
                adjoints[operand] = adjoints[operand] + part if operand in adjoints else part
    return [
        adjoints[value] if value in adjoints else _filled(builder, x.type, 0)
        for value, x in zip(inputs, xs, strict=True)
    ]


def _filled(builder: NodeImporter, kind: TensorType, number: float) -> Tensor:
    return builder.emit("full", shape=kind.shape, value=number, dtype=kind.dtype)


def _between(y: ir.Value, xs: Sequence[ir.Value]) -> list[ir.OpView]:
    """Return the operations on paths from xs to y, in topological order."""
    stops = set(xs)
    reaches: dict[ir.Value, bool] = {}
    order: list[ir.OpView] = []
    stack: list[tuple[ir.Value, bool]] = [(y, False)]
    while stack:
        value, is_done = stack.pop()
        if value in stops or isinstance(value.owner, ir.Block):
            reaches[value] = value in stops
            continue
        op = value.owner
        if is_done:
            if value not in reaches:
                reaches[value] = any(reaches.get(operand, False) for operand in op.operands)
                if reaches[value]:
                    order.append(op)
            continue
        if value not in reaches:
            stack.append((value, True))
            stack += [(operand, False) for operand in op.operands]
    return order


def _rule_of(op: ir.OpView) -> Rule:
    result = RULES.get(op.name)
    if result is None:
        supported = ", ".join(sorted(name.removeprefix("relax.") for name in RULES))
        raise NodeError(f"{op.name.removeprefix('relax.')} has no gradient here; operators that have: {supported}")
    return result


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the gradient of operators."""
    return register_in(RULES, [f"relax.{name}" for name in names])


class TensorOperation:
    """An operation, whose operands and results are read as tensors."""

    def __init__(self, op: ir.OpView, builder: NodeImporter) -> None:
        self.op = op
        self.builder = builder

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.op, name)
        if isinstance(value, (list, ir.OpOperandList)):
            return [self.builder.tensor(each) for each in value]
        return self.builder.tensor(value) if isinstance(value, ir.Value) else value

    @property
    def name(self) -> str:
        """Return the name of the operator, without that of its dialect."""
        return self.op.operation.name.removeprefix("relax.")

    @property
    def result(self) -> Tensor:
        """Return the only result."""
        return self.builder.tensor(self.op.operation.results[0])

    def emit(self, operator: str, *operands: Tensor, **attributes: object) -> Tensor:
        """Make an operation of one result."""
        return self.builder.emit(operator, *operands, **attributes)


def summed_to(gradient: Tensor, value: Tensor) -> Tensor:
    """Reduce the gradient of a broadcast result to the shape of the operand."""
    if gradient.shape == value.shape:
        return gradient
    extra = gradient.rank - value.rank
    axes = [i for i in range(gradient.rank) if i < extra or (value.shape[i - extra] == 1 and gradient.shape[i] != 1)]
    return gradient.sum(axes).reshape(value.shape)


def _unary(name: str, slope: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Register a unary function with this derivative, a function of operand and result."""

    @rule(name)
    def multiplied(op: TensorOperation, g: Tensor) -> Sequence[Tensor | None]:
        (x,) = op.operands
        return [g * slope(x, op.result)]


_unary("exp", lambda x, y: y)
_unary("log", lambda x, y: x.reciprocal())
_unary("sqrt", lambda x, y: 0.5 / y)
_unary("tanh", lambda x, y: 1 - y.square())
_unary("sigmoid", lambda x, y: y * (1 - y))
_unary("sin", lambda x, y: x.cos())
_unary("cos", lambda x, y: -x.sin())
_unary("square", lambda x, y: x * 2)
_unary("abs", lambda x, y: x.sign())
_unary("reciprocal", lambda x, y: -y.square())
_unary("negative", lambda x, y: x.like(-1))
_unary("relu", lambda x, y: (x > 0).cast(x.dtype))
_unary("softplus", lambda x, y: x.sigmoid())
_unary("erf", lambda x, y: (-x.square()).exp() * (2 / sqrt(pi)))


@rule("add")
def _add(op: TensorOperation, g: Tensor) -> Sequence[Tensor | None]:
    return [summed_to(g, op.lhs), summed_to(g, op.rhs)]


@rule("subtract")
def _subtract(op: TensorOperation, g: Tensor) -> Sequence[Tensor | None]:
    return [summed_to(g, op.lhs), summed_to(-g, op.rhs)]


@rule("multiply")
def _multiply(op: TensorOperation, g: Tensor) -> Sequence[Tensor | None]:
    return [summed_to(g * op.rhs, op.lhs), summed_to(g * op.lhs, op.rhs)]


@rule("divide")
def _divide(op: TensorOperation, g: Tensor) -> Sequence[Tensor | None]:
    upper = g / op.rhs
    return [summed_to(upper, op.lhs), summed_to(-(upper * op.lhs / op.rhs), op.rhs)]


@rule("power")
def _power(op: TensorOperation, g: Tensor) -> Sequence[Tensor | None]:
    x, y, result = op.lhs, op.rhs, op.result
    base = y * x ** (y - 1)
    exponent = result * where(x > 0, x, x.like(1)).log()
    return [summed_to(g * base, x), summed_to(g * exponent, y)]


@rule("maximum", "minimum")
def _extreme(op: TensorOperation, g: Tensor) -> Sequence[Tensor | None]:
    """Pass the gradient to the selected operand; to the first of equal ones."""
    first = "greater_equal" if op.name == "maximum" else "less_equal"
    is_first, zero = op.emit(first, op.lhs, op.rhs), g.like(0)
    return [
        summed_to(where(is_first, g, zero), op.lhs),
        summed_to(where(is_first, zero, g), op.rhs),
    ]


@rule("where")
def _where(op: TensorOperation, g: Tensor) -> Sequence[Tensor | None]:
    zero = g.like(0)
    return [
        None,
        summed_to(where(op.condition, g, zero), op.x),
        summed_to(where(op.condition, zero, g), op.y),
    ]


@rule("cast")
def _cast(op: TensorOperation, g: Tensor) -> Sequence[Tensor | None]:
    kind = op.x.dtype
    return [g.cast(kind) if kind.is_float else None]


@rule("reshape", "squeeze", "expand_dims")
def _reshape(op: TensorOperation, g: Tensor) -> Sequence[Tensor | None]:
    return [g.reshape(op.x.shape)]


@rule("expand")
def _expand(op: TensorOperation, g: Tensor) -> Sequence[Tensor | None]:
    return [summed_to(g, op.x)]


@rule("permute")
def _permute(op: TensorOperation, g: Tensor) -> Sequence[Tensor | None]:
    rank = len(op.axes)
    return [g.permute([[axis % rank for axis in op.axes].index(i) for i in range(rank)])]


@rule("concat")
def _concat(op: TensorOperation, g: Tensor) -> Sequence[Tensor | None]:
    sizes = [x.shape[op.axis] for x in op.xs]
    return g.split(sizes, op.axis) if len(sizes) > 1 else [g]


@rule("reduce_sum", "reduce_mean")
def _reduce(op: TensorOperation, g: Tensor) -> Sequence[Tensor | None]:
    x = op.x.type
    axes = [axis % x.rank for axis in op.axes] if op.axes is not None else list(range(x.rank))
    kept = tuple(1 if i in axes else dim for i, dim in enumerate(x.shape))
    spread = g.reshape(kept).expand(x.shape)
    if op.name == "reduce_sum":
        return [spread]
    if not x.is_static:
        raise NodeError(f"the gradient of a mean needs known sizes, got {x}")
    count = prod(x.static_shape) // max(prod(g.type.static_shape), 1)
    return [spread * (1 / max(count, 1))]


@rule("softmax")
def _softmax(op: TensorOperation, g: Tensor) -> Sequence[Tensor | None]:
    y = op.result
    return [(g - (g * y).sum([op.axis], keepdims=True)) * y]


@rule("log_softmax")
def _log_softmax(op: TensorOperation, g: Tensor) -> Sequence[Tensor | None]:
    total = g.sum([op.axis], keepdims=True)
    return [g - op.result.exp() * total]


@rule("matmul")
def _matmul(op: TensorOperation, g: Tensor) -> Sequence[Tensor | None]:
    lhs, rhs = op.lhs, op.rhs
    if lhs.rank < 2 or rhs.rank < 2:
        raise NodeError(f"the gradient of a product with a vector is not supported: {lhs} and {rhs}; reshape it")
    across_rhs, across_lhs = not op.transpose_rhs, not op.transpose_lhs
    if op.transpose_lhs:
        left = op.rhs.matmul(g, transpose_lhs=op.transpose_rhs, transpose_rhs=True)
    else:
        left = g.matmul(op.rhs, transpose_rhs=across_rhs)
    if op.transpose_rhs:
        right = g.matmul(op.lhs, transpose_lhs=True, transpose_rhs=op.transpose_lhs)
    else:
        right = op.lhs.matmul(g, transpose_lhs=across_lhs)
    return [summed_to(left, op.lhs), summed_to(right, op.rhs)]


@rule("conv")
def _conv(op: TensorOperation, g: Tensor) -> Sequence[Tensor | None]:
    """Differentiate with respect to data and weight.

    The first is a transposed convolution, the second a convolution with strides and dilations exchanged.
    """
    x, weight = op.x.type, op.weight.type
    if op.data_layout != "NC*" or op.groups != 1 or not x.is_static:
        raise NodeError("the gradient of a convolution is supported with one group, channels first, and known sizes")
    count = x.rank - 2
    strides, dilations = op.strides or (1,) * count, op.dilations or (1,) * count
    pads = op.padding or (0,) * (2 * count)
    sizes, window, out = x.static_shape[2:], weight.static_shape[2:], g.type.static_shape[2:]
    spans = [(out[i] - 1) * strides[i] + (window[i] - 1) * dilations[i] + 1 for i in range(count)]
    rest = [sizes[i] + pads[i] + pads[count + i] - spans[i] for i in range(count)]
    attributes = {"strides": strides, "padding": pads, "dilations": dilations, "output_padding": rest}
    data = op.emit("conv_transpose", g, op.weight, **attributes)
    swapped = [1, 0, *range(2, x.rank)]
    ends = [pads[count + i] - rest[i] for i in range(count)]
    if min(ends) < 0:  # incomplete windows: their pixels do not contribute
        trimmed = [0] * (2 * x.rank)
        trimmed[x.rank + 2 :] = [min(end, 0) for end in ends]
        x_used = op.emit("pad", op.x, pads=trimmed)
        ends = [max(end, 0) for end in ends]
    else:
        x_used = op.x
    transposed = x_used.permute(swapped), g.permute(swapped)
    whole = op.emit("conv", *transposed, strides=dilations, dilations=strides, padding=[*pads[:count], *ends])
    parts = [data, whole.permute(swapped)]
    if op.bias is not None:
        parts.append(g.sum([0, *range(2, x.rank)]))
    return parts
