"""Attention of `com.microsoft` with a key/value cache, as decoders have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.library.attention import join_heads
from mirlo.frontends.library.rings import RingCache
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.attention import bound_of, heads_of
from mirlo.frontends.onnx.ops.microsoft_kv_cache import SCALES, cache_formats
from mirlo.frontends.onnx.ops.microsoft_window import WindowCache
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted, as_dim
from mirlo.frontends.tensor import Tensor, concat, maximum, where
from mirlo.runtime.records import dataclass

DOMAIN = "com.microsoft"
PAST_KEY, PAST_VALUE, LAST_PLACE, TOTAL, COS, SIN, POSITIONS, BIAS, SINK = range(3, 12)
QUERY_NORM, KEY_NORM = 14, 15
QK_OUTPUT = 3
"""Output: the scores, before or after the softmax."""
HIDDEN = -1e9


@dataclass(frozen=True)
class TokenPositions:
    """Positions of the new tokens: as numbers [batch, 1] and [batch, length]."""

    first: Tensor
    each: Tensor
    last: Tensor
    """The last position of each sequence after this step: [batch, 1]."""


@converter("GroupQueryAttention", domain=DOMAIN)
def group_query_attention(node: Node) -> Converted:
    """Attend new tokens to the cache and, causally, to each other.

    Inputs: query (or all three, packed), key, value, cache of keys and of values, the last used position of each
    sequence after this step, the maximum length, cos and sin of the rotation by position, positions, bias of scores,
    sinks of the heads, scales of quantized keys and values, weights of the norms of queries and keys. The cache
    afterwards has as many rows as before, unless the longest sequence needs more.
    """
    heads, kv_heads = node.attr.int("num_heads"), node.attr.int("kv_num_heads")
    query, key, value = projected(node, heads, kv_heads)
    batch, _, length, size = query.type.shape
    last = node[LAST_PLACE].reshape((batch, 1)).cast("i64")
    indices = token_positions(node, last, length)
    query, key = _normalized(node, query, key)
    if node.attr.bool("do_rotary", 0):
        at = node[POSITIONS] if node.has(POSITIONS) else indices.each
        query, key = (rotated(node, rows, at, (COS, SIN)) for rows in (query, key))
    else:
        node.attr.ignore("rotary_interleaved")
        node.ignore(COS, SIN, POSITIONS)
    is_window = node.attr.bool("sliding_window_cache", 0)
    if node.is_ring(PAST_KEY) and node.is_ring(PAST_VALUE):
        result, scores, key, value = _in_ring(node, query, key, value, indices)
    elif is_window:
        result, scores, key, value = _in_window(node, query, key, value, indices)
    else:
        result, scores, key, value = _in_cache(node, query, key, value, indices)
    return join_heads(result), key, value, scores


Attended = tuple[Tensor, Tensor | None, Tensor, Tensor]
"""The result, the scores if they are an output, and the keys and values to keep."""


def _in_cache(node: Node, query: Tensor, key: Tensor, value: Tensor, places: TokenPositions) -> Attended:
    """Write the new keys and values to the cache, if there is one, and attend to its rows."""
    keys = query.type.shape[2]
    of_keys, of_values = cache_formats(node, PAST_KEY, query)
    if node.has(PAST_KEY):
        room, keys = _lengths(node)
        key = written(node, node[PAST_KEY], of_keys.encoded(node, key), places, room)
        value = written(node, node[PAST_VALUE], of_values.encoded(node, value), places, room)
    else:
        node.ignore(TOTAL)
    column = node.index_vector(keys)
    seen = _seen(node, places, column)
    query = of_keys.scaled(node, query)
    read = of_keys.decoded(node, first_rows(node, key, keys)), of_values.decoded(node, first_rows(node, value, keys))
    # No sequence is longer than the keys, so these bounds hide nothing that is seen; kernels skip what they hide.
    bounds = bound_of(node.attr.bool("causal", 1), node.has(PAST_KEY), query)
    result, scores = attended(node, query, *read, seen, node.optional(BIAS), bounds)
    return of_values.scaled(node, result), scores, key, value


def _in_ring(node: Node, query: Tensor, key: Tensor, value: Tensor, places: TokenPositions) -> Attended:
    """Write the new keys and values to rings, and attend to their rows, whatever their order."""
    of_keys, of_values = cache_formats(node, PAST_KEY, query)
    total, name = total_length(node), node.value(PAST_KEY).name
    ring = RingCache(node.builder, node.type(PAST_KEY).shape[2], total, places.last)
    cache = f"node '{node.outputs[0]}' ({node.operator}): input '{name}'"
    ring.require_room(cache, node.builder.rings[name], query.type.shape[2], total)
    rows = replace(places, each=ring.row_of(places.each))
    key = written(node, node[PAST_KEY], of_keys.encoded(node, key), rows, ring.rows)
    value = written(node, node[PAST_VALUE], of_values.encoded(node, value), rows, ring.rows)
    at = ring.key_positions().expand_dims(1, 2)
    seen = (at >= 0) & _seen(node, places, at)
    keys, values = first_rows(node, key, ring.keys), first_rows(node, value, ring.keys)
    read = of_keys.decoded(node, keys), of_values.decoded(node, values)
    result, scores = attended(node, of_keys.scaled(node, query), *read, seen, None)
    return of_values.scaled(node, result), scores, key, value


def _in_window(node: Node, query: Tensor, key: Tensor, value: Tensor, places: TokenPositions) -> Attended:
    """Attend to the rows of a window and to the new ones; keep the newest."""
    if not node.has(PAST_KEY):
        raise NodeError("attribute 'sliding_window_cache' = 1 needs a cache, inputs 'past_key' and 'past_value'")
    node.ignore(TOTAL)
    for index in (BIAS, *SCALES):
        if node.has(index):
            raise NodeError(f"input '{node.input_name(index)}' is not supported with 'sliding_window_cache'")
    cache = WindowCache(node, node.type(PAST_KEY).shape[2], query.type.shape[2], places.last)
    keys, values = cache.keys(node[PAST_KEY], key), cache.keys(node[PAST_VALUE], value)
    seen = _seen(node, places, cache.key_positions().expand_dims(1, 2))
    return *attended(node, query, keys, values, seen, None), cache.stored(keys), cache.stored(values)


def _normalized(node: Node, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Normalize each head of queries and keys, if weights are given."""
    if not node.has(QUERY_NORM) and not node.has(KEY_NORM):
        node.attr.ignore("qk_norm_epsilon")
        return query, key
    if not node.has(QUERY_NORM) or not node.has(KEY_NORM):
        raise NodeError("inputs 'q_norm_weight' and 'k_norm_weight' must both be given")
    epsilon = node.attr.float("qk_norm_epsilon", 1e-6)
    pairs = ((query, QUERY_NORM), (key, KEY_NORM))
    query, key = (node.emit("rms_norm", rows, node[index], axis=-1, epsilon=epsilon) for rows, index in pairs)
    return query, key


