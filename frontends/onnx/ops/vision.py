"""Patches, regions and boxes of images; determinants."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import lt

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.infer import shape_text
from mirlo.frontends.builder import sizes_if
from mirlo.frontends.onnx.declared import declared_shape, equals, required
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.windows import kernel_shape, per_dim
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.tensor import Tensor, concat, maximum, stack


@converter("Col2Im", since=18)
def col2im(node: Node) -> Converted:
    declared = declared_shape(node, 1) or declared_shape(node, 2)
    is_known = [node.value(i).array is not None for i in (1, 2)]
    if declared is None and not all(is_known):
        return _dynamic_col2im(node)
    image = list(declared[2:]) if declared is not None and not is_known[0] else node.ints(1)
    attributes = _col2im_attributes(node, len(image))
    if declared is None or is_known[1]:
        result = node.emit("col2im", node[0], image=image, window=node.ints(2), **attributes)
    else:
        result = _col2im_of_declared_shape(node, declared, {"image": image, **attributes})
    if is_known[0]:
        return result
    return required(node, equals(node, 1, image), "input 'image_shape' is another", result)


def _col2im_attributes(node: Node, count: int) -> dict[str, Sequence[int]]:
    return {
        "strides": per_dim(node, "strides", count),
        "dilations": per_dim(node, "dilations", count),
        "padding": _pads(node, count),
    }


def _dynamic_col2im(node: Node) -> Tensor:
    """Convert Col2Im with run-time sizes, which are checked against the operand's windows."""
    x, sizes = node.type(0), [node.vector(1), node.vector(2)]
    (count,), (other,) = (each.type.shape for each in sizes)
    if not isinstance(count, int) or count != other or x.rank != 3:
        raise NodeError(f"inputs must be [N, rows, columns] and two lists of one length, got {x}, {count} and {other}")
    attributes = _col2im_attributes(node, count)
    pads = attributes["padding"]
    around = node.constant([pads[i] + pads[count + i] for i in range(count)], "i64")
    strides, dilations = (node.constant(attributes[name], "i64") for name in ("strides", "dilations"))
    image, window = sizes
    reach = (window - 1) * dilations + 1
    steps = (image + around - reach) // strides
    columns = (steps + 1).prod()
    elements = maximum(window.prod(), 1)
    rows, operand_columns = (node.size(dim) for dim in x.shape[1:])
    fits = stack([
        columns.equals(operand_columns),
        (rows % elements).equals(0),
        (concat(sizes, axis=0) >= 1).all(),
        (steps >= 0).all(),
    ], axis=0)  # fmt: skip
    what = f"inputs 'image_shape' and 'block_shape' do not fit the input {x}"
    dims = node.bind(sizes_if(fits, concat(sizes, axis=0)), what)
    return node.emit("col2im", node[0], image=dims[:count], window=dims[count:], **attributes)


