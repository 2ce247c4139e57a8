"""Attention of `com.microsoft` with a key/value cache, as in decoders of language models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node, type_of
from mirlo.frontends.onnx.ops.attention import split_heads
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.runtime_sizes import as_scalar, bind, positions, vector
from mirlo.frontends.onnx.values import Converted, as_dim

DOMAIN = "com.microsoft"
PAST_KEY, PAST_VALUE, LAST_PLACE, TOTAL, COS, SIN, POSITIONS, BIAS, SINK = range(3, 12)
HIDDEN = -1e9


@dataclass(frozen=True)
class _TokenPositions:
    """Positions of the new tokens: as numbers [batch, 1] and [batch, length]."""

    first: ir.Value
    each: ir.Value
    last: ir.Value
    """The last position of each sequence after this step: [batch, 1]."""


@converter("GroupQueryAttention", domain=DOMAIN)
def group_query_attention(node: Node) -> Converted:
    """Attend new tokens to the cache and, causally, to each other.

    Inputs: query (or all three, packed), key, value, cache of keys and of values, the last used position of each
    sequence after this step, the maximum length, cos and sin of the rotation by position, positions, bias of scores,
    sinks of the heads. The cache afterwards has as many rows as before, unless the longest sequence needs more.
    """
    heads, kv_heads = node.attr.int("num_heads"), node.attr.int("kv_num_heads")
    for name in ("qk_output", "sliding_window_cache"):
        if name in node.attr and node.attr.plain(name) != 0:
            raise NodeError(f"attribute '{name}' = {node.attr.plain(name)} is not supported")
    query, key, value = _projected(node, heads, kv_heads)
    batch, _, length, size = type_of(query).shape
    places = _token_positions(node, batch, length)
    if node.attr.bool("do_rotary", 0):
        query, key = _rotated(node, query, places), _rotated(node, key, places)
    else:
        node.attr.ignore("rotary_interleaved")
        node.ignore(COS, SIN, POSITIONS)
    keys = length
    if node.has(PAST_KEY):
        room, keys = _lengths(node)
        key = _written(node, node[PAST_KEY], key, places, room)
        value = _written(node, node[PAST_VALUE], value, places, room)
    else:
        node.ignore(TOTAL)
    mask = _mask(node, places, keys, type_of(query))
    result = _attended(node, query, _first_rows(node, key, keys), _first_rows(node, value, keys), mask)
    rows = node.emit("permute", result, axes=(0, 2, 1, 3))
    return node.emit("reshape", rows, shape=(batch, length, heads * size)), key, value


def _projected(node: Node, heads: int, kv_heads: int) -> tuple[ir.Value, ir.Value, ir.Value]:
    parts: list[Any] = [node.optional(i) for i in range(3)]
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
    each = node.emit("add", first, node.emit("expand_dims", positions(node, length), axes=[0]))
    return _TokenPositions(first, each, last)


def _attended(node: Node, query: ir.Value, key: ir.Value, value: ir.Value, mask: ir.Value) -> ir.Value:
    """Attend; with capped scores or sinks as products and a softmax over the scores."""
    scale, cap = node.attr.float("scale", 0.0), node.attr.float("softcap", 0.0)
    is_smooth = node.attr.int("smooth_softmax", 0) == 1
    if cap < 0:
        raise NodeError(f"attribute 'softcap' must not be negative, got {cap}")
    if not cap and not is_smooth and not node.has(SINK):
        return node.emit("attention", query, key, value, mask, scale=scale or None)
    batch, heads, length, size = type_of(query).shape
    _, kv_heads, keys, _ = type_of(key).shape
    kind = type_of(query)
    if not isinstance(size, int) or not isinstance(heads, int):
        raise NodeError(f"the heads and their size must be known, got {kind}")
    scaled = node.emit("multiply", query, node.constant(scale or size**-0.5, kind))
    group = heads // kv_heads
    rows = node.emit("reshape", scaled, shape=(batch, kv_heads, group * length, size))
    products = node.emit("matmul", rows, key, transpose_rhs=True)
    scores = node.emit("reshape", products, shape=(batch, heads, length, keys))
    if cap:
        bound = node.constant(cap, kind)
        scores = node.emit("multiply", node.emit("tanh", node.emit("divide", scores, bound)), bound)
    scores = node.emit("add", scores, mask)
    if is_smooth or node.has(SINK):
        sink = node.constant(np.zeros((1, 1, 1, 1)), kind)
        if node.has(SINK):
            sink = node.emit("reshape", node[SINK], shape=(1, heads, 1, 1))
        column = node.emit("expand", sink, shape=(batch, heads, length, 1))
        weights = node.emit("softmax", node.emit("concat", [column, scores], axis=3), axis=3)
        weights = node.emit("split", weights, axis=3, sizes=[1, keys])[1]
    else:
        weights = node.emit("softmax", scores, axis=3)
    weights = node.emit("reshape", weights, shape=(batch, kv_heads, group * length, keys))
    made = node.emit("matmul", weights, value)
    return node.emit("reshape", made, shape=(batch, heads, length, type_of(value).shape[3]))


def _rotated(node: Node, x: ir.Value, places: _TokenPositions) -> ir.Value:
    positions = node[POSITIONS] if node.has(POSITIONS) else places.each
    cos, sin = (node.emit("expand_dims", node.emit("gather", node[i], positions, axis=0), axes=[1]) for i in (COS, SIN))
    return node.emit("rotary_embedding", x, cos, sin, interleaved=node.attr.bool("rotary_interleaved", 0))


def _total(node: Node) -> Dim:
    """Return the length of the longest sequence after this step: a number, a dim, or bound at run time."""
    total = node.value(TOTAL)
    if total.is_constant:
        return int(node.scalar(TOTAL))
    if total.is_symbolic and total.known is not None:
        return as_dim(total.known.reshape(-1)[0])
    (bound,) = bind(node, vector(node, TOTAL), "the length of the longest sequence, input 'total_sequence_length'")
    return bound


def _lengths(node: Node) -> tuple[Dim, Dim]:
    """Return the rows of the cache afterwards, and how many of them are read: those of the longest sequence.

    A cache has as many rows as before, unless the longest sequence needs more.
    """
    before, declared, total = node.type(PAST_KEY).shape[2], node.declared(1), _total(node)
    if isinstance(before, int) and declared is not None and len(declared) == 4 and declared[2] == before:
        return before, D.minimum(before, total)
    return D.maximum(before, total), total


def _first_rows(node: Node, cache: ir.Value, count: Dim) -> ir.Value:
    """Return the first rows of keys or values."""
    batch, heads, rows, size = type_of(cache).shape
    if count == rows:
        return cache
    shape = (batch, heads, count, size)
    return node.emit("slice_dims", cache, begin=(0, 0, 0, 0), shape=shape, strides=(1, 1, 1, 1))


def _written(node: Node, cache: ir.Value, new: ir.Value, places: _TokenPositions, room: Dim) -> ir.Value:
    """Return the cache with the new keys or values at their positions."""
    batch, heads, _, size = type_of(new).shape
    return node.emit("cache_write", cache, new, places.each, shape=(batch, heads, room, size))


def _mask(node: Node, places: _TokenPositions, keys: Dim, query: TensorType) -> ir.Value:
    """Return what is added to the scores: [batch, 1, length, keys]."""
    column = node.emit("expand_dims", positions(node, keys), axes=[0, 1, 2])
    own = node.emit("expand_dims", places.each, axes=[1, 3])
    is_causal, window = node.attr.bool("causal", 1), node.attr.int("local_window_size", -1)
    bound = own if is_causal else node.emit("expand_dims", places.last, axes=[1, 3])
    seen = node.emit("less_equal", column, bound)
    if window > 0 and not is_causal:
        raise NodeError("attribute 'local_window_size' needs 'causal' to be 1")
    if window > 0:
        start = node.emit("subtract", own, node.constant(np.int64(window)))
        seen = node.emit("logical_and", seen, node.emit("greater", column, start))
    added = node.emit("where", seen, node.constant(0, query), node.constant(_hidden(query), query))
    return node.emit("add", added, node[BIAS]) if node.has(BIAS) else added


def _hidden(query: TensorType) -> float:
    return -1e4 if query.dtype.bits < 32 else HIDDEN
