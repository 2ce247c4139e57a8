"""Pooling and reductions, in the layout of their operand."""

from __future__ import annotations

from mirlo_onednn.native import api
from mirlo_onednn.native.builder import PrimitiveBuilder, attributes, chosen, primitive_desc
from mirlo_onednn.native.desc import Desc, any_layout
from mirlo_onednn.native.makers.post_ops import is_slow
from mirlo_onednn.native.storage import PrimitiveValue
from mirlo_onednn.plan import PrimitiveNode

WINDOW = ("strides", "kernel", "dilations", "padding_begin", "padding_end")


def pooling(builder: PrimitiveBuilder, node: PrimitiveNode) -> PrimitiveValue:
    """Add a pooling of `x` [N, C, ...], with attributes `algorithm` and the window."""
    x = builder.dense(builder.values[node.operands["x"]])
    window = {name: node.attributes[name] for name in WINDOW}
    images, results = x.desc.shape[2:], builder.tensor(node.result).shape[2:]
    # Where sizes are rounded up, the last window may reach beyond the padding: the library wants to know how far.
    ends = [
        (result - 1) * stride + (size - 1) * (gap + 1) + 1 - image - begin
        for result, stride, size, gap, image, begin in zip(
            results, window["strides"], window["kernel"], window["dilations"], images, window["padding_begin"],
            strict=True,
        )
    ]  # fmt: skip
    window["padding_end"] = tuple(max(*pair) for pair in zip(ends, window["padding_end"], strict=True))
    return _pooled(builder, node, x, node.attributes["algorithm"], window)


def global_average(builder: PrimitiveBuilder, node: PrimitiveNode) -> PrimitiveValue:
    """Add the mean of each image of `x` [N, C, ...]."""
    x = builder.dense(builder.values[node.operands["x"]])
    image = x.desc.shape[2:]
    none = (0,) * len(image)
    window = dict(zip(WINDOW, ((1,) * len(image), image, none, none, none), strict=True))
    return _pooled(builder, node, x, "avg_include_padding", window)


def _pooled(
    builder: PrimitiveBuilder,
    node: PrimitiveNode,
    x: PrimitiveValue,
    algorithm: str,
    window: dict[str, tuple[int, ...]],
) -> PrimitiveValue:
    tensor = builder.tensor(node.result)
    target = any_layout(tensor.shape, tensor.dtype)
    attr = attributes()
    descriptor = primitive_desc(
        "pooling_forward", api.engine(), api.FORWARD_INFERENCE, api.POOLING[algorithm], x.desc.pointer, target.pointer,
        *(api.dims(window[name]) for name in WINDOW), attr.pointer,
    )  # fmt: skip
    result = builder.result(node.result, chosen(descriptor, api.QUERY_DST, target))
    builder.emit(descriptor, {api.SRC: x, api.DST: result})
    return result


def reduction(builder: PrimitiveBuilder, node: PrimitiveNode) -> PrimitiveValue:
    """Add a reduction of `x` over the dims that are 1 in the result; attribute `algorithm`."""
    x = builder.dense(builder.values[node.operands["x"]])
    tensor = builder.tensor(node.result)
    if x.desc.shape == tensor.shape:
        return x  # the sum, or the mean, of one element

    def describe(x: PrimitiveValue, target: Desc) -> api.Owned:
        attr = attributes()
        algorithm = api.REDUCTION[node.attributes["algorithm"]]
        return primitive_desc(
            "reduction", api.engine(), algorithm, x.desc.pointer, target.pointer, 0.0, 0.0, attr.pointer
        )

    target = any_layout(tensor.shape, tensor.dtype)
    descriptor = describe(x, target)
    if is_slow(descriptor):
        x = builder.in_row_major(x)
        descriptor = describe(x, target)
    result = builder.result(node.result, chosen(descriptor, api.QUERY_DST, target))
    builder.emit(descriptor, {api.SRC: x, api.DST: result})
    return result


MAKERS = {"pooling": pooling, "global_average": global_average, "reduction": reduction}
