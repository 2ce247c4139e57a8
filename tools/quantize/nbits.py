"""Weights of matrix products as integers of a few bits: f32 and f16 models to `MatMulNBits`."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mirlo.frontends.onnx.model import load
from mirlo.runtime.bit_fields import pack_fields
from mirlo.runtime.files import require_writable, write_regular
from mirlo.runtime.names import terminal
from mirlo.runtime.records import dataclass
from mirlo.tools.quantize.errors import QuantizationError
from mirlo.tools.quantize.options import LEVELS, Quantization

if TYPE_CHECKING:
    import onnx

DOMAIN = "com.microsoft"
EXTERNAL_BYTES = 1 << 26
"""Bytes of a model from which its weights are stored in a file beside it: protobuf ends at 2 GiB."""
_ROWS_BYTES = 1 << 24
"""Bytes of the weights that are quantized at a time."""
_SHRUNK = np.linspace(0.7, 1.1, 17)
"""Factors of the scale that the method `k_quant` tries."""


@dataclass(frozen=True)
class NbitsWeights:
    """The inputs of MatMulNBits: bytes [N, blocks, bytes of a block], scales [N, blocks], packed zero points."""

    packed: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray | None


def quantize_weights(weights: np.ndarray, how: Quantization) -> NbitsWeights:
    """Quantize the columns of a matrix [K, N]."""
    rows, columns = weights.shape
    blocks = -(-rows // how.block)
    codes = np.zeros((columns, blocks, how.block), np.uint8)
    scales = np.zeros((columns, blocks), np.float32)
    zeros = np.full((columns, blocks), 1 << (how.bits - 1), np.uint8)
    step = max(1, _ROWS_BYTES // (4 * rows))
    for first in range(0, columns, step):
        part = weights[:, first : first + step].T.astype(np.float32)
        x = np.zeros((len(part), blocks * how.block), np.float32)
        x[:, :rows] = part
        at = slice(first, first + step)
        codes[at], scales[at], zeros[at] = _quantized(x.reshape(len(part), blocks, how.block), how)
    packed = pack_fields(codes.reshape(columns, -1), how.bits).reshape(columns, blocks, -1)
    scales = scales.astype(weights.dtype)
    return NbitsWeights(packed, scales, None if how.symmetric else pack_fields(zeros, how.bits))


def _quantized(x: np.ndarray, how: Quantization) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return codes, scales and zero points of blocks [..., block]."""
    scale, zero = block_parameters(x, how)
    codes = nearest_codes(x, scale, zero, (1 << how.bits) - 1)
    return codes.astype(np.uint8), scale, zero.astype(np.uint8)


def block_parameters(x: np.ndarray, how: Quantization) -> tuple[np.ndarray, np.ndarray]:
    """Return scales and zero points of blocks [..., block], as f32."""
    middle, top = 1 << (how.bits - 1), (1 << how.bits) - 1
    if how.symmetric:
        # The value of largest magnitude gets the code 0, which reaches further than the largest one.
        largest = np.take_along_axis(x, np.abs(x).argmax(-1)[..., None], -1)[..., 0]
        scale, zero = largest / -middle, np.full(x.shape[:-1], middle, np.float32)
    else:
        low, high = np.minimum(x.min(-1), 0), np.maximum(x.max(-1), 0)
        scale = (high - low) / top
        zero = np.clip(np.rint(-low * _inverse(scale)), 0, top)
    return _searched(x, scale, zero, how) if how.method == "k_quant" else (scale, zero)


def _searched(x: np.ndarray, scale: np.ndarray, zero: np.ndarray, how: Quantization) -> tuple[np.ndarray, np.ndarray]:
    """Return scales and zero points of least squares: large values of a block weigh more."""
    top = (1 << how.bits) - 1
    weight = np.sqrt((x * x).mean(-1, keepdims=True)) + np.abs(x)
    best = (weight * ((nearest_codes(x, scale, zero, top) - zero[..., None]) * scale[..., None] - x) ** 2).sum(-1)
    first = scale
    low = np.minimum(x.min(-1), 0)
    for factor in _SHRUNK:
        tried = (first * factor).astype(np.float32)
        point = zero if how.symmetric else np.clip(np.rint(-low * factor * _inverse(tried)), 0, top)
        centred = nearest_codes(x, tried, point, top) - point[..., None]
        norm = (weight * centred * centred).sum(-1)
        fitted = np.where(norm > 0, (weight * centred * x).sum(-1) / np.where(norm > 0, norm, 1), tried)
        error = (weight * (centred * fitted[..., None] - x) ** 2).sum(-1)
        # The codes of the fitted scale may differ, and be better still: they are computed again at the end.
        better = error < best
        scale = np.where(better, fitted, scale).astype(np.float32)
        zero = np.where(better, point, zero).astype(np.float32)
        best = np.where(better, error, best)
    return scale, zero


