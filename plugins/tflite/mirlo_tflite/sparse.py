"""Sparse constants of TensorFlow Lite's files, which are replaced by dense ones.

The format is TACO's: a tensor is a tree of levels in a traversal order. A level stores all its indices (dense) or those
between two segments (compressed). Blocks are additional dims after the tensor's own, each within one of these, and
their levels are dense.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mirlo_tflite.flatbuffer import LARGEST, Table, clear_field, replace_vector
from mirlo_tflite.schema import (
    BUFFER_DATA,
    COMPRESSED,
    GRAPH_TENSORS,
    INDEX_DTYPES,
    ITEM_SIZES,
    LEVEL_FORMAT,
    LEVEL_INDICES,
    LEVEL_SEGMENTS,
    LEVEL_SIZE,
    MODEL_BUFFERS,
    MODEL_GRAPHS,
    SPARSITY_BLOCKS,
    SPARSITY_LEVELS,
    SPARSITY_ORDER,
    TENSOR_BUFFER,
    TENSOR_NAME,
    TENSOR_SHAPE,
    TENSOR_SPARSITY,
    TENSOR_TYPE,
)


def densify(root: Table) -> bytes | None:
    """Return a model's file with dense constants, or None if none is sparse."""
    tensors = [tensor for graph in root.tables(MODEL_GRAPHS) for tensor in graph.tables(GRAPH_TENSORS)]
    sparse = [tensor for tensor in tensors if tensor.position(TENSOR_SPARSITY) is not None]
    if not sparse:
        return None
    buffers = root.tables(MODEL_BUFFERS)
    written = bytearray(root.content)
    stored: dict[int, np.ndarray] = {}
    for tensor in sparse:
        index = tensor.number(TENSOR_BUFFER, "<I")
        if index >= len(buffers):
            raise ValueError(f"tensor '{tensor.text(TENSOR_NAME)}' has buffer {index} of {len(buffers)}")
        dense = _expand(tensor, buffers[index])
        if not np.array_equal(stored.setdefault(index, dense), dense):
            raise ValueError(f"tensor '{tensor.text(TENSOR_NAME)}' shares elements with another, in another order")
        clear_field(written, tensor, TENSOR_SPARSITY)
    for index, dense in stored.items():
        position = buffers[index].position(BUFFER_DATA)
        if position is None:
            raise ValueError("a sparse tensor has a buffer without elements")
        replace_vector(written, position, dense.reshape(-1))
    return bytes(written)


def _expand(tensor: Table, buffer: Table) -> np.ndarray:
    """Return the elements of a sparse tensor in row-major order, each as bytes."""
    name = tensor.text(TENSOR_NAME)
    shape = tensor.vector(TENSOR_SHAPE, "<i4").tolist()
    item = ITEM_SIZES.get(tensor.number(TENSOR_TYPE, "<b"))
    if item is None:
        raise ValueError(f"tensor '{name}' is sparse and has elements of type {tensor.number(TENSOR_TYPE, '<b')}")
    if min(shape, default=1) < 0 or math.prod(shape) * item >= LARGEST:
        raise ValueError(f"tensor '{name}' has the shape {shape}")
    sparsity = tensor.table(TENSOR_SPARSITY)
    assert sparsity is not None
    try:
        position = _positions(sparsity, shape)
    except ValueError as error:
        raise ValueError(f"tensor '{name}' is sparse, and {error}") from None
    data = buffer.vector(BUFFER_DATA, "u1")
    if len(data) != len(position) * item:
        raise ValueError(f"tensor '{name}' stores {len(data)} bytes, expected {len(position)} elements of {item}")
    dense = np.zeros((math.prod(shape), item), np.uint8)
    dense[position] = data.reshape(-1, item)
    return dense


