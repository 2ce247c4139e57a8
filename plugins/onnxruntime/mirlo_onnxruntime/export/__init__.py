"""Exporters from regions to ONNX models: `EXPORTERS` by operator, one file per family."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

import numpy as np

from mirlo.extend.codegen import Decline, DType, ExternalNode, decline, graph_operations, register_in
from mirlo.extend.ops import OnnxName
from mirlo_onnxruntime.dtypes import code_of
from mirlo_onnxruntime.export.graph import OPSET, ExportGraph

Exporter = Callable[[ExportGraph, ExternalNode], Sequence[str] | Decline]
"""A function that adds the operator's nodes to the graph and returns the names of the results in order, or a
decline."""
EXPORTERS: dict[str, Exporter] = {}
FAMILIES = ("elementwise", "networks", "movement", "reductions", "normalize")


def exports(*names: str) -> Callable[[Exporter], Exporter]:
    """Register an exporter for operators of these names."""
    return register_in(EXPORTERS, [f"relax.{name}" for name in names])


def export_formulas(formulas: Mapping[str, Callable[[ExportGraph, ExternalNode], str]]) -> None:
    """Register exporters of operators with one result, which each formula adds and names."""
    for name, formula in formulas.items():
        exports(name)(partial(_export_formula, formula))


def _export_formula(
    formula: Callable[[ExportGraph, ExternalNode], str], g: ExportGraph, node: ExternalNode
) -> list[str]:
    return [formula(g, node)]


@cache
def _load_families() -> None:
    for family in FAMILIES:
        importlib.import_module(f"mirlo_onnxruntime.export.{family}")


def load_exporters() -> dict[str, Exporter]:
    """Return the exporters by operator: those of the families, and those that follow from `DialectOp.ONNX`."""
    _load_families()
    named = {name: op.ONNX for name, op in graph_operations().items() if op.ONNX is not None and op.ONNX.exported}
    return {name: partial(export_by_name, onnx) for name, onnx in named.items()} | EXPORTERS


def export_by_name(onnx: OnnxName, g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    """Export an operator as the one of ONNX that its class names, with the same operands and attributes."""
    if not onnx.domain and onnx.since > OPSET:
        return decline("the exported models use an older opset", opset=OPSET, since=onnx.since)
    names = dict(onnx.attributes)
    attributes = {names.get(name, name): _plain(value) for name, value in node.attributes.items()}
    if node.inputs and node.inputs[0].type.dtype.name == "f64":
        lost = {n: v for n, v in attributes.items() if isinstance(v, float) and float(np.float32(v)) != v}
        if lost:
            return decline("ONNX's attributes are f32", **lost)
    return g.add_all(onnx, node.inputs, len(node.outputs), **attributes)


def _plain(value: object) -> object:
    """Return an attribute as ONNX stores it."""
    if isinstance(value, DType):
        return code_of(value)
    return int(value) if isinstance(value, bool) else value