def nearest_codes(x: np.ndarray, scale: np.ndarray, zero: np.ndarray, top: int) -> np.ndarray:
    """Return the codes of the nearest values of blocks [..., block], as f32."""
    return np.asarray(np.clip(np.rint(x * _inverse(scale)[..., None]) + zero[..., None], 0, top).astype(np.float32))


def _inverse(scale: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.where(scale != 0, 1 / np.where(scale != 0, scale, 1), 0).astype(np.float32)
    return result


def quantize_model(model: onnx.ModelProto, how: Quantization) -> int:
    """Quantize the constant right operands of an `onnx.ModelProto`'s products in place; return how many."""
    from onnx import helper, numpy_helper

    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    by_initializer: dict[str, list[str]] = {}
    count = 0
    for node in graph.node:
        is_product = node.op_type == "MatMul" and node.domain in ("", "ai.onnx") and len(node.input) == 2
        tensor = constants.get(node.input[1]) if is_product else None
        if tensor is None or len(tensor.dims) != 2 or tensor.data_type not in (1, 10) or tensor.dims[0] < how.block:
            continue
        rows, columns = tensor.dims
        if tensor.name not in by_initializer:
            quantized = quantize_weights(_array(tensor), how)
            parts = {"packed": quantized.packed, "scales": quantized.scales, "zero_points": quantized.zeros}
            arrays = {f"{tensor.name}.{name}": array for name, array in parts.items() if array is not None}
            graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
            by_initializer[tensor.name] = list(arrays)
        node.input[:] = [node.input[0], *by_initializer[tensor.name]]
        node.op_type, node.domain = "MatMulNBits", DOMAIN
        attributes = {"K": rows, "N": columns, "bits": how.bits, "block_size": how.block}
        attributes["accuracy_level"] = LEVELS[how.activations]
        node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        count += 1
    if not count:
        raise QuantizationError(
            f"no product to quantize: expected MatMul with a constant f32 or f16 matrix of {how.block} rows or more"
        )
    read = Counter(name for node in graph.node for name in node.input)
    for name in by_initializer:
        if not read[name] and not any(output.name == name for output in graph.output):
            graph.initializer.remove(constants[name])
    if all(entry.domain != DOMAIN for entry in model.opset_import):
        model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return count


def _array(tensor: onnx.TensorProto) -> np.ndarray:
    """Return the values of a matrix: as many as its dims say, and finite."""
    from onnx import numpy_helper

    try:
        array = np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError) as error:
        raise QuantizationError(f"tensor '{terminal(tensor.name)}' cannot be read: {error}") from None
    if not np.isfinite(array).all():
        raise QuantizationError(f"tensor '{terminal(tensor.name)}' has values that are not finite: no scale fits them")
    return array


def _load(source: str | os.PathLike[str]) -> onnx.ModelProto:
    """Return the model of a file with its weights."""
    import onnx

    load(source)  # refuses what no command opens
    try:
        return onnx.load(os.fspath(source))
    except (onnx.checker.ValidationError, ValueError) as error:
        raise QuantizationError(f"{source}: not an ONNX model, or a damaged one: {terminal(str(error))}") from None


def quantize_file(source: str | os.PathLike[str], target: str | os.PathLike[str], how: Quantization) -> int:
    """Quantize the products of an ONNX file and write another; return how many there are."""
    if Path(source).resolve() == Path(target).resolve():
        raise QuantizationError(f"'{target}' is the model itself: name another file")
    model = _load(source)
    count = quantize_model(model, how)
    save_model(model, target)
    return count


def save_model(model: onnx.ModelProto, target: str | os.PathLike[str]) -> None:
    """Write a model; one that protobuf cannot hold has its weights in a file beside it."""
    from onnx import external_data_helper

    if model.ByteSize() >= EXTERNAL_BYTES:
        data = Path(f"{os.fspath(target)}.data")
        require_writable(data).unlink(missing_ok=True)  # onnx appends to a file that exists
        external_data_helper.convert_model_to_external_data(model, location=data.name)
        external_data_helper.write_external_data_tensors(model, str(data.parent))
    write_regular(target, model.SerializeToString())
