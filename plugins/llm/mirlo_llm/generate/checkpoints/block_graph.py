"""Block-quantized matrices in graphs: operands of products with packed weights, and embedding rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mirlo.extend.frontend import GraphBuilder, Tensor, TensorType
from mirlo.extend.quantize import pack_fields
from mirlo_llm.generate.checkpoints.block_weights import BlockWeights

_KINDS = {"float32": "f32", "float16": "f16", "uint8": "u8", "int8": "i8", "float8_e4m3fn": "f8e4m3fn"}


def block_matrix(b: GraphBuilder, weights: BlockWeights) -> Tensor:
    """Return a matrix as f32 by the operators that products with packed weights match."""
    if weights.order is not None:
        return block_matrix(b, replace(weights, order=None)).gather(b.constant(np.argsort(weights.order)), 1)
    (rows, width), kind = weights.shape, TensorType.of(weights.shape, weights.dtype)
    scales, zeros = _constant(b, weights.scales), None
    if weights.table:
        blocks = TensorType.of((rows, width // weights.block, weights.block), weights.dtype)
        packed = weights.codes.reshape(*blocks.static_shape[:2], -1)
        numbers = _numbers(b, weights, Tensor(b, blocks, packed=packed))  # products match codes in blocks
        return (numbers * scales.expand_dims(2)).reshape((rows, width))
    codes = b.constant(weights.codes, kind) if weights.bits == 8 else Tensor(b, kind, packed=weights.codes)
    if weights.zero_points is not None:
        zeros = _constant(b, weights.zero_points)
    elif weights.zeros is not None:
        zeros = _packed_zeros(b, weights.zeros, weights.bits)
    elif weights.zero:
        zeros = b.emit("full", shape=scales.shape, value=weights.zero, dtype=weights.dtype)
    return b.emit("dequantize", codes, scales, zeros, axis=1, block=weights.block, dtype="f32")


def block_rows(b: GraphBuilder, weights: BlockWeights, index: Tensor) -> Tensor:
    """Return rows of a matrix, dequantized to f32."""
    codes = _constant(b, weights.codes).gather(index)
    if weights.bits != 8:
        codes = b.emit("unpack", codes, dtype=weights.dtype)
    blocks = (*index.shape, weights.shape[1] // weights.block, weights.block)
    result = _numbers(b, weights, codes.reshape(blocks))
    if weights.zeros is not None:
        result = result - _constant(b, weights.zeros).gather(index).cast("f32").expand_dims(-1)
    result = result * _constant(b, weights.scales).gather(index).cast("f32").expand_dims(-1)
    if weights.offsets is not None:
        result = result + _constant(b, weights.offsets).gather(index).expand_dims(-1)
    result = result.reshape((*index.shape, weights.shape[1]))
    return result if weights.order is None else result.gather(b.constant(np.argsort(weights.order)), result.rank - 1)


def _numbers(b: GraphBuilder, weights: BlockWeights, codes: Tensor) -> Tensor:
    """Return the values of codes before scaling."""
    if weights.table:
        return _constant(b, np.array(weights.table, np.float32)).gather(codes.cast("i32"))
    numbers = codes.cast("f32")
    return numbers - weights.zero if weights.zero else numbers


def _packed_zeros(b: GraphBuilder, zeros: np.ndarray, bits: int) -> Tensor:
    """Return the zero points in the type of codes; rows are padded to whole bytes and cut."""
    if bits == 8:
        return _constant(b, zeros)
    packed = pack_fields(zeros, bits)
    rows, width = len(packed), packed.shape[1] * 8 // bits
    wide = Tensor(b, TensorType.of((rows, width), f"u{bits}"), packed=packed)
    return wide if width == zeros.shape[1] else wide.slice(1, 0, zeros.shape[1])


def _constant(b: GraphBuilder, array: np.ndarray) -> Tensor:
    return b.constant(array, _KINDS[array.dtype.name])
