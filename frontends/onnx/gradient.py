"""Gradients of relax operations by reverse accumulation: one rule per differentiable operator.

A rule takes the operation and the gradient of its result, and returns that of each operand (None if it has none).
Rules emit relax operations, which can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
import numpy.typing as npt

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dense import dense_attribute
from mirlo.dialects.core.installed import register_in
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import relax_op, type_of
from mirlo.frontends.onnx.relax_value import RelaxValue

Rule = Callable[[ir.OpView, RelaxValue], Sequence[ir.Value | None]]
RULES: dict[str, Rule] = {}


def gradients(y: ir.Value, xs: Sequence[ir.Value]) -> list[RelaxValue]:
    """Return the gradient of the sum of y with respect to each of xs; zeros if y does not depend on it."""
    order = _between(y, xs)
    found: dict[ir.Value, RelaxValue] = {y: filled(type_of(y), 1)}
    for op in reversed(order):
        upper = found.get(op.results[0])
        if upper is None:
            continue
        for operand, part in zip(op.operands, _rule_of(op)(op.opview, upper), strict=True):
            if part is not None:
                found[operand] = found[operand] + part if operand in found else RelaxValue(part, EMITTER)
    return [found[x] if x in found else filled(type_of(x), 0) for x in xs]


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


class GradientEmitter:
    """What emits the operations of gradients: no node."""

    def emit(self, operator: str, *operands: ir.Value, **attributes: object) -> RelaxValue:
        return RelaxValue(relax_op(operator).make(*operands, **attributes), self)

    def constant(self, array: npt.ArrayLike, like: TensorType) -> RelaxValue:
        """Return a number as a constant of rank 0."""
        kind = TensorType((), like.dtype)
        value = dense_attribute(np.asarray(array).astype(kind.dtype.to_numpy()), kind)
        return RelaxValue(relax_op("constant").make(value=value, result_types=[kind]), self)


EMITTER = GradientEmitter()
emit = EMITTER.emit


def filled(kind: TensorType, number: float) -> RelaxValue:
    return emit("full", shape=kind.shape, value=number, dtype=kind.dtype)


def constant_like(value: ir.Value, number: float) -> RelaxValue:
    return EMITTER.constant(number, type_of(value))


def summed_to(gradient: ir.Value, value: ir.Value) -> ir.Value:
    """Reduce the gradient of a broadcast result to the shape of the operand."""
    made, wanted = type_of(gradient), type_of(value)
    if made.shape == wanted.shape:
        return gradient
    extra = made.rank - wanted.rank
    axes = [i for i in range(made.rank) if i < extra or (wanted.shape[i - extra] == 1 and made.shape[i] != 1)]
    return emit("reshape", emit("reduce_sum", gradient, axes=axes), shape=wanted.shape)


def _unary(name: str, slope: Callable[[RelaxValue, RelaxValue], RelaxValue]) -> None:
    """Register a unary function with this derivative, a function of operand and result."""

    @rule(name)
    def multiplied(op: ir.OpView, g: RelaxValue) -> Sequence[ir.Value | None]:
        return [g * slope(*(RelaxValue(value[0], EMITTER) for value in (op.operation.operands, op.operation.results)))]


_unary("exp", lambda x, y: y)
_unary("log", lambda x, y: emit("reciprocal", x))
_unary("sqrt", lambda x, y: 0.5 / y)
_unary("tanh", lambda x, y: 1 - emit("square", y))
_unary("sigmoid", lambda x, y: y * (1 - y))
_unary("sin", lambda x, y: emit("cos", x))
_unary("cos", lambda x, y: -emit("sin", x))
_unary("square", lambda x, y: x * 2)
_unary("abs", lambda x, y: emit("sign", x))
_unary("reciprocal", lambda x, y: -emit("square", y))
_unary("negative", lambda x, y: constant_like(x, -1))
_unary("relu", lambda x, y: emit("cast", x > 0, dtype=type_of(x).dtype))
_unary("softplus", lambda x, y: emit("sigmoid", x))
_unary("erf", lambda x, y: emit("exp", -emit("square", x)) * (2 / np.sqrt(np.pi)))


@rule("add")
def _add(op: ir.OpView, g: RelaxValue) -> Sequence[ir.Value | None]:
    return [summed_to(g, op.lhs), summed_to(g, op.rhs)]


@rule("subtract")
def _subtract(op: ir.OpView, g: RelaxValue) -> Sequence[ir.Value | None]:
    return [summed_to(g, op.lhs), summed_to(-g, op.rhs)]


@rule("multiply")
def _multiply(op: ir.OpView, g: RelaxValue) -> Sequence[ir.Value | None]:
    return [summed_to(g * op.rhs, op.lhs), summed_to(g * op.lhs, op.rhs)]


@rule("divide")
def _divide(op: ir.OpView, g: RelaxValue) -> Sequence[ir.Value | None]:
    upper = g / op.rhs
    return [summed_to(upper, op.lhs), summed_to(-(upper * emit("divide", op.lhs, op.rhs)), op.rhs)]


@rule("power")
def _power(op: ir.OpView, g: RelaxValue) -> Sequence[ir.Value | None]:
    x, y, result = (RelaxValue(value, EMITTER) for value in (op.lhs, op.rhs, op.operation.results[0]))
    base = y * emit("power", x, y - 1)
    exponent = result * emit("log", emit("where", x > 0, x, constant_like(x, 1)))
    return [summed_to(g * base, x), summed_to(g * exponent, y)]


@rule("maximum", "minimum")
def _extreme(op: ir.OpView, g: RelaxValue) -> Sequence[ir.Value | None]:
    """Pass the gradient to the selected operand; to the first of equal ones."""
    first = "greater_equal" if op.operation.name == "relax.maximum" else "less_equal"
    is_first, zero = emit(first, op.lhs, op.rhs), constant_like(g, 0)
    return [summed_to(emit("where", is_first, g, zero), op.lhs), summed_to(emit("where", is_first, zero, g), op.rhs)]


@rule("where")
def _where(op: ir.OpView, g: RelaxValue) -> Sequence[ir.Value | None]:
    zero = constant_like(g, 0)
    return [
        None,
        summed_to(emit("where", op.condition, g, zero), op.x),
        summed_to(emit("where", op.condition, zero, g), op.y),
    ]


@rule("cast")
def _cast(op: ir.OpView, g: RelaxValue) -> Sequence[ir.Value | None]:
    kind = type_of(op.x).dtype
    return [emit("cast", g, dtype=kind) if kind.is_float else None]


@rule("reshape", "squeeze", "expand_dims")
def _reshape(op: ir.OpView, g: RelaxValue) -> Sequence[ir.Value | None]:
    return [emit("reshape", g, shape=type_of(op.x).shape)]


@rule("expand")
def _expand(op: ir.OpView, g: RelaxValue) -> Sequence[ir.Value | None]:
    return [summed_to(g, op.x)]


@rule("permute")
def _permute(op: ir.OpView, g: RelaxValue) -> Sequence[ir.Value | None]:
    rank = len(op.axes)
    return [emit("permute", g, axes=[[axis % rank for axis in op.axes].index(i) for i in range(rank)])]


@rule("concat")
def _concat(op: ir.OpView, g: RelaxValue) -> Sequence[ir.Value | None]:
    sizes = [type_of(x).shape[op.axis] for x in op.xs]
    parts = relax_op("split").make(g, axis=op.axis, sizes=sizes) if len(sizes) > 1 else (g,)
    return list(parts)


@rule("reduce_sum", "reduce_mean")
def _reduce(op: ir.OpView, g: RelaxValue) -> Sequence[ir.Value | None]:
    x = type_of(op.x)
    axes = [axis % x.rank for axis in op.axes] if op.axes is not None else list(range(x.rank))
    kept = tuple(1 if i in axes else dim for i, dim in enumerate(x.shape))
    spread = emit("expand", emit("reshape", g, shape=kept), shape=x.shape)
    if op.operation.name == "relax.reduce_sum":
        return [spread]
    if not x.is_static:
        raise NodeError(f"the gradient of a mean needs known sizes, got {x}")
    count = prod(x.static_shape) // max(prod(type_of(g).static_shape), 1)
    return [spread * (1 / max(count, 1))]


@rule("softmax")
def _softmax(op: ir.OpView, g: RelaxValue) -> Sequence[ir.Value | None]:
    y = op.operation.results[0]
    return [(g - emit("reduce_sum", g * y, axes=[op.axis], keepdims=True)) * y]


@rule("log_softmax")
def _log_softmax(op: ir.OpView, g: RelaxValue) -> Sequence[ir.Value | None]:
    total = emit("reduce_sum", g, axes=[op.axis], keepdims=True)
    return [g - emit("exp", op.operation.results[0]) * total]


@rule("matmul")
def _matmul(op: ir.OpView, g: RelaxValue) -> Sequence[ir.Value | None]:
    lhs, rhs = type_of(op.lhs), type_of(op.rhs)
    if lhs.rank < 2 or rhs.rank < 2:
        raise NodeError(f"the gradient of a product with a vector is not supported: {lhs} and {rhs}; reshape it")
    across_rhs, across_lhs = not op.transpose_rhs, not op.transpose_lhs
    if op.transpose_lhs:
        left = emit("matmul", op.rhs, g, transpose_lhs=op.transpose_rhs, transpose_rhs=True)
    else:
        left = emit("matmul", g, op.rhs, transpose_rhs=across_rhs)
    if op.transpose_rhs:
        right = emit("matmul", g, op.lhs, transpose_lhs=True, transpose_rhs=op.transpose_lhs)
    else:
        right = emit("matmul", op.lhs, g, transpose_lhs=across_lhs)
    return [summed_to(left, op.lhs), summed_to(right, op.rhs)]


@rule("conv")
def _conv(op: ir.OpView, g: RelaxValue) -> Sequence[ir.Value | None]:
    """Differentiate with respect to data and weight.

    The first is a transposed convolution, the second a convolution with strides and dilations exchanged.
    """
    x, weight = type_of(op.x), type_of(op.weight)
    if op.data_layout != "NC*" or op.groups != 1 or not x.is_static:
        raise NodeError("the gradient of a convolution is supported with one group, channels first, and known sizes")
    count = x.rank - 2
    strides, dilations = op.strides or (1,) * count, op.dilations or (1,) * count
    pads = op.padding or (0,) * (2 * count)
    sizes, window, out = x.static_shape[2:], weight.static_shape[2:], type_of(g).static_shape[2:]
    spans = [(out[i] - 1) * strides[i] + (window[i] - 1) * dilations[i] + 1 for i in range(count)]
    rest = [sizes[i] + pads[i] + pads[count + i] - spans[i] for i in range(count)]
    given = {"strides": strides, "padding": pads, "dilations": dilations, "output_padding": rest}
    data = emit("conv_transpose", g, op.weight, **given)
    swapped = [1, 0, *range(2, x.rank)]
    ends = [pads[count + i] - rest[i] for i in range(count)]
    if min(ends) < 0:  # incomplete windows: their pixels do not contribute
        trimmed = [0] * (2 * x.rank)
        trimmed[x.rank + 2 :] = [min(end, 0) for end in ends]
        x_used = emit("pad", op.x, pads=trimmed)
        ends = [max(end, 0) for end in ends]
    else:
        x_used = op.x
    transposed = emit("permute", x_used, axes=swapped), emit("permute", g, axes=swapped)
    whole = emit("conv", *transposed, strides=dilations, dilations=strides, padding=[*pads[:count], *ends])
    parts = [data, emit("permute", whole, axes=swapped)]
    if op.bias is not None:
        parts.append(emit("reduce_sum", g, axes=[0, *range(2, x.rank)]))
    return parts
