"""Keys and values of `MultiHeadAttention` after a past: appended, or written into caches with room, also of beams."""

from __future__ import annotations

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.frontends.builder import sizes_if
from mirlo.frontends.library.attention import swap_heads
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.microsoft_cache import first_rows
from mirlo.frontends.tensor import Tensor, concat, maximum, minimum, where
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class CachedRows:
    """Keys and values, [batch, heads, rows, size] each."""

    read: tuple[Tensor, Tensor]
    """Those that are attended to."""
    kept: tuple[Tensor, Tensor]
    """Those that are the outputs."""
    before: Dim | None = None
    """The rows of the past in caches with room."""
    has_past: bool = False


def read_caches(node: Node, key: Tensor, value: Tensor, past: int, length: int, beams: int, mask: int) -> CachedRows:
    """Append new keys and values to those of the past; the arguments are numbers of inputs.

    With a length of the past, the caches have room for the new rows, and stay as large.
    """
    if not node.has(past) or not node.has(past + 1):
        for index in (length, beams):
            if node.has(index):
                raise NodeError(f"input '{node.input_name(index)}' needs caches of keys and values")
        return CachedRows((key, value), (key, value))
    new = key.type.shape[2]
    if not node.has(length):
        caches = tuple(concat([node[past + i], rows], axis=2) for i, rows in enumerate((key, value)))
        before: Dim = node.type(past).shape[2]
    else:
        before = _length(node, length, node.type(past).shape[2], new, mask)
        batch = key.type.shape[0]
        at = node.index_vector(new) + node.size(before)
        at = at.expand_dims(0).expand((batch, new))
        caches = tuple(
            node.emit("cache_write", node[past + i], rows, at, shape=node.type(past + i).shape)
            for i, rows in enumerate((key, value))
        )
    total = before + new
    if node.has(length):
        total = D.minimum(total, node.type(past).shape[2])
    read = [first_rows(node, rows, total) for rows in caches]
    if node.has(beams):
        source = _sources(node, beams, key.type.shape[0], total, before)
        read = [_of_beams(node, rows, source) for rows in read]
    return CachedRows((read[0], read[1]), (caches[0], caches[1]), before, True)


def _length(node: Node, index: int, room: Dim, new: Dim, mask: int) -> Dim:
    """Return the rows of the past, bound at run time; a mask has as many columns as there are rows afterwards."""
    past_rows, what = node.vector(index), "the rows of the past, input 'past_sequence_length'"
    if not node.has(mask) or node.type(mask).rank < 2:
        (before,) = node.bind(past_rows, what, [room])
        return before
    columns = node.type(mask).shape[-1]
    fits = past_rows.equals(node.size(columns - new))
    node.bind(sizes_if(fits, past_rows), f"{what}, which must fit the {columns} columns of the mask", [room])
    return columns - new


def _sources(node: Node, index: int, batch: Dim, rows: Dim, before: Dim) -> Tensor:
    """Return which sequence each row of each sequence is read from: i64[batch, rows]; new rows are its own."""
    tensor_type = node.type(index)
    if tensor_type.rank != 3 or not isinstance(tensor_type.shape[1], int):
        raise NodeError(
            f"input '{node.input_name(index)}' must be [batch, beams, rows] of a known number of beams, "
            f"got {tensor_type}"
        )
    beams = tensor_type.shape[1]
    own = node.index_vector(batch).expand_dims(1)
    count = node.constant(beams, own.type)
    first = own // count * count
    position = node.index_vector(rows)
    outer = node[index].cast("i64")
    flat = outer.reshape((tensor_type.shape[0] * beams * tensor_type.shape[2],))
    at = own * node.size(tensor_type.shape[2]) + position
    beam = flat.gather(at)
    limited = minimum(maximum(beam, 0), beams - 1)
    is_past = position < node.size(before)
    return where(is_past, first + limited, own)


def _of_beams(node: Node, rows: Tensor, source: Tensor) -> Tensor:
    """Return keys or values [batch, heads, rows, size], each row of the sequence that it comes from."""
    batch, heads, count, size = rows.type.shape
    flat = swap_heads(rows).reshape((batch * count, heads, size))
    start = source * node.size(count)
    at = start + node.index_vector(count)
    return swap_heads(flat.gather(at))