def _positions(sparsity: Table, shape: Sequence[int]) -> np.ndarray:
    """Return the position in the tensor of each stored element, in storage order."""
    order, block_map = sparsity.vector(SPARSITY_ORDER, "<i4").tolist(), sparsity.vector(SPARSITY_BLOCKS, "<i4").tolist()
    levels, rank = sparsity.tables(SPARSITY_LEVELS), len(shape)
    if sorted(order) != list(range(rank + len(block_map))) or len(levels) != len(order):
        raise ValueError(f"its traversal order is {order}, with {len(levels)} levels and {len(block_map)} blocks")
    if any(not 0 <= dim < rank for dim in block_map) or len(set(block_map)) != len(block_map):
        raise ValueError(f"its blocks are in the dims {block_map} of {rank}")
    sizes = _expanded_shape(shape, order, block_map, levels)
    coordinates: list[np.ndarray] = [np.zeros(1, np.int64) for _ in sizes]
    stored = np.zeros(1, np.int64)
    for dim, level in zip(order, levels, strict=True):
        parents, indices, stored = _descend(level, stored, sizes[dim])
        coordinates = [each[parents] if each.size else each for each in coordinates]
        coordinates[dim] = indices
    if not np.array_equal(stored, np.arange(len(stored))):
        raise ValueError("its segments overlap or leave elements out")
    for block, dim in enumerate(block_map):
        coordinates[dim] = coordinates[dim] * sizes[rank + block] + coordinates[rank + block]
    result = np.zeros(len(stored), np.int64)
    for dim, size in enumerate(shape):
        result = result * size + coordinates[dim]
    return result


def _expanded_shape(shape: Sequence[int], order: list[int], block_map: list[int], levels: list[Table]) -> list[int]:
    """Return the sizes of a tensor's dims, divided by their blocks, and of the blocks."""
    sizes = list(shape)
    for block, dim in enumerate(block_map):
        size = levels[order.index(len(shape) + block)].number(LEVEL_SIZE, "<i")
        if size < 1 or sizes[dim] % size:
            raise ValueError(f"its blocks have the size {size} in a dim of {shape[dim]}")
        sizes[dim] //= size
        sizes.append(size)
    return sizes


def _descend(level: Table, stored: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each entry of a level its parent, its index in the dim, and its place in the level."""
    if level.number(LEVEL_FORMAT, "<b") != COMPRESSED:
        if level.number(LEVEL_SIZE, "<i") != size:
            raise ValueError(f"a level has {level.number(LEVEL_SIZE, '<i')} indices in a dim of {size}")
        # Each entry has a segment of the next level, or an element.
        if len(stored) * size > len(level.content):
            raise ValueError(f"its dense levels have {len(stored) * size} entries, more than the file's bytes")
        indices = np.tile(np.arange(size), len(stored))
        return np.repeat(np.arange(len(stored)), size), indices, np.repeat(stored * size, size) + indices
    segments, all_indices = _index_vector(level, LEVEL_SEGMENTS), _index_vector(level, LEVEL_INDICES)
    if len(stored) and int(stored.max()) + 1 >= len(segments):
        raise ValueError(f"a level has {len(segments)} segments for {int(stored.max()) + 1} entries")
    begin = segments[stored]
    counts = segments[stored + 1] - begin
    # No entry occurs twice, so a damaged file cannot ask for more than it stores.
    if (counts < 0).any() or int(counts.sum()) > len(all_indices) or (begin < 0).any():
        raise ValueError("its segments overlap or leave elements out")
    parents = np.repeat(np.arange(len(stored)), counts)
    first = np.cumsum(counts) - counts
    place = np.arange(len(parents)) - first[parents] + begin[parents]
    if len(place) and int(place.max()) >= len(all_indices):
        raise ValueError(f"a level has {len(all_indices)} indices, and a segment reaches {int(place.max())}")
    indices = all_indices[place]
    if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < size:
        raise ValueError(f"a level has the index {int(indices.max())} in a dim of {size}")
    return parents, indices, place


def _index_vector(level: Table, field: int) -> np.ndarray:
    """Return a vector of one of three types, which the preceding field names."""
    table, dtype = level.table(field + 1), INDEX_DTYPES.get(level.number(field, "<B"))
    if table is None or dtype is None:
        raise ValueError("a compressed level has no segments or no indices")
    return table.vector(0, dtype).astype(np.int64)
