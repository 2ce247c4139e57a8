"""Pooling and reductions, in the layout in which their operand lies."""

from __future__ import annotations

from mirlo.targets.onednn.native import api
from mirlo.targets.onednn.native.builder import Builder, attributes, chosen, primitive_desc
from mirlo.targets.onednn.native.desc import Desc, anyhow
from mirlo.targets.onednn.native.makers.post_ops import is_slow
from mirlo.targets.onednn.native.storage import Value
from mirlo.targets.onednn.plan import Node


def pooling(builder: Builder, node: Node) -> Value:
    """`x` [N, C, ...], with attributes `algorithm` and the window."""
    x = builder.dense(builder.values[node.operands["x"]])
    tensor = builder.tensor(node.result)
    target = anyhow(tensor.shape, tensor.dtype)
    names = ("strides", "kernel", "dilations", "padding_begin", "padding_end")
    window = [api.dims(node.attributes[name]) for name in names]
    attr = attributes()
    descriptor = primitive_desc(
        "pooling_forward", api.engine(), api.FORWARD_INFERENCE, api.POOLING[node.attributes["algorithm"]],
        x.desc.pointer, target.pointer, *window, attr.pointer,
    )  # fmt: skip
    result = builder.result(node.result, chosen(descriptor, api.QUERY_DST, target))
    builder.emit(descriptor, {api.SRC: x, api.DST: result})
    return result


def reduction(builder: Builder, node: Node) -> Value:
    """`x`; the dims of the result that are 1 are reduced; attribute `algorithm`."""
    x = builder.dense(builder.values[node.operands["x"]])
    tensor = builder.tensor(node.result)

    def describe(x: Value, target: Desc) -> api.Owned:
        attr = attributes()
        algorithm = api.REDUCTION[node.attributes["algorithm"]]
        return primitive_desc(
            "reduction", api.engine(), algorithm, x.desc.pointer, target.pointer, 0.0, 0.0, attr.pointer
        )

    target = anyhow(tensor.shape, tensor.dtype)
    descriptor = describe(x, target)
    if is_slow(descriptor):
        x = builder.plainly(x)
        descriptor = describe(x, target)
    result = builder.result(node.result, chosen(descriptor, api.QUERY_DST, target))
    builder.emit(descriptor, {api.SRC: x, api.DST: result})
    return result


MAKERS = {"pooling": pooling, "reduction": reduction}
