"""Convolutions: the library chooses all layouts; a residual is added in place if nothing else reads it later."""

from __future__ import annotations

from mirlo_onednn.native import api
from mirlo_onednn.native.builder import PrimitiveBuilder, chosen, primitive_desc
from mirlo_onednn.native.desc import Desc, any_layout
from mirlo_onednn.native.makers.post_ops import Operand, PostOps, emit_post_ops, fused, residual_layout
from mirlo_onednn.native.storage import PrimitiveValue
from mirlo_onednn.plan import PrimitiveNode

ALGORITHMS = {"convolution": api.CONVOLUTION_DIRECT, "deconvolution": api.DECONVOLUTION_DIRECT}


def convolution(builder: PrimitiveBuilder, node: PrimitiveNode) -> PrimitiveValue:
    """Add a convolution, or deconvolution, of `x` [N, C, ...] by `weight` [G, O, I, ...], with `bias` [O]."""
    x, weight = builder.values[node.operands["x"]], builder.values[node.operands["weight"]]
    bias = builder.values[node.operands["bias"]] if "bias" in node.operands else None
    shape, dtype = builder.tensor(node.result).shape, builder.tensor(node.result).dtype
    window = [api.dims(node.attributes[name]) for name in ("strides", "dilations", "padding_begin", "padding_end")]
    post_ops = PostOps(builder, node.post_ops, shape)

    any_x, any_weight = any_layout(x.desc.shape, x.desc.dtype), any_layout(weight.desc.shape, weight.desc.dtype)

    def describe(attr: api.Owned, target: Desc | None = None) -> api.Owned:
        target = target or residual_layout(post_ops, any_layout(shape, dtype))
        return primitive_desc(
            f"{node.op}_forward", api.engine(), api.FORWARD_INFERENCE, ALGORITHMS[node.op],
            any_x.pointer, any_weight.pointer,
            bias.desc.pointer if bias is not None else None, target.pointer, *window, attr.pointer,
        )  # fmt: skip

    descriptor, taken, left = fused(builder, post_ops, describe)
    if left and post_ops.residual is not None:
        # The layout of the residual does not suit: the library's own choice may.
        descriptor, taken, left = fused(builder, post_ops, lambda attr: describe(attr, any_layout(shape, dtype)))
    target = chosen(descriptor, api.QUERY_DST, any_layout(shape, dtype))
    accumulate = _accumulated(builder, taken, x, target)
    if accumulate is not None:
        descriptor = describe(taken.attributes(accumulate), target)
    arguments = {
        api.SRC: builder.in_layout(x, chosen(descriptor, api.QUERY_SRC, x.desc)),
        api.WEIGHTS: builder.in_layout(weight, chosen(descriptor, api.QUERY_WEIGHTS, weight.desc)),
        **taken.arguments(builder, descriptor, accumulate),
    }
    if bias is not None:
        arguments[api.BIAS] = bias
    over = accumulate.value.view_as(target) if accumulate is not None else None
    result = over or builder.result(node.result, target)
    builder.emit(descriptor, {**arguments, api.DST: result})
    return emit_post_ops(builder, result, left)


def _accumulated(builder: PrimitiveBuilder, post_ops: PostOps, x: PrimitiveValue, target: Desc) -> Operand | None:
    """Return the residual if the result may overwrite it."""
    residual = post_ops.residual
    if residual is None or not builder.is_last_use(residual.name):
        return None
    storage = residual.value.storage
    fits = storage.kind == "arena" and residual.value.is_whole and residual.value.desc == target
    return residual if fits and storage is not x.storage else None


MAKERS = {"convolution": convolution, "deconvolution": convolution}
