"""Separate elementwise operations: in the layout of their operand, and in place if it is not read later."""

from __future__ import annotations

import math

from mirlo_onednn.native import api
from mirlo_onednn.native.builder import PrimitiveBuilder, attributes, primitive_desc
from mirlo_onednn.native.makers.post_ops import PostOps, broadcastable, emit_post_ops, fused, is_slow
from mirlo_onednn.native.makers.steps import describe_binary, eltwise_step
from mirlo_onednn.native.storage import PrimitiveValue
from mirlo_onednn.plan import PostOp, PrimitiveNode


def eltwise(builder: PrimitiveBuilder, node: PrimitiveNode) -> PrimitiveValue:
    """Add a function of `x`, with attributes `algorithm`, `alpha`, `beta`."""
    x = builder.dense(builder.values[node.operands["x"]])
    over = x if builder.is_last_use(node.operands["x"]) else None
    algorithm, alpha, beta = (node.attributes[name] for name in ("algorithm", "alpha", "beta"))
    step = eltwise_step(builder, x, algorithm, alpha, beta, builder.result(node.result, x.desc, over))
    return emit_post_ops(builder, step, node.post_ops)


def binary(builder: PrimitiveBuilder, node: PrimitiveNode) -> PrimitiveValue:
    """Add a function of `x` and `y`, which broadcasts to it, with attribute `algorithm`."""
    x = builder.dense(builder.values[node.operands["x"]])
    y = broadcastable(builder, builder.values[node.operands["y"]], x.desc.shape)
    if y.desc.shape == x.desc.shape:
        # Constants follow; of two computed operands that differ, the one that is row-major does.
        if x.storage.kind == "constant":
            x = builder.in_layout(x, y.desc)
        y = builder.in_layout(y, x.desc)
    over = x if builder.is_last_use(node.operands["x"]) else None
    result = builder.result(node.result, x.desc, over)
    later: tuple[PostOp, ...] = ()
    post_ops = PostOps(builder, node.post_ops, x.desc.shape)
    if not _can_follow(post_ops, x.desc.shape):
        post_ops, later = PostOps(builder, (), x.desc.shape), node.post_ops

    def describe(attr: api.Owned) -> api.Owned:
        return describe_binary(node.attributes["algorithm"], x, y, attr)

    descriptor, taken, left = fused(builder, post_ops, describe)
    if is_slow(descriptor):
        # Broadcasts along some axes, and orders of axes that are not usual, are fast in row-major layout only.
        straight = builder.in_row_major(x)
        if straight is not x:
            x, y, result = straight, builder.in_row_major(y), builder.result(node.result, straight.desc)
            descriptor, taken, left = fused(builder, post_ops, describe)
    arguments = taken.arguments(builder, descriptor)
    builder.emit(descriptor, {api.SRC: x, api.SRC_1: y, **arguments, api.DST: result})
    return emit_post_ops(builder, result, left or later)


def _can_follow(post_ops: PostOps, shape: tuple[int, ...]) -> bool:
    """Return whether the library applies these post-ops correctly to a result of this shape.

    For images of one pixel, oneDNN 3.2 applies numbers per channel in the wrong order.
    """
    one_pixel = len(shape) > 2 and math.prod(shape[2:]) == 1
    return not one_pixel or all(operand.whole for operand in post_ops.operands)


def prelu(builder: PrimitiveBuilder, node: PrimitiveNode) -> PrimitiveValue:
    """Add PRelu of `x` and `slope`, which broadcasts to it."""
    x = builder.dense(builder.values[node.operands["x"]])
    slope = broadcastable(builder, builder.values[node.operands["slope"]], x.desc.shape)
    result = builder.result(node.result, x.desc)
    attr = attributes()
    descriptor = primitive_desc(
        "prelu_forward", api.engine(), api.FORWARD_INFERENCE, x.desc.pointer, slope.desc.pointer, result.desc.pointer,
        attr.pointer,
    )  # fmt: skip
    builder.emit(descriptor, {api.SRC: x, api.WEIGHTS: slope, api.DST: result})
    return result


MAKERS = {"eltwise": eltwise, "binary": binary, "prelu": prelu}
