"""Block-quantized matrices in graphs: operands of products with packed weights, and embedding rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from mirlo.extend.frontend import GraphBuilder, Tensor
from mirlo.extend.quantize import pack_fields
from mirlo_llm.generate.checkpoints.block_weights import BlockWeights

_KINDS = {"float32": "f32", "float16": "f16", "uint8": "u8", "int8": "i8", "float8_e4m3fn": "f8e4m3fn"}


Part = Callable[[BlockWeights], np.ndarray]
"""Returns one of the arrays of a matrix."""
Constant = Callable[[Part], Tensor]
"""Returns the constant of an array of a matrix, or the one that is chosen among those of several matrices."""


def block_matrix(b: GraphBuilder, weights: BlockWeights) -> Tensor:
    """Return a matrix as f32 by the operators that products with packed weights match."""
    if weights.order is not None:
        return block_matrix(b, replace(weights, order=None)).gather(b.constant(np.argsort(weights.order)), 1)
    return _matrix(b, weights, lambda part: _constant(b, part(weights)))


def chosen_block_matrix(b: GraphBuilder, matrices: Sequence[BlockWeights], position: Tensor) -> Tensor:
    """Return one of several matrices of one form and in order, at a position that is known at run time, as f32."""

    def constant(part: Part) -> Tensor:
        arrays = [part(each) for each in matrices]
        return b.stack_constants(arrays, _KINDS[arrays[0].dtype.name]).gather(position)

    return _matrix(b, matrices[0], constant)


def _matrix(b: GraphBuilder, form: BlockWeights, constant: Constant) -> Tensor:
    """Return a matrix of a form, whose arrays are constants, as f32."""
    rows, width = form.shape
    scales, zeros = constant(lambda each: each.scales), None
    if form.table:
        blocks = (rows, width // form.block, form.block)
        codes = b.emit("unpack", constant(lambda each: each.codes.reshape(*blocks[:2], -1)), dtype=form.dtype)
        numbers = _numbers(b, form, codes)  # products match codes in blocks
        return (numbers * scales.expand_dims(2)).reshape((rows, width))
    codes = constant(lambda each: each.codes)
    if form.bits != 8:
        codes = b.emit("unpack", codes, dtype=form.dtype)
    if form.offsets is not None:
        zeros = constant(_zero_points)
    elif form.zeros is not None:
        zeros = _packed_zeros(b, form, constant)
    elif form.zero:
        zeros = b.emit("full", shape=scales.shape, value=form.zero, dtype=form.dtype)
    return b.emit("dequantize", codes, scales, zeros, axis=1, block=form.block, dtype="f32")


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


def _zero_points(weights: BlockWeights) -> np.ndarray:
    points = weights.zero_points
    assert points is not None  # of a form with offsets
    return points


def _zeros(weights: BlockWeights) -> np.ndarray:
    assert weights.zeros is not None  # of a form with zero points
    return weights.zeros


def _packed_zeros(b: GraphBuilder, form: BlockWeights, constant: Constant) -> Tensor:
    """Return the zero points in the type of codes; rows are padded to whole bytes and cut."""
    if form.bits == 8:
        return constant(_zeros)
    wide = b.emit("unpack", constant(lambda each: pack_fields(_zeros(each), form.bits)), dtype=f"u{form.bits}")
    blocks = _zeros(form).shape[1]
    return wide if wide.shape[1] == blocks else wide.slice(1, 0, blocks)


def _constant(b: GraphBuilder, array: np.ndarray) -> Tensor:
    return b.constant(array, _KINDS[array.dtype.name])
