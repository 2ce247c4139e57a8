"""Matrix products: weights in the library's packed layout, other operands in their own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from mirlo_onednn.native import api
from mirlo_onednn.native.builder import PrimitiveBuilder, chosen, primitive_desc
from mirlo_onednn.native.desc import Desc, any_layout, row_major
from mirlo_onednn.native.makers.post_ops import PostOps, emit_post_ops, fused, is_slow
from mirlo_onednn.native.storage import PrimitiveValue
from mirlo_onednn.plan import PostOp, PrimitiveNode


@dataclass(frozen=True)
class _Choice:
    """A primitive descriptor, and the layouts of its operands."""

    descriptor: api.Owned
    x: PrimitiveValue
    weight: PrimitiveValue
    target: Desc
    taken: PostOps
    left: tuple[PostOp, ...]

    @property
    def good(self) -> bool:
        return not self.left and not is_slow(self.descriptor)


def matmul(builder: PrimitiveBuilder, node: PrimitiveNode) -> PrimitiveValue:
    """Add `x` [..., M, K] times `weight` [..., K, N], plus `bias` [N]."""
    x, weight = builder.values[node.operands["x"]], builder.values[node.operands["weight"]]
    final = builder.tensor(node.result)
    # A product with one matrix is one product, whatever the leading dims of the other one.
    flat = len(weight.desc.shape) == 2 and len(final.shape) > 2 and _can_flatten(builder, node)
    shape = (math.prod(final.shape[:-1]), final.shape[-1]) if flat else final.shape
    if flat:
        x = builder.reshaped(x, (shape[0], x.desc.shape[-1]))
    adapt = _flattened(builder, final.shape, shape) if flat else lambda value: value
    x, weight = _ranked(builder, x, len(shape)), _ranked(builder, weight, len(shape))
    bias = None
    if "bias" in node.operands:
        bias = builder.values[node.operands["bias"]]
        bias = builder.reshaped(bias, (1,) * (len(shape) - 1) + (shape[-1],))
    choice = _best(builder, node, PostOps(builder, node.post_ops, shape, adapt), x, weight, bias, shape)
    weight = builder.in_layout(choice.weight, chosen(choice.descriptor, api.QUERY_WEIGHTS, choice.weight.desc))
    arguments = {api.SRC: choice.x, api.WEIGHTS: weight, **choice.taken.arguments(builder, choice.descriptor)}
    if bias is not None:
        arguments[api.BIAS] = bias
    whole = choice.target.reshaped(final.shape)
    assert whole is not None, "the layout of a flat result is that of the whole one"
    result = builder.result(node.result, whole)
    target = result.view_as(choice.target)
    builder.emit(choice.descriptor, {**arguments, api.DST: target})
    emit_post_ops(builder, target, choice.left, adapt)
    return result


def _best(
    builder: PrimitiveBuilder,
    node: PrimitiveNode,
    post_ops: PostOps,
    x: PrimitiveValue,
    weight: PrimitiveValue,
    bias: PrimitiveValue | None,
    shape: tuple[int, ...],
) -> _Choice:
    """Return the first primitive with a good implementation.

    Operands are tried in their layout and the result in the one that its reader prefers, then row-major.
    """
    dtype = builder.tensor(node.result).dtype
    rows = row_major(shape, dtype)
    wanted = builder.preferred(node.result).reshaped(shape)
    first: _Choice | None = None
    attempts: list[tuple[Callable[[PrimitiveValue], PrimitiveValue], Desc]] = [
        (_in_own_layout, rows),
        (builder.in_row_major, rows),
    ]
    if wanted is not None and wanted != rows:
        attempts.insert(0, (_in_own_layout, wanted))
    refused: api.Refused | None = None
    for layout, target in attempts:
        try:
            choice = _try(builder, post_ops, layout(x), layout(weight), bias, target)
        except api.Refused as problem:
            refused = problem
            continue
        if choice.good:
            return choice
        first = first or choice
    if first is None:
        assert refused is not None
        raise refused
    return first


def _try(
    builder: PrimitiveBuilder,
    post_ops: PostOps,
    x: PrimitiveValue,
    weight: PrimitiveValue,
    bias: PrimitiveValue | None,
    target: Desc,
) -> _Choice:
    packed = weight.storage.kind == "constant"
    weight_desc = any_layout(weight.desc.shape, weight.desc.dtype) if packed else weight.desc

    def describe(attr: api.Owned) -> api.Owned:
        return primitive_desc(
            "matmul", api.engine(), x.desc.pointer, weight_desc.pointer,
            bias.desc.pointer if bias is not None else None, target.pointer, attr.pointer,
        )  # fmt: skip

    descriptor, taken, left = fused(builder, post_ops, describe)
    return _Choice(descriptor, x, weight, target, taken, left)


def _in_own_layout(value: PrimitiveValue) -> PrimitiveValue:
    return value


def _ranked(builder: PrimitiveBuilder, value: PrimitiveValue, rank: int) -> PrimitiveValue:
    shape = value.desc.shape
    return builder.reshaped(value, (1,) * (rank - len(shape)) + shape) if len(shape) < rank else value


def _can_flatten(builder: PrimitiveBuilder, node: PrimitiveNode) -> bool:
    final = builder.tensor(node.result).shape
    operands = [builder.tensor(post.operand).shape for post in node.post_ops if post.operand]
    return all(_flat_shape(shape, final) is not None for shape in operands)


def _flat_shape(shape: tuple[int, ...], final: tuple[int, ...]) -> tuple[int, int] | None:
    """Return the shape of an operand that broadcasts to `final` when all dims of that but the last are one."""
    shape = (1,) * (len(final) - len(shape)) + shape
    if all(dim == 1 for dim in shape[:-1]):
        return 1, shape[-1]
    return (math.prod(final[:-1]), shape[-1]) if shape[:-1] == final[:-1] else None


def _flattened(
    builder: PrimitiveBuilder, final: tuple[int, ...], shape: tuple[int, ...]
) -> Callable[[PrimitiveValue], PrimitiveValue]:
    def adapt(value: PrimitiveValue) -> PrimitiveValue:
        flat = _flat_shape(value.desc.shape, final)
        assert flat is not None
        return builder.reshaped(value, flat)

    return adapt


MAKERS = {"matmul": matmul}