def _col2im_of_declared_shape(node: Node, declared: Sequence[int], attributes: dict[str, Sequence[int]]) -> Tensor:
    """Convert Col2Im with windows of run-time size: as many elements as the declared channels leave."""
    result = node.emit("col2im", node[0], node[2], channels=declared[1], **attributes)
    elements = node[2].prod()
    wanted = node.constant(node.type(0).static_shape[1] // max(declared[1], 1), node.type(2))
    return required(node, elements.equals(wanted), "input 'block_shape' is another", result)


def _pads(node: Node, count: int) -> list[int]:
    pads = node.attr.ints("pads", None) or [0] * (2 * count)
    if len(pads) != 2 * count:
        raise NodeError(f"attribute 'pads' must have {2 * count} numbers, begins then ends, got {pads}")
    return list(pads)


@converter("RoiAlign", since=10)
def roi_align(node: Node) -> Converted:
    modes = ("half_pixel", "output_half_pixel")
    # Before opset 16 the only mode was the newer "output_half_pixel".
    default = modes[0] if node.opset >= 16 else modes[1]
    coordinates = node.attr.choice("coordinate_transformation_mode", default, modes)
    return node.emit(
        "roi_align",
        *node.all(),
        height=node.attr.int("output_height", 1),
        width=node.attr.int("output_width", 1),
        samples=node.attr.int("sampling_ratio", 0),
        scale=node.attr.float("spatial_scale", 1.0),
        mode={"avg": "mean", "max": "max"}[node.attr.choice("mode", "avg", ("avg", "max"))],
        half_pixel=coordinates == modes[0],
    )


@converter("MaxRoiPool")
def max_roi_pool(node: Node) -> Converted:
    x, rois = node.type(0), node.type(1)
    pooled = node.attr.ints("pooled_shape")
    if x.rank != 4 or rois.rank != 2 or rois.shape[1] != 5:
        raise NodeError(f"inputs must be images [N, C, H, W] and regions [R, 5], got {x} and {rois}")
    if len(pooled) != 2 or min(pooled) < 1:
        raise NodeError(f"attribute 'pooled_shape' must be two numbers of at least 1, got {list(pooled)}")
    image, bounds = node[1][:, 0].cast("i64"), node[1][:, 1:]
    scale = node.attr.float("spatial_scale", 1.0)
    return node.emit("max_roi_pool", node[0], bounds, image, height=pooled[0], width=pooled[1], scale=scale)


@converter("DeformConv", since=19)
def deform_conv(node: Node) -> Converted:
    x, weight = node.type(0), node.type(1)
    if x.rank < 3 or weight.rank != x.rank:
        raise NodeError(f"the data and the weight must have one rank of at least 3, got {x} and {weight}")
    count = x.rank - 2
    kernel = kernel_shape(node, weight.shape[2:])
    if len(kernel) != count:
        raise NodeError(f"attribute 'kernel_shape' must have {count} numbers, got {list(kernel)}")
    return node.emit(
        "deform_conv",
        node[0],
        node[1],
        node[2],
        node.optional(3),
        node.optional(4),
        strides=per_dim(node, "strides", count),
        dilations=per_dim(node, "dilations", count),
        padding=_pads(node, count),
        groups=node.attr.int("group", 1),
        offset_groups=node.attr.int("offset_group", 1),
    )


@converter("MaxUnpool")
def max_unpool(node: Node) -> Converted:
    """Scatter the pooled elements to their original positions in zeros, counted over the whole tensor.

    A larger `output_shape` adds zeros at the ends.
    """
    x = node.type(0)
    if x.rank < 3:
        raise NodeError(f"the data must have a rank of at least 3, got {x}")
    kernel = kernel_shape(node)
    count = x.rank - 2
    strides, pads = per_dim(node, "strides", count), _pads(node, count)
    if len(kernel) != count:
        raise NodeError(f"attribute 'kernel_shape' must have {count} numbers, got {list(kernel)}")
    spatial = [(x.shape[2 + i] - 1) * strides[i] - pads[i] - pads[count + i] + kernel[i] for i in range(count)]
    pooled = (*x.shape[:2], *spatial)
    declared = declared_shape(node, 2)
    shape = _unpooled_shape(node, pooled, declared)
    zeros = node.emit("full", shape=(D.product(pooled),), value=0, dtype=x.dtype)
    indices, values = (node[i].reshape((D.product(x.shape),)) for i in (1, 0))
    result = node.emit("scatter_elements", zeros, indices, values, axis=0).reshape(pooled)
    if shape != pooled:
        result = node.emit("pad_at", result, node.constant([0] * x.rank, "i64"), node.constant(0, x), shape=shape)
    if declared is None:
        return result
    return required(node, equals(node, 2, declared), "input 'output_shape' is another", result)


def _unpooled_shape(node: Node, pooled: Sequence[Dim], declared: Sequence[int] | None) -> tuple[Dim, ...]:
    """Return the declared shape, that of an input, or that of the windows."""
    if not node.has(2):
        return tuple(pooled)
    known = all(isinstance(dim, int) for dim in pooled)
    shape = declared if declared is not None and known else None
    if shape is None and node.value(2).array is not None and known:
        shape = node.ints(2)
    if shape is None:
        sizes = node.vector(2)
        if sizes.type.shape != (len(pooled),):
            raise NodeError(f"input 'output_shape' must have {len(pooled)} numbers, got {node.type(2)}")
        fits = sizes >= node.sizes(pooled)
        what = f"input 'output_shape' does not hold what was pooled, {shape_text(pooled)}"
        return node.bind(sizes_if(fits, sizes), what)
    if len(shape) != len(pooled) or any(D.is_certain(partial(lt, a, b)) for a, b in zip(shape, pooled, strict=True)):
        raise NodeError(f"input 'output_shape' is {list(shape)}, which does not hold what was pooled, {list(pooled)}")
    return tuple(shape)


@converter("NonMaxSuppression", since=10)
def non_max_suppression(node: Node) -> Converted:
    boxes, scores = node.type(0), node.type(1)
    if boxes.rank != 3 or scores.rank != 3:
        raise NodeError(f"boxes and scores must have rank 3, got {boxes} and {scores}")
    count = boxes.shape[1]
    center = node.attr.bool("center_point_box", 0)
    limit = _scalar(node, 2, 0, "i64")
    overlap, threshold = _scalar(node, 3, 0.0, boxes), _scalar(node, 4, None, boxes)
    most: Dim = count
    if not node.has(2):
        most = 0
    elif node.value(2).array is not None:
        most = D.minimum(count, max(0, int(node.scalar(2))))
    selected, used = node.emit_all(
        "non_max_suppression", node[0], node[1], limit, overlap, threshold, most=[most], center=center
    )
    return first_rows(node, selected, used)


def _scalar(node: Node, index: int, default: float | None, like: TensorType | str) -> Tensor | None:
    if not node.has(index):
        return None if default is None else node.constant(default, like)
    tensor_type = node.type(index)
    if tensor_type.elements != 1:
        raise NodeError(f"input '{node.input_name(index)}' must have one element, got {tensor_type}")
    return node[index].reshape(()) if tensor_type.rank else node[index]


def first_rows(node: Node, rows: Tensor, used: Tensor) -> Tensor:
    """Return the used rows: the declared number, which is checked, or a data-dependent one."""
    declared, kind = node.declared(0), rows.type
    most = kind.shape[0]
    if declared is None or not isinstance(most, int):
        counted = used.reshape((1,))
        (count,) = node.bind(counted, "the number of rows", [most])
        return rows.slice(0, 0, count)
    wanted = declared[0]
    if wanted > most:
        raise NodeError(f"the result is declared {list(declared)}, but there are at most {most} rows")
    holds = used.equals(wanted)
    result = rows.slice(0, 0, wanted)
    return required(node, holds, f"there are not {wanted} rows", result)
