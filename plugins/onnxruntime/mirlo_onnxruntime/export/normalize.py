"""Normalizations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirlo.extend.codegen import Decline, ExternalNode, decline
from mirlo_onnxruntime.export import export_formulas, exports
from mirlo_onnxruntime.export.graph import ExportGraph

export_formulas({
    "instance_norm": lambda g, node: g.add("InstanceNormalization", node.inputs, epsilon=node["epsilon"]),
    "lp_normalize": lambda g, node: g.add("LpNormalization", [node["x"]], axis=node["axis"], p=node["p"]),
    "lrn": lambda g, node: g.add("LRN", [node["x"]], **{n: node[n] for n in ("size", "alpha", "beta", "bias")}),
})  # fmt: skip


@exports("layer_norm")
def layer_norm(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    x, scale, axis = node["x"], node["scale"], node["axis"] % node["x"].type.rank
    normalized = x.type.shape[axis:]
    if not all(isinstance(dim, int) for dim in normalized):
        return decline("the dims that are normalized must be numbers", x=str(x.type))
    for vector in (scale, node["bias"]):
        if vector is not None and vector.type.shape != normalized:
            return decline("scale and bias must have the shape that is normalized", found=str(vector.type))
    scale = scale if scale is not None else g.array(np.ones(normalized, x.type.dtype.to_numpy()))
    return [g.add("LayerNormalization", [x, scale, node["bias"]], axis=axis, epsilon=node["epsilon"])]


@exports("rms_norm")
def rms_norm(g: ExportGraph, node: ExternalNode) -> list[str]:
    x, kind = node["x"], node["x"].type.dtype
    axes = list(range(node["axis"] % x.type.rank, x.type.rank))
    mean = g.add("ReduceMean", [g.add("Mul", [x, x]), g.ints(axes)], keepdims=1)
    root = g.add("Sqrt", [g.add("Add", [mean, g.scalar(node["epsilon"], kind)])])
    result = g.add("Div", [x, root])
    return [result if node["scale"] is None else g.add("Mul", [result, node["scale"]])]


@exports("batch_norm")
def batch_norm(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    if node["axis"] % node["x"].type.rank != 1:
        return decline("ONNX normalizes along axis 1", axis=node["axis"])
    return [g.add("BatchNormalization", node.inputs, epsilon=node["epsilon"])]


@exports("group_norm")
def group_norm(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    """Export groups as channels of an instance normalization, then apply scale and bias per channel."""
    x, groups, kind = node["x"], node["groups"], node["x"].type.dtype
    ones, zeros = (g.array(np.full(groups, number, kind.to_numpy())) for number in (1, 0))
    grouped = g.add("Reshape", [x, g.ints([0, groups, -1])])
    normal = g.add("InstanceNormalization", [grouped, ones, zeros], epsilon=node["epsilon"])
    result = g.add("Reshape", [normal, g.add("Shape", [x])])
    spread = g.ints([-1, *[1] * (x.type.rank - 2)])
    scale, bias = (g.add("Reshape", [node[name], spread]) for name in ("scale", "bias"))
    return [g.add("Add", [g.add("Mul", [result, scale]), bias])]
