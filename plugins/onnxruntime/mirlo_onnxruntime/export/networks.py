"""Contractions, pooling, images and quantization."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirlo.extend.codegen import Decline, ExternalNode, ExternalValue, decline
from mirlo_onnxruntime.export import export_formulas, exports
from mirlo_onnxruntime.export.graph import ExportGraph, reshape_shape

export_formulas({"einsum": lambda g, node: g.add("Einsum", node["xs"], equation=node["equation"])})


@exports("matmul")
def matmul(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    sides = [_transposed(g, node[name], node[f"transpose_{name}"]) for name in ("lhs", "rhs")]
    wide, operand_type = node["out_dtype"], node["lhs"].type.dtype
    if wide is None or wide is operand_type:
        return [g.add("MatMul", sides)]
    if wide.name == "i32" and operand_type.bits == 8 and operand_type.is_integer:
        return [g.add("MatMulInteger", sides)]
    return decline(
        "ONNX multiplies matrices in their own type, or bytes to i32", found=operand_type.name, wanted=wide.name
    )


def _transposed(g: ExportGraph, value: ExternalValue, swap: bool) -> ExternalValue | str:
    if not swap:
        return value
    order = list(range(value.type.rank))
    return g.add("Transpose", [value], perm=[*order[:-2], order[-1], order[-2]])


def _window(node: ExternalNode) -> dict[str, object]:
    """Return the attributes that convolutions and pools share, with defaults for absent ones."""
    return {
        "strides": node["strides"] or None, "pads": node["padding"] or None, "dilations": node["dilations"] or None,
    }  # fmt: skip


def _require_layout(node: ExternalNode) -> Decline | None:
    if node.attributes.get("data_layout", "NC*") != "NC*" or node.attributes.get("kernel_layout", "OI*") != "OI*":
        layouts = {name: node[name] for name in ("data_layout", "kernel_layout") if name in node.attributes}
        return decline("ONNX has channels first", **layouts)
    return None


@exports("conv")
def conv(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    if node["out_dtype"] is not None and node["out_dtype"] is not node["x"].type.dtype:
        return decline("ONNX convolves in the operands' own type", wanted=node["out_dtype"].name)
    inputs = [node["x"], node["weight"], node["bias"]]
    return _require_layout(node) or [g.add("Conv", inputs, group=node["groups"], **_window(node))]


@exports("conv_transpose")
def conv_transpose(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    inputs, more = [node["x"], node["weight"], node["bias"]], node["output_padding"] or None
    attributes = {**_window(node), "group": node["groups"], "output_padding": more}
    return _require_layout(node) or [g.add("ConvTranspose", inputs, **attributes)]


@exports("max_pool", "avg_pool", "lp_pool", "max_pool_with_indices")
def pool(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    operator = {"relax.avg_pool": "AveragePool", "relax.lp_pool": "LpPool"}.get(node.op, "MaxPool")
    attributes = {**_window(node), "kernel_shape": node["kernel"], "ceil_mode": int(node["ceil_mode"])}
    if operator == "AveragePool":
        attributes["count_include_pad"] = int(node["count_include_pad"])
        if node["dilations"] and set(node["dilations"]) != {1}:
            return decline("average pools have no dilations in operator set 18")
        del attributes["dilations"]
    if operator == "LpPool":
        attributes["p"] = node["p"]
    required = _require_layout(node)
    if required is not None:
        return required
    if len(node.outputs) == 2:
        return g.add_all(operator, [node["x"]], 2, storage_order=node["storage_order"], **attributes)
    return [g.add(operator, [node["x"]], **attributes)]


@exports("resize")
def resize(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    attributes = {
        "mode": node["mode"], "coordinate_transformation_mode": node["coordinates"], "nearest_mode": node["nearest"],
        "cubic_coeff_a": node["cubic_coeff"], "exclude_outside": int(node["exclude_outside"]),
        "extrapolation_value": node["extrapolation"], **({"antialias": 1} if node["antialias"] else {}),
    }  # fmt: skip
    roi = g.array(np.array(node["roi"], np.float32)) if node["roi"] else None
    shape = node.output.type.shape
    if node["scales"]:
        return [g.add("Resize", [node["x"], roi, g.array(np.array(node["scales"], np.float32))], **attributes)]
    if not node.output.type.is_static:
        return decline("the sizes of a resize must be numbers", shape=str(node.output.type))
    return [g.add("Resize", [node["x"], roi, None, g.ints(shape)], **attributes)]  # type: ignore[arg-type]


@exports("grid_sample")
def grid_sample(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(node["mode"], node["mode"])
    attributes = {"mode": mode, "padding_mode": node["padding_mode"], "align_corners": int(node["align_corners"])}
    if node["x"].type.rank != 4:
        return decline("operator set 18 samples images only", x=str(node["x"].type))
    return [g.add("GridSample", [node["x"], node["grid"]], **attributes)]


@exports("attention")
def attention(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    """Export attention as its parts; providers fuse it again."""
    query, key, value, mask = (node[name] for name in ("query", "key", "value", "mask"))
    kind = query.type.dtype
    if kind.name == "f64":
        return decline("ONNX Runtime fuses the scale into the product, as f32")
    heads, shared = query.type.shape[1], key.type.shape[1]
    if heads != shared:
        if not isinstance(heads, int) or not isinstance(shared, int):
            return decline("the numbers of heads must be known", query=str(query.type), key=str(key.type))
        which = g.ints([head // (heads // shared) for head in range(heads)])
        key, value = (g.add("Gather", [side, which], axis=1) for side in (key, value))
    lengths = query.type.shape[2], node["key"].type.shape[2]
    if node["causal"] and not all(isinstance(length, int) for length in lengths):
        return decline("causal attention needs lengths that are numbers", query=str(query.type))
    size = query.type.shape[3]
    if node["scale"] is None and not isinstance(size, int):
        return decline("the size of a head must be a number", query=str(query.type))
    scale = node["scale"] if node["scale"] is not None else float(size) ** -0.5
    scores = g.add("MatMul", [query, g.add("Transpose", [key], perm=[0, 1, 3, 2])])
    scores = g.add("Mul", [scores, g.scalar(scale, kind)])
    if node["softcap"] is not None:
        cap = g.scalar(node["softcap"], kind)
        scores = g.add("Mul", [g.add("Tanh", [g.add("Div", [scores, cap])]), cap])
    if mask is not None and mask.type.dtype.is_bool:
        scores = g.add("Where", [mask, scores, g.scalar(float("-inf"), kind)])
    elif mask is not None:
        scores = g.add("Add", [scores, mask])
    if node["causal"]:
        past = lengths[1] - lengths[0] if node["at_end"] else 0
        seen = g.array(np.tri(*lengths, past, dtype=np.bool_))
        scores = g.add("Where", [seen, scores, g.scalar(float("-inf"), kind)])
    return [g.add("MatMul", [g.add("Softmax", [scores], axis=-1), value])]


@exports("quantize", "dequantize")
def quantize(g: ExportGraph, node: ExternalNode) -> Sequence[str] | Decline:
    if node["block"]:
        return decline("blocks have scales since operator set 21 only", block=node["block"])
    down = node.op == "relax.quantize"
    quantized, real = (node.output, node["x"])[:: 1 if down else -1]
    if quantized.type.dtype.name not in ("i8", "u8") or real.type.dtype.name != "f32":
        return decline("ONNX quantizes f32 to bytes", found=f"{real.type.dtype}, {quantized.type.dtype}")
    if node["scale"].type.dtype.name != "f32":
        return decline("a scale must be f32", scale=str(node["scale"].type))
    zero = node["zero_point"] or _zeros(g, node["scale"], quantized)
    if isinstance(zero, Decline):
        return zero
    operator = "QuantizeLinear" if down else "DequantizeLinear"
    axis = node["axis"] if node["scale"].type.rank else None
    return [g.add(operator, [node["x"], node["scale"], zero], axis=axis)]


def _zeros(g: ExportGraph, scale: ExternalValue, quantized: ExternalValue) -> str | Decline:
    """Return the zero point, which determines the quantized type."""
    shape = reshape_shape(scale.type.shape)
    if shape is None or -1 in shape:
        return decline("a vector of scales must have a fixed size", scale=str(scale.type))
    return g.array(np.zeros(shape, quantized.type.dtype.to_numpy()))
