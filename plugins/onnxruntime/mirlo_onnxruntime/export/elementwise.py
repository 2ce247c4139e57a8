"""Elementwise operators and activations whose ONNX form differs; the others are exported by their declared names."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mirlo.extend.codegen import Decline, ExternalNode, ExternalValue, decline
from mirlo_onnxruntime.export import export_formulas, exports
from mirlo_onnxruntime.export.graph import ExportGraph

export_formulas({
    "cast": lambda g, node: g.cast(node["x"], node["dtype"]),
    "exp2": lambda g, node: g.add("Pow", [g.scalar(2, node["x"].type.dtype), node["x"]]),
    "fmod": lambda g, node: g.add("Mod", node.inputs, fmod=1),
    "isfinite": lambda g, node: g.add("Not", [g.add("Or", [g.add("IsNaN", node.inputs), g.add("IsInf", node.inputs)])]),
    "log10": lambda g, node: _logarithm(g, node["x"], 10),
    "log2": lambda g, node: _logarithm(g, node["x"], 2),
    "not_equal": lambda g, node: g.add("Not", [g.add("Equal", node.inputs)]),
    "rsqrt": lambda g, node: g.add("Reciprocal", [g.add("Sqrt", [node["x"]])]),
    "silu": lambda g, node: g.add("Mul", [node["x"], g.add("Sigmoid", [node["x"]])]),
    "square": lambda g, node: g.add("Mul", [node["x"], node["x"]]),
    "trunc": lambda g, node: g.add("Mul", [g.add("Sign", [node["x"]]), g.add("Floor", [g.add("Abs", [node["x"]])])]),
})  # fmt: skip


def _logarithm(g: ExportGraph, x: ExternalValue, base: int) -> str:
    return g.add("Mul", [g.add("Log", [x]), g.scalar(1 / math.log(base), x.type.dtype)])


@exports("divide")
def divide(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    if node.output.type.dtype.kind == "int":
        return decline("providers differ in how they round quotients of signed integers")
    return [g.add("Div", node.inputs)]


@exports("floor_divide")
def floor_divide(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    if not node.output.type.dtype.is_float:
        return decline("ONNX divides integers towards zero")
    return [g.add("Floor", [g.add("Div", node.inputs)])]


@exports("mod")
def mod(g: ExportGraph, node: ExternalNode) -> list[str]:
    x, y = node.inputs
    if not node.output.type.dtype.is_float:
        return [g.add("Mod", [x, y], fmod=0)]
    # ONNX's remainder of floats takes the sign of the dividend only.
    again = g.add("Add", [g.add("Mod", [x, y], fmod=1), y])
    return [g.add("Mod", [again, y], fmod=1)]


@exports("shift_left", "shift_right")
def shift(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    if not node.output.type.dtype.is_unsigned:
        return decline("ONNX shifts unsigned integers only")
    return [g.add("BitShift", node.inputs, direction=node.op.removeprefix("relax.shift_").upper())]


@exports("shrink")
def shrink(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    if node["x"].type.dtype.name in ("f32", "f16"):
        return [g.add("Shrink", [node["x"]], lambd=node["lambd"], bias=node["bias"])]
    return decline("ONNX Runtime shrinks in f32", x=str(node["x"].type))


@exports("gelu")
def gelu(g: ExportGraph, node: ExternalNode) -> list[str]:
    """Export GELU in the form that exporters write and providers recognize."""
    x, kind = node["x"], node["x"].type.dtype
    one, half = g.scalar(1, kind), g.scalar(0.5, kind)
    if node["approximate"] == "tanh":
        cube = g.add("Mul", [g.add("Mul", [g.add("Mul", [x, x]), x]), g.scalar(0.044715, kind)])
        inner = g.add("Mul", [g.add("Add", [x, cube]), g.scalar(math.sqrt(2 / math.pi), kind)])
        curve = g.add("Tanh", [inner])
    else:
        curve = g.add("Erf", [g.add("Div", [x, g.scalar(math.sqrt(2), kind)])])
    return [g.add("Mul", [g.add("Mul", [x, g.add("Add", [curve, one])]), half])]


@exports("hard_swish")
def hard_swish(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    if node["x"].type.dtype.name == "f64":
        return decline("ONNX's hard swish has f32 in it")
    return [g.add("HardSwish", [node["x"]])]


@exports("clip")
def clip(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    kind = node["x"].type.dtype
    if not kind.is_float and any(v is not None and v != int(v) for v in (node["min"], node["max"])):
        return decline("bounds of integers must be integers", min=node["min"], max=node["max"])
    bounds = [None if v is None else g.scalar(v, kind) for v in (node["min"], node["max"])]
    return [g.add("Clip", [node["x"], *bounds])]