def projected(node: Node, heads: int, kv_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    operands = [node.optional(i) for i in range(3)]
    parts = [part for part in operands if part is not None]
    if operands[1] is None:
        width = node.type(0).shape[-1]
        if not isinstance(width, int) or width % (heads + 2 * kv_heads):
            raise NodeError(f"input #0 must hold queries, keys and values of all heads, got {node.type(0)}")
        size = width // (heads + 2 * kv_heads)
        parts = list(node[0].split([heads * size, kv_heads * size, kv_heads * size], 2))
    counts = ((heads, "num_heads"), (kv_heads, "kv_num_heads"), (kv_heads, "kv_num_heads"))
    query, key, value = (heads_of(node, x, *count) for x, count in zip(parts, counts, strict=True))
    return query, key, value


def token_positions(node: Node, last: Tensor, length: Dim) -> TokenPositions:
    """Return the positions of the new tokens, of which `last` [batch, 1] are the last ones."""
    if node.has(PAST_KEY):
        first = last - node.size(length - 1)
        # In a prompt, sequences shorter than the longest are padded at the end.
        first = maximum(first, node.constant(np.int64(0)))
    else:
        first = node.emit("full", shape=last.type.shape, value=0.0, dtype="i64")
    each = first + node.index_vector(length)
    return TokenPositions(first, each, last)


def attended(
    node: Node,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Tensor,
    bias: Tensor | None,
    bounds: Mapping[str, bool] = MappingProxyType({}),
) -> tuple[Tensor, Tensor | None]:
    """Compute attention; with scores as an output, by products and a softmax over the scores.

    `bounds` are attributes of attention that hide no key that `seen` shows.
    """
    output = node.attr.int("qk_output", 0)
    if output not in (0, 1, 2) or node.has_output(QK_OUTPUT) != (output != 0):
        raise NodeError(f"attribute 'qk_output' = {output}: 1 or 2 with output 'output_qk', 0 without it is expected")
    scores = score_options(node, query.type, seen, bias)
    if output:
        return _with_scores(node, query, key, value, (seen, scores.mask, bias), scores.sinks)
    options = {**scores.attributes, **bounds}
    if scores.sinks is None:
        return node.emit("attention", query, key, value, scores.mask, **options), None
    return node.emit("attention_with_sinks", query, key, value, scores.mask, scores.sinks, **options), None


@dataclass(frozen=True)
class ScoreOptions:
    """Options of the scores of an attention."""

    mask: Tensor
    sinks: Tensor | None
    attributes: dict[str, float | None]


def score_options(node: Node, kind: TensorType, seen: Tensor, bias: Tensor | None = None) -> ScoreOptions:
    """Return the options of the scores from attributes and inputs of a node; keys that are not `seen` are hidden.

    `kind` is the type of the queries.
    """
    scale, cap = node.attr.float("scale", 0.0), node.attr.float("softcap", 0.0)
    is_smooth = node.attr.int("smooth_softmax", 0) == 1
    if cap < 0:
        raise NodeError(f"attribute 'softcap' must not be negative, got {cap}")
    heads = kind.shape[1]
    mask = where(seen, node.constant(0, kind), node.constant(_hidden(kind), kind))
    if bias is not None:
        mask = mask + bias
    sinks = None
    if node.has(SINK):
        sinks = node[SINK].reshape((heads,))
    elif is_smooth:
        sinks = node.emit("full", shape=(heads,), value=0.0, dtype=kind.dtype)
    return ScoreOptions(mask, sinks, {"scale": scale or None, "softcap": cap or None})


def _with_scores(
    node: Node,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    masks: tuple[Tensor, Tensor, Tensor | None],
    sinks: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Compute attention; return the result and 'output_qk': scores with the bias, 0 where hidden, or their softmax."""
    seen, mask, bias = masks
    kind = query.type
    batch, heads, length, size = kind.shape
    _, kv_heads, keys, _ = key.type.shape
    if not isinstance(size, int) or not isinstance(heads, int):
        raise NodeError(f"the heads and their size must be known, got {kind}")
    scale, cap = node.attr.float("scale", 0.0), node.attr.float("softcap", 0.0)
    scaled = query * (scale or size**-0.5)
    group = heads // kv_heads
    rows = scaled.reshape((batch, kv_heads, group * length, size))
    products = rows.matmul(key, transpose_rhs=True)
    scores = products.reshape((batch, heads, length, keys))
    if cap:
        bound = node.constant(cap, kind)
        scores = (scores / bound).tanh() * bound
    weights = scores + mask
    if sinks is None:
        weights = weights.softmax(3)
    else:
        column = sinks.reshape((1, heads, 1, 1))
        column = column.expand((batch, heads, length, 1))
        weights = concat([column, weights], axis=3).softmax(3)
        weights = weights.split([1, keys], 3)[1]
    shown = weights
    if node.attr.int("qk_output", 0) == 1:
        biased = scores if bias is None else scores + bias
        shown = where(seen, biased, node.constant(0, kind))
    weights = weights.reshape((batch, kv_heads, group * length, keys))
    result = weights @ value
    return result.reshape((batch, heads, length, value.type.shape[3])), shown


def rotated(node: Node, x: Tensor, at: Tensor, tables: tuple[int, int]) -> Tensor:
    """Rotate heads by their positions; inputs `tables` are cos and sin by position."""
    cos, sin = (node[i].gather(at).expand_dims(1) for i in tables)
    return node.emit("rotary_embedding", x, cos, sin, interleaved=node.attr.bool("rotary_interleaved", 0))


def total_length(node: Node, index: int = TOTAL) -> Dim:
    """Return the length of the longest sequence after this step: a number, a dim, or bound at run time."""
    total = node.value(index)
    if total.array is not None:
        return int(node.scalar(index))
    if total.sizes is not None and total.known is not None:
        return as_dim(total.known.reshape(-1)[0])
    (bound,) = node.bind(node.vector(index), "the length of the longest sequence, input 'total_sequence_length'")
    return bound


def _lengths(node: Node) -> tuple[Dim, Dim]:
    """Return the rows of the cache afterwards, and how many of them are read: those of the longest sequence.

    A cache has as many rows as before, unless the longest sequence needs more.
    """
    before, declared, total = node.type(PAST_KEY).shape[2], node.declared(1), total_length(node)
    if isinstance(before, int) and declared is not None and len(declared) == 4 and declared[2] == before:
        return before, D.minimum(before, total)
    return D.maximum(before, total), total


def first_rows(node: Node, cache: Tensor, count: Dim) -> Tensor:
    """Return the first rows of keys or values."""
    batch, heads, rows, size = cache.type.shape
    if count == rows:
        return cache
    shape = (batch, heads, count, size)
    return cache.part((0, 0, 0, 0), shape)


def written(node: Node, cache: Tensor, new: Tensor, places: TokenPositions, room: Dim) -> Tensor:
    """Return the cache with the new keys or values at their positions."""
    batch, heads, _, size = new.type.shape
    return node.emit("cache_write", cache, new, places.each, shape=(batch, heads, room, size))


def _seen(node: Node, places: TokenPositions, key_places: Tensor) -> Tensor:
    """Return which keys each token sees, [batch, 1, length, keys], from the positions [batch, 1, 1, keys] of keys."""
    own = places.each.expand_dims(1, 3)
    is_causal, window = node.attr.bool("causal", 1), node.attr.int("local_window_size", -1)
    bound = own if is_causal else places.last.expand_dims(1, 3)
    seen = key_places <= bound
    if window > 0 and not is_causal:
        raise NodeError("attribute 'local_window_size' needs 'causal' to be 1")
    if window > 0:
        start = own - window
        seen = seen & (key_places > start)
    return seen


def _hidden(query: TensorType) -> float:
    return -1e4 if query.dtype.bits < 32 else HIDDEN
