"""Views, which copy nothing, and concatenation."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo_onednn.native import api
from mirlo_onednn.native.builder import PrimitiveBuilder, attributes, chosen, primitive_desc
from mirlo_onednn.native.desc import Desc, any_layout
from mirlo_onednn.native.makers.post_ops import is_slow
from mirlo_onednn.native.storage import PrimitiveValue
from mirlo_onednn.plan import PrimitiveNode


def reshape(builder: PrimitiveBuilder, node: PrimitiveNode) -> PrimitiveValue:
    """Add a view of `x` under the shape of the result."""
    return builder.reshaped(builder.values[node.operands["x"]], builder.tensor(node.result).shape)


def permute(builder: PrimitiveBuilder, node: PrimitiveNode) -> PrimitiveValue:
    """Add `x` with its axes in the order of attribute `axes`."""
    return builder.permuted(builder.values[node.operands["x"]], node.attributes["axes"])


def slice_(builder: PrimitiveBuilder, node: PrimitiveNode) -> PrimitiveValue:
    """Add a slice of `x` by the attributes `begin` and `steps`, one integer per axis."""
    x = builder.values[node.operands["x"]]
    shape = builder.tensor(node.result).shape
    return builder.sliced(x, node.attributes["begin"], node.attributes["steps"], shape)


def concat(builder: PrimitiveBuilder, node: PrimitiveNode) -> PrimitiveValue:
    """Add the concatenation of `x0`, `x1`... along attribute `axis`."""
    values = [builder.dense(builder.values[node.operands[f"x{index}"]]) for index in range(len(node.operands))]
    tensor = builder.tensor(node.result)
    target = any_layout(tensor.shape, tensor.dtype)
    axis = node.attributes["axis"]
    descriptor = _concatenated(values, target, axis)
    if is_slow(descriptor):
        values = [builder.in_row_major(value) for value in values]
        descriptor = _concatenated(values, target, axis)
    arguments = {api.MULTIPLE_SRC + index: value for index, value in enumerate(values)}
    result = builder.result(node.result, chosen(descriptor, api.QUERY_DST, target))
    builder.emit(descriptor, {**arguments, api.DST: result})
    return result


def _concatenated(values: Sequence[PrimitiveValue], target: Desc, axis: int) -> api.Owned:
    descs = (api.c_void_p * len(values))(*(value.desc.pointer for value in values))
    attr = attributes()
    return primitive_desc("concat", api.engine(), target.pointer, len(values), axis, descs, attr.pointer)


MAKERS = {"reshape": reshape, "permute": permute, "slice": slice_, "concat": concat}
