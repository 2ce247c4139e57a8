"""Attention of `com.microsoft` in which each block of tokens sees some blocks of keys only."""

from __future__ import annotations

import numpy as np

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.budget import require_table
from mirlo.frontends.library.attention import join_heads
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.microsoft_cache import (
    PAST_KEY,
    PAST_VALUE,
    attended,
    first_rows,
    projected,
    rotated,
    token_positions,
    total_length,
    written,
)
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.tensor import Tensor

ROWS, COLUMNS, TOTAL, LENGTHS, COS, SIN = range(5, 11)


@converter("SparseAttention", domain="com.microsoft")
def sparse_attention(node: Node) -> Converted:
    """Attend each block of tokens to the blocks of keys that it sees, and causally.

    Inputs: query, key, value, cache of keys and of values with room for all tokens, blocks that are seen (CSR), the
    length of the longest sequence, those of all sequences, cos and sin of the rotation by position.
    """
    heads, kv_heads, block = (node.attr.int(name) for name in ("num_heads", "kv_num_heads", "sparse_block_size"))
    query, key, value = projected(node, heads, kv_heads)
    batch, _, length, size = query.type.shape
    lengths = node[LENGTHS].reshape((batch, 1)).cast("i64")
    indices = token_positions(node, lengths - 1, length)
    if node.attr.bool("do_rotary", 0):
        query, key = (rotated(node, rows, indices.each, (COS, SIN)) for rows in (query, key))
    else:
        node.attr.ignore("rotary_interleaved")
        node.ignore(COS, SIN)
    room = node.type(PAST_KEY).shape[2]
    count = D.minimum(room, total_length(node, TOTAL))
    key, value = (written(node, node[i], new, indices, room) for i, new in ((PAST_KEY, key), (PAST_VALUE, value)))
    column = node.index_vector(count)
    row = indices.each.expand_dims(1, 3)
    is_before = column.expand_dims(0, 1, 2) <= row
    blocks = _seen_blocks(node, block)
    if heads % len(blocks):
        raise NodeError(f"{heads} heads do not share {len(blocks)} layouts of blocks evenly")
    seen = is_before & _by_token(node, blocks, block, heads, indices.each, column)
    result, _ = attended(node, query, first_rows(node, key, count), first_rows(node, value, count), seen, None)
    return join_heads(result), key, value


def _seen_blocks(node: Node, block: int) -> np.ndarray:
    """Return which blocks of keys each block of tokens sees [layouts, blocks, blocks], from their CSR form."""
    if block < 1:
        raise NodeError(f"attribute 'sparse_block_size' must be positive, got {block}")
    starts, columns = node.array(ROWS), node.array(COLUMNS)
    if starts.ndim != 2 or columns.ndim != 2 or len(starts) != len(columns) or not len(starts) or starts.shape[1] < 2:
        raise NodeError(f"block_row_indices {starts.shape} and block_col_indices {columns.shape} are not of one layout")
    layouts, count = len(starts), starts.shape[1] - 1
    require_table("the blocks that tokens see", layouts * count * count)
    seen = np.zeros((layouts, count, count), bool)
    for layout in range(layouts):
        for row in range(count):
            begin, end = starts[layout, row : row + 2]
            blocks = columns[layout, begin:end]
            if not 0 <= begin <= end <= columns.shape[1] or ((blocks < 0) | (blocks >= count)).any():
                raise NodeError(f"row {row} of layout {layout} has blocks outside of the {count} that there are")
            seen[layout, row, blocks] = True
    return seen


def _by_token(node: Node, blocks: np.ndarray, block: int, heads: int, tokens: Tensor, keys: Tensor) -> Tensor:
    """Return which keys are seen [batch, heads, length, keys]; layouts belong to the heads in turn."""
    layouts = len(blocks)
    size = node.constant(block, "i64")
    of_tokens, of_keys = (places // size for places in (tokens, keys))
    rows = node.constant(blocks).gather(of_tokens, 1)
    result = rows.gather(of_keys, 3).permute((1, 0, 2, 3))
    batch, _, length, count = result.type.shape
    each = result.expand_dims(1)
    each = each.expand((batch, heads // layouts, layouts, length, count))
    return each.reshape((batch, heads, length, count))
