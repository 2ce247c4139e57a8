"""Reductions, arg-extremes, cumulative sums and sorting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirlo.extend.codegen import Decline, ExternalNode, decline, dtype, reductions_of_onnx
from mirlo_onnxruntime.export import export_formulas, exports
from mirlo_onnxruntime.export.graph import ExportGraph

export_formulas({
    "cumsum": lambda g, node: g.add(
        "CumSum", [node["x"], g.array(np.array(node["axis"], np.int64))],
        exclusive=int(node["exclusive"]), reverse=int(node["reverse"]),
    ),
})  # fmt: skip


def _axes(g: ExportGraph, node: ExternalNode) -> str | None:
    return None if node["axes"] is None else g.ints(node["axes"])


ONNX_NAMES = {cls.OPERATION_NAME: name for name, cls in reductions_of_onnx().items()}


@exports(*(name.removeprefix("relax.") for name in ONNX_NAMES))
def reduce(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    operator = ONNX_NAMES[node.op]
    if node["x"].type.dtype.is_bool:
        return _of_bools(g, node, operator)
    if node["axes"] == ():
        return decline("ONNX reads no axes as all of them")
    return [g.add(operator, [node["x"], _axes(g, node)], keepdims=int(node["keepdims"]))]


@exports("reduce_any", "reduce_all")
def reduce_bools(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    return _of_bools(g, node, "ReduceMax" if node.op == "relax.reduce_any" else "ReduceMin")


def _of_bools(g: ExportGraph, node: ExternalNode, operator: str) -> Sequence[str] | Decline:
    if node["axes"] == ():
        return decline("ONNX reads no axes as all of them")
    numbers = g.cast(node["x"], dtype("i32"))
    result = g.add(operator, [numbers, _axes(g, node)], keepdims=int(node["keepdims"]))
    return [g.cast(result, dtype("bool"))]


@exports("argmax", "argmin")
def arg_extreme(g: ExportGraph, node: ExternalNode) -> list[str]:
    attributes = {name: int(node[name]) for name in ("axis", "keepdims")}
    operator = "ArgMax" if node.op == "relax.argmax" else "ArgMin"
    return [g.add(operator, [node["x"]], select_last_index=int(node["select_last"]), **attributes)]


@exports("topk")
def topk(g: ExportGraph, node: ExternalNode) -> list[str]:
    attributes = {name: int(node[name]) for name in ("axis", "largest", "sorted")}
    return g.add_all("TopK", [node["x"], g.ints([node["k"]])], 2, **attributes)
