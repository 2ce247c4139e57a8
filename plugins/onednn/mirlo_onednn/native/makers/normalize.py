"""Normalizations and the softmax family."""

from __future__ import annotations

import math

from mirlo_onednn.native import api
from mirlo_onednn.native.builder import PrimitiveBuilder, attributes, primitive_desc
from mirlo_onednn.native.desc import row_major
from mirlo_onednn.native.makers.post_ops import broadcastable, is_slow
from mirlo_onednn.native.makers.steps import binary_step
from mirlo_onednn.native.storage import PrimitiveValue
from mirlo_onednn.plan import PrimitiveNode


def softmax(builder: PrimitiveBuilder, node: PrimitiveNode) -> PrimitiveValue:
    """Add a softmax of `x` along attribute `axis`; attribute `algorithm`."""
    x, axis = builder.dense(builder.values[node.operands["x"]]), node.attributes["axis"]
    algorithm = api.SOFTMAX[node.attributes["algorithm"]]
    descriptor = _softmax(x, axis, algorithm)
    if not is_slow(descriptor):
        over = x if builder.is_last_use(node.operands["x"]) else None
        result = builder.result(node.result, x.desc, over)
        builder.emit(descriptor, {api.SRC: x, api.DST: result})
        return result
    # The library is fast along the innermost axis: the others are moved outside of it.
    rank = len(x.desc.shape)
    inner = (*(i for i in range(rank) if i != axis), axis)
    moved = builder.in_row_major(builder.permuted(x, inner))
    scratch = builder.scratch(moved.desc)
    builder.emit(_softmax(moved, rank - 1, algorithm), {api.SRC: moved, api.DST: scratch})
    return builder.permuted(scratch, [inner.index(i) for i in range(rank)])


def _softmax(x: PrimitiveValue, axis: int, algorithm: int) -> api.Owned:
    attr = attributes()
    return primitive_desc(
        "softmax_forward", api.engine(), api.FORWARD_INFERENCE, algorithm, x.desc.pointer, x.desc.pointer, axis,
        attr.pointer,
    )  # fmt: skip


def layer_norm(builder: PrimitiveBuilder, node: PrimitiveNode) -> PrimitiveValue:
    """Add a normalization of `x` with `scale` and `bias`, over the axes from attribute `axis` on."""
    shape, axis = builder.tensor(node.result).shape, node.attributes["axis"]
    size = math.prod(shape[axis:])
    flat = (math.prod(shape[:axis]), size)
    x = builder.in_row_major(builder.reshaped(builder.in_row_major(builder.values[node.operands["x"]]), flat))
    arguments, flags = {api.SRC: x}, 0
    for name, role, flag in (("scale", api.SCALE, api.NORM_SCALE), ("bias", api.SHIFT, api.NORM_SHIFT)):
        if name in node.operands:
            arguments[role] = builder.reshaped(builder.values[node.operands[name]], (size,))
            flags |= flag
    attr = attributes()
    descriptor = primitive_desc(
        "layer_normalization_forward", api.engine(), api.FORWARD_INFERENCE, x.desc.pointer, x.desc.pointer, None,
        node.attributes["epsilon"], flags, attr.pointer,
    )  # fmt: skip
    over = x if builder.is_last_use(node.operands["x"]) else None
    whole = builder.result(node.result, row_major(shape, x.desc.dtype), over)
    builder.emit(descriptor, {**arguments, api.DST: whole.view_as(x.desc)})
    return whole


def batch_norm(builder: PrimitiveBuilder, node: PrimitiveNode) -> PrimitiveValue:
    """Add a batch normalization of `x` [N, C, ...], with `scale`, `bias`, `mean` and `variance`."""
    x = builder.dense(builder.values[node.operands["x"]])
    roles = {"mean": api.MEAN, "variance": api.VARIANCE, "scale": api.SCALE, "bias": api.SHIFT}
    arguments = {role: builder.values[node.operands[name]] for name, role in roles.items()}
    flags = api.NORM_GLOBAL_STATS | api.NORM_SCALE | api.NORM_SHIFT
    descriptor = _batch_norm(x, node.attributes["epsilon"], flags)
    if is_slow(descriptor):
        x = builder.in_row_major(x)
        descriptor = _batch_norm(x, node.attributes["epsilon"], flags)
    over = x if builder.is_last_use(node.operands["x"]) else None
    result = builder.result(node.result, x.desc, over)
    builder.emit(descriptor, {api.SRC: x, **arguments, api.DST: result})
    return result


def group_norm(builder: PrimitiveBuilder, node: PrimitiveNode) -> PrimitiveValue:
    """Add a group normalization of `x` [N, C, ...], attribute `groups`, `scale` and `bias` [C].

    A batch normalization whose channels are the groups of all batch elements, and which takes its own statistics.
    """
    tensor = builder.tensor(node.result)
    shape = tensor.shape
    groups = shape[0] * node.attributes["groups"]
    flat = (1, groups, math.prod(shape) // groups)
    x = builder.reshaped(builder.in_row_major(builder.values[node.operands["x"]]), flat)
    descriptor = _batch_norm(x, node.attributes["epsilon"], 0)
    whole = builder.result(node.result, row_major(shape, tensor.dtype))
    builder.emit(descriptor, {api.SRC: x, api.DST: whole.view_as(x.desc)})
    channels = (1, shape[1], *(1,) * (len(shape) - 2))
    for name, algorithm in (("scale", "mul"), ("bias", "add")):
        factor = builder.reshaped(builder.values[node.operands[name]], channels)
        binary_step(builder, algorithm, whole, broadcastable(builder, factor, shape), whole)
    return whole


def _batch_norm(x: PrimitiveValue, epsilon: float, flags: int) -> api.Owned:
    attr = attributes()
    return primitive_desc(
        "batch_normalization_forward", api.engine(), api.FORWARD_INFERENCE, x.desc.pointer, x.desc.pointer, epsilon,
        flags, attr.pointer,
    )  # fmt: skip


def lrn(builder: PrimitiveBuilder, node: PrimitiveNode) -> PrimitiveValue:
    """Add an LRN of `x` [N, C, ...] across channels; attributes `size`, `alpha`, `beta`, `bias`."""
    x = builder.dense(builder.values[node.operands["x"]])
    descriptor = _lrn(x, node)
    if is_slow(descriptor):
        x = builder.in_row_major(x)
        descriptor = _lrn(x, node)
    result = builder.result(node.result, x.desc)
    builder.emit(descriptor, {api.SRC: x, api.DST: result})
    return result


def _lrn(x: PrimitiveValue, node: PrimitiveNode) -> api.Owned:
    attr = attributes()
    return primitive_desc(
        "lrn_forward", api.engine(), api.FORWARD_INFERENCE, api.LRN_ACROSS_CHANNELS, x.desc.pointer, x.desc.pointer,
        *(node.attributes[name] for name in ("size", "alpha", "beta", "bias")), attr.pointer,
    )  # fmt: skip


MAKERS = {
    "softmax": softmax,
    "layer_norm": layer_norm,
    "batch_norm": batch_norm,
    "group_norm": group_norm,
    "lrn": lrn,
}
