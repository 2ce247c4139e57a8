"""Operators that move or select elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.extend.codegen import Decline, DType, ExternalNode, decline, dtype
from mirlo_onnxruntime.export import export_formulas, exports
from mirlo_onnxruntime.export.graph import ExportGraph, reshape_shape

if TYPE_CHECKING:
    import numpy as np

INT32_END = 2**31 - 2


export_formulas({
    "concat": lambda g, node: g.add("Concat", node["xs"], axis=node["axis"]),
    "depth_to_space": lambda g, node: g.add("DepthToSpace", [node["x"]], blocksize=node["block"], mode=node["mode"]),
    "expand_dims": lambda g, node: g.add("Unsqueeze", [node["x"], g.ints(node["axes"])]),
    "gather": lambda g, node: g.add("Gather", [node["x"], node["indices"]], axis=node["axis"]),
    "gather_elements": lambda g, node: g.add("GatherElements", [node["x"], node["indices"]], axis=node["axis"]),
    "gather_nd": lambda g, node: g.add("GatherND", [node["x"], _indices(g, node)], batch_dims=node["batch_dims"]),
    "one_hot": lambda g, node: g.add(
        "OneHot", [node["indices"], g.ints([node["depth"]]), node["values"]], axis=node["axis"]
    ),
    "permute": lambda g, node: g.add(
        "Transpose", [node["x"]], perm=[axis % node["x"].type.rank for axis in node["axes"]]
    ),
    "scatter_nd": lambda g, node: g.add(
        "ScatterND", [node["x"], _indices(g, node), node["updates"]], reduction=node["reduction"]
    ),
    "space_to_depth": lambda g, node: g.add("SpaceToDepth", [node["x"]], blocksize=node["block"]),
    "squeeze": lambda g, node: g.add("Squeeze", [node["x"], g.ints(node["axes"])]),
    "strided_slice": lambda g, node: g.add(
        "Slice", [node["x"], *(g.ints(node[name]) for name in ("begin", "end", "axes", "strides"))]
    ),
    "tile": lambda g, node: g.add("Tile", [node["x"], g.ints(node["repeats"])]),
    "tri": lambda g, node: g.add("Trilu", [node["x"], g.array(_i64(node["k"]))], upper=int(node["upper"])),
})  # fmt: skip


def _indices(g: ExportGraph, node: ExternalNode) -> str:
    return g.cast(node["indices"], _dtype("i64"))


@exports("reshape")
def reshape(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    shape = reshape_shape(node.output.type.shape)
    if shape is None:
        return decline("a reshape can leave one dim open", shape=str(node.output.type))
    return [g.add("Reshape", [node["x"], g.ints(shape)], allowzero=int(0 in shape))]


@exports("expand")
def expand(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    if not node.output.type.is_static:
        return decline("the shape to expand to must be numbers", shape=str(node.output.type))
    return [g.add("Expand", [node["x"], g.ints(node.output.type.static_shape)])]


@exports("reverse")
def reverse(g: ExportGraph, node: ExternalNode) -> list[str]:
    axes = node["axes"]
    bounds = [[-1] * len(axes), [-INT32_END] * len(axes), axes, [-1] * len(axes)]
    return [g.add("Slice", [node["x"], *(g.ints(numbers) for numbers in bounds)])]


@exports("pad")
def pad(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    if node["mode"] == "wrap":
        return decline("pads wrap around since operator set 19 only")
    value = g.scalar(node["value"], node["x"].type.dtype) if node["mode"] == "constant" else None
    return [g.add("Pad", [node["x"], g.ints(node["pads"]), value], mode=node["mode"])]


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


def _i64(number: int) -> np.ndarray:
    import numpy as np

    return np.array(number, np.int64)


@exports("scatter_elements")
def scatter_elements(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    if node["x"].type.dtype.name == "f16":
        # Creating a session succeeds all the same: the missing kernel shows at run time only.
        return decline("ONNX Runtime does not scatter f16 on the CPU")
    inputs = [node["x"], node["indices"], node["updates"]]
    return [g.add("ScatterElements", inputs, axis=node["axis"], reduction=node["reduction"])]


def _dtype(name: str) -> DType:
    return dtype(name)
