"""Operators that move or select elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.core.dtypes import DType
from mirlo.passes.byoc.view import ExternalNode
from mirlo.passes.rules import Decline, decline
from mirlo.targets.onnx.export import exports
from mirlo.targets.onnx.export.graph import ExportGraph, reshape_shape

if TYPE_CHECKING:
    import numpy as np

INT32_END = 2**31 - 2


@exports("reshape")
def reshape(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    shape = reshape_shape(node.output.type.shape)
    if shape is None:
        return decline("a reshape can leave one dim open", shape=str(node.output.type))
    return [g.add("Reshape", [node["x"], g.ints(shape)], allowzero=int(0 in shape))]


@exports("permute")
def permute(g: ExportGraph, node: ExternalNode) -> list[str]:
    rank = node["x"].type.rank
    return [g.add("Transpose", [node["x"]], perm=[axis % rank for axis in node["axes"]])]


@exports("expand")
def expand(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    if not node.output.type.is_static:
        return decline("the shape to expand to must be numbers", shape=str(node.output.type))
    return [g.add("Expand", [node["x"], g.ints(node.output.type.static_shape)])]


@exports("expand_dims")
def expand_dims(g: ExportGraph, node: ExternalNode) -> list[str]:
    return [g.add("Unsqueeze", [node["x"], g.ints(node["axes"])])]


@exports("squeeze")
def squeeze(g: ExportGraph, node: ExternalNode) -> list[str]:
    return [g.add("Squeeze", [node["x"], g.ints(node["axes"])])]


@exports("tile")
def tile(g: ExportGraph, node: ExternalNode) -> list[str]:
    return [g.add("Tile", [node["x"], g.ints(node["repeats"])])]


@exports("reverse")
def reverse(g: ExportGraph, node: ExternalNode) -> list[str]:
    axes = node["axes"]
    bounds = [[-1] * len(axes), [-INT32_END] * len(axes), axes, [-1] * len(axes)]
    return [g.add("Slice", [node["x"], *(g.ints(numbers) for numbers in bounds)])]


@exports("strided_slice")
def strided_slice(g: ExportGraph, node: ExternalNode) -> list[str]:
    bounds = [node[name] for name in ("begin", "end", "axes", "strides")]
    return [g.add("Slice", [node["x"], *(g.ints(numbers) for numbers in bounds)])]


@exports("pad")
def pad(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    if node["mode"] == "wrap":
        return decline("pads wrap around since operator set 19 only")
    value = g.scalar(node["value"], node["x"].type.dtype) if node["mode"] == "constant" else None
    return [g.add("Pad", [node["x"], g.ints(node["pads"]), value], mode=node["mode"])]


@exports("concat")
def concat(g: ExportGraph, node: ExternalNode) -> list[str]:
    return [g.add("Concat", node["xs"], axis=node["axis"])]


@exports("stack")
def stack(g: ExportGraph, node: ExternalNode) -> list[str]:
    axis = node["axis"] % node.output.type.rank
    parts = [g.add("Unsqueeze", [x, g.ints([axis])]) for x in node["xs"]]
    return [g.add("Concat", parts, axis=axis)]


@exports("split")
def split(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    sizes = [dim for dim in node["sizes"] if isinstance(dim, int)]
    if len(sizes) != len(node["sizes"]):
        return decline("the sizes of a split must be numbers", sizes=str(node["sizes"]))
    return g.add_all("Split", [node["x"], g.ints(sizes)], len(sizes), axis=node["axis"])


@exports("depth_to_space")
def depth_to_space(g: ExportGraph, node: ExternalNode) -> list[str]:
    return [g.add("DepthToSpace", [node["x"]], blocksize=node["block"], mode=node["mode"])]


@exports("space_to_depth")
def space_to_depth(g: ExportGraph, node: ExternalNode) -> list[str]:
    return [g.add("SpaceToDepth", [node["x"]], blocksize=node["block"])]


@exports("tri")
def tri(g: ExportGraph, node: ExternalNode) -> list[str]:
    return [g.add("Trilu", [node["x"], g.array(_i64(node["k"]))], upper=int(node["upper"]))]


def _i64(number: int) -> np.ndarray:
    import numpy as np

    return np.array(number, np.int64)


@exports("gather")
def gather(g: ExportGraph, node: ExternalNode) -> list[str]:
    return [g.add("Gather", [node["x"], node["indices"]], axis=node["axis"])]


@exports("gather_elements")
def gather_elements(g: ExportGraph, node: ExternalNode) -> list[str]:
    return [g.add("GatherElements", [node["x"], node["indices"]], axis=node["axis"])]


@exports("gather_nd")
def gather_nd(g: ExportGraph, node: ExternalNode) -> list[str]:
    indices = g.cast(node["indices"], _dtype("i64"))
    return [g.add("GatherND", [node["x"], indices], batch_dims=node["batch_dims"])]


@exports("scatter_elements")
def scatter_elements(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    if node["x"].type.dtype.name == "f16":
        # Creating a session succeeds all the same: the missing kernel shows at run time only.
        return decline("ONNX Runtime does not scatter f16 on the CPU")
    inputs = [node["x"], node["indices"], node["updates"]]
    return [g.add("ScatterElements", inputs, axis=node["axis"], reduction=node["reduction"])]


@exports("scatter_nd")
def scatter_nd(g: ExportGraph, node: ExternalNode) -> list[str]:
    indices = g.cast(node["indices"], _dtype("i64"))
    return [g.add("ScatterND", [node["x"], indices, node["updates"]], reduction=node["reduction"])]


@exports("one_hot")
def one_hot(g: ExportGraph, node: ExternalNode) -> list[str]:
    depth = g.ints([node["depth"]])
    return [g.add("OneHot", [node["indices"], depth, node["values"]], axis=node["axis"])]


def _dtype(name: str) -> DType:
    from mirlo.dialects.core.dtypes import dtype

    return dtype(name)
