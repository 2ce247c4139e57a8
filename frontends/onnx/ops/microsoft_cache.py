"""Attention of `com.microsoft` with a key/value cache, as in decoders of language models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node, type_of
from mirlo.frontends.onnx.ops.attention import split_heads
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.runtime_sizes import as_scalar, positions

DOMAIN = "com.microsoft"
PAST_KEY, PAST_VALUE, LAST_PLACE, TOTAL, COS, SIN, POSITIONS, BIAS = 3, 4, 5, 6, 7, 8, 9, 10
HIDDEN = -1e9


@dataclass(frozen=True)
class _TokenPositions:
    """Positions of the new tokens: as numbers [batch, 1] and [batch, length]."""

    first: Any
    each: Any


@converter("GroupQueryAttention", domain=DOMAIN)
def group_query_attention(node: Node) -> Any:
    """Attend new tokens to the cache and, causally, to each other.

    Inputs: query (or all three, packed), key, value, cache of keys and of values, the last used position of each
    sequence after this step, the maximum length, cos and sin of the rotation by position, positions, bias of scores.
    """
    heads, kv_heads = node.attr.int("num_heads"), node.attr.int("kv_num_heads")
    for name, plain in (("softcap", 0.0), ("smooth_softmax", 0), ("qk_output", 0)):
        if name in node.attr and node.attr.plain(name) != plain:
            raise NodeError(f"attribute '{name}' = {node.attr.plain(name)} is not supported")
    query, key, value = _projected(node, heads, kv_heads)
    batch, _, length, size = type_of(query).shape
    places = _token_positions(node, batch, length)
    if node.attr.bool("do_rotary", 0):
        query, key = _rotated(node, query, places), _rotated(node, key, places)
    else:
        node.attr.ignore("rotary_interleaved")
        node.ignore(COS, SIN, POSITIONS)
    if node.has(PAST_KEY):
        room = _cache_length(node, length)
        key = _written(node, node[PAST_KEY], key, places, room)
        value = _written(node, node[PAST_VALUE], value, places, room)
    else:
        node.ignore(TOTAL)
    mask = _mask(node, places, type_of(key).shape[2], type_of(query))
    result = node.emit("attention", query, key, value, mask, scale=node.attr.float("scale", 0.0) or None)
    rows = node.emit("permute", result, axes=(0, 2, 1, 3))
    return node.emit("reshape", rows, shape=(batch, length, heads * size)), key, value


def _projected(node: Node, heads: int, kv_heads: int) -> tuple[Any, Any, Any]:
    parts = [node.optional(i) for i in range(3)]
    if parts[1] is None:
        width = node.type(0).shape[-1]
        if not isinstance(width, int) or width % (heads + 2 * kv_heads):
            raise NodeError(f"input #0 must hold queries, keys and values of all heads, got {node.type(0)}")
        size = width // (heads + 2 * kv_heads)
        parts = list(node.emit("split", node[0], axis=2, sizes=[heads * size, kv_heads * size, kv_heads * size]))
    counts = ((heads, "num_heads"), (kv_heads, "kv_num_heads"), (kv_heads, "kv_num_heads"))
    query, key, value = (split_heads(node, x, *given) for x, given in zip(parts, counts, strict=True))
    return query, key, value


def _token_positions(node: Node, batch: Dim, length: Dim) -> _TokenPositions:
    last = node.emit("cast", node.emit("reshape", node[LAST_PLACE], shape=(batch, 1)), dtype="i64")
    if node.has(PAST_KEY):
        first = node.emit("subtract", last, as_scalar(node, length - 1))
        # In a prompt, sequences shorter than the longest are padded at the end.
        first = node.emit("maximum", first, node.constant(np.int64(0)))
    else:
        first = node.emit("full", shape=(batch, 1), value=0.0, dtype="i64")
    return _TokenPositions(first, node.emit("add", first, node.emit("expand_dims", positions(node, length), axes=[0])))


def _rotated(node: Node, x: Any, places: _TokenPositions) -> Any:
    positions = node[POSITIONS] if node.has(POSITIONS) else places.each
    cos, sin = (node.emit("expand_dims", node.emit("gather", node[i], positions, axis=0), axes=[1]) for i in (COS, SIN))
    return node.emit("rotary_embedding", x, cos, sin, interleaved=node.attr.bool("rotary_interleaved", 0))


def _cache_length(node: Node, length: Dim) -> Dim:
    """Return the cache length afterwards: unchanged, or that of the longest sequence.

    If it is dynamic, it has room for the new tokens.
    """
    before = node.type(PAST_KEY).shape[2]
    declared = node.declared(1)
    if node.value(TOTAL).is_constant:
        return D.maximum(before, int(node.scalar(TOTAL)))
    node.ignore(TOTAL)
    return declared[2] if declared is not None and len(declared) == 4 else before + length


def _written(node: Node, cache: Any, new: Any, places: _TokenPositions, room: Dim) -> Any:
    """Return the cache with the new keys or values at their positions."""
    kind = type_of(new)
    batch, heads, length, size = kind.shape
    more = room - type_of(cache).shape[2]
    if more != 0:
        empty = node.emit("full", shape=(batch, heads, more, size), value=0.0, dtype=kind.dtype.name)
        cache = node.emit("concat", [cache, empty], axis=2)
    at = node.emit("reshape", places.each, shape=(batch, 1, length, 1))
    indices = node.emit("expand", at, shape=(batch, heads, length, size))
    return node.emit("scatter_elements", cache, indices, new, axis=2)


def _mask(node: Node, places: _TokenPositions, keys: Dim, query: Any) -> Any:
    """Return what is added to the scores: [batch, 1, length, keys]."""
    column = node.emit("expand_dims", positions(node, keys), axes=[0, 1, 2])
    own = node.emit("expand_dims", places.each, axes=[1, 3])
    seen = node.emit("less_equal", column, own)
    window = node.attr.int("local_window_size", -1)
    if window > 0:
        start = node.emit("subtract", own, node.constant(np.int64(window)))
        seen = node.emit("logical_and", seen, node.emit("greater", column, start))
    added = node.emit("where", seen, node.constant(0, query), node.constant(_hidden(query), query))
    return node.emit("add", added, node[BIAS]) if node.has(BIAS) else added


def _hidden(query: Any) -> float:
    return -1e4 if query.dtype.bits < 32 else HIDDEN
