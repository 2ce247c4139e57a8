"""`PagedAttention` of `com.microsoft`: sequences of different lengths, packed, with caches in blocks."""

from __future__ import annotations

from dataclasses import replace

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.relax.infer import require_rank
from mirlo.frontends.library.attention import split_heads
from mirlo.frontends.library.pages import PackedSequences
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.microsoft_cache import rotated, score_options
from mirlo.frontends.onnx.ops.microsoft_kv_cache import CacheFormat
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.tensor import Tensor, maximum

DOMAIN = "com.microsoft"
KEY_CACHE, VALUE_CACHE, ENDS, PAST, TABLE, COS, SIN, SLOTS = range(3, 11)
QUERY_NORM, KEY_NORM, KEY_SCALE, VALUE_SCALE, HINTS = range(12, 17)
_REFUSED = {"kv_cache_layout": "SEPARATE", "k_cache_dtype": "", "v_cache_dtype": ""}


@converter("PagedAttention", domain=DOMAIN)
def paged_attention(node: Node) -> Converted:
    """Attend tokens, packed one sequence after the other, to their sequences' blocks of the caches.

    Inputs: query (or all three, packed), key, value, caches [blocks, block size, heads, size] of keys and of values,
    ends of the sequences among the tokens, lengths before, blocks of each sequence, cos and sin by position, the slot
    of each token, sinks, weights of norms, scales of the caches, hints of sizes.
    """
    for name, expected in _REFUSED.items():
        actual = node.attr.str(name, expected)
        if actual != expected:
            raise NodeError(f"attribute '{name}' must be '{expected}', got '{actual}'")
    for name in ("rotary_offset", "v_head_size"):
        if node.attr.int(name, 0):
            raise NodeError(f"attribute '{name}' must be 0, got {node.attr.int(name, 0)}")
    node.ignore(HINTS)
    heads, shared = node.attr.int("num_heads"), node.attr.int("kv_num_heads")
    require_rank(node.type(KEY_CACHE), 4, "input 'key_cache' [blocks, block size, heads, size]")
    query, key, value = _normalized(node, _projected(node, heads, shared))
    tokens = _packed_tokens(node, query.type.shape[2])
    if node.attr.bool("do_rotary", 0):
        at = tokens.position.expand_dims(0)
        query, key = (rotated(node, rows, at, (COS, SIN)) for rows in (query, key))
    else:
        node.attr.ignore("rotary_interleaved")
        node.ignore(COS, SIN)
    slots = _slots(node, tokens)
    caches, formats = [], []
    for index, scale, rows in ((KEY_CACHE, KEY_SCALE, key), (VALUE_CACHE, VALUE_SCALE, value)):
        form = _format(node, index, scale, rows)
        caches.append(tokens.written(node[index], form.encoded(node, rows), slots))
        formats.append(form)
    result = _attended(node, tokens.by_sequence(query), caches, formats, tokens)
    return tokens.packed(result), *caches


def _attended(
    node: Node, query: Tensor, caches: list[Tensor], formats: list[CacheFormat], tokens: PackedSequences
) -> Tensor:
    """Attend queries [batch, heads, longest, size] to the rows of their sequences."""
    kind = query.type.dtype
    if kind.name == "f16" and any(form.scale is not None for form in formats):  # f16 could underflow
        query = query.cast("f32")
        formats = [form if form.scale is None else replace(form, scale=form.scale.cast("f32")) for form in formats]
    of_keys, of_values = formats
    seen = tokens.seen(node.attr.bool("is_causal", 1), node.attr.int("local_window_size", -1))
    scores = score_options(node, query.type, seen)
    result = node.emit(
        "paged_attention", of_keys.scaled(node, query), *caches, tokens.used_table(), tokens.totals, scores.mask,
        None, None, scores.sinks, **scores.attributes,
    )  # fmt: skip
    result = of_values.scaled(node, result)
    return result if result.type.dtype is kind else result.cast(kind)


def _projected(node: Node, heads: int, shared: int) -> list[Tensor]:
    """Return queries, keys and values as [1, heads, tokens, size]."""
    parts = [node.optional(i) for i in range(3)]
    counts = (heads, shared, shared)
    width = node.type(0).shape[-1]
    if parts[1] is None:
        if not isinstance(width, int) or width % sum(counts) or parts[2] is not None:
            raise NodeError(f"input 'query' must hold queries, keys and values of all heads, got {node.type(0)}")
        size = width // sum(counts)
        parts = list(node[0].split([count * size for count in counts], 1))
    result = []
    for part, count in zip(parts, counts, strict=True):
        if part is None:
            raise NodeError("inputs 'key' and 'value' must both be given")
        tokens, width = part.type.shape
        if not isinstance(width, int) or width % count:
            raise NodeError(f"tokens of {count} heads are expected, got {part.type}")
        result.append(split_heads(part.expand_dims(0), count, width // count))
    return result


def _normalized(node: Node, parts: list[Tensor]) -> list[Tensor]:
    """Normalize each head of queries and keys, if weights are given."""
    epsilon = node.attr.float("qk_norm_epsilon", 1e-6)
    if node.has(QUERY_NORM) != node.has(KEY_NORM):
        raise NodeError("inputs 'q_norm_weight' and 'k_norm_weight' must both be given")
    if not node.has(QUERY_NORM):
        return parts
    normal = [
        node.emit("rms_norm", part, node[i], axis=-1, epsilon=epsilon)
        for part, i in zip(parts, (QUERY_NORM, KEY_NORM), strict=False)
    ]
    return [*normal, parts[2]]


def _format(node: Node, cache: int, scale: int, rows: Tensor) -> CacheFormat:
    """Return how keys or values are stored: as they are, or as int8."""
    which = "k" if cache == KEY_CACHE else "v"
    kind, cache_type = (
        node.attr.choice(f"{which}_quant_type", "NONE", ("NONE", "PER_TENSOR", "PER_CHANNEL")),
        node.type(cache),
    )
    wide = rows.type
    if kind == "NONE":
        if cache_type.dtype is not wide.dtype or cache_type.shape[2:] != (wide.shape[1], wide.shape[3]):
            expected = f"{wide.dtype}[blocks, block size, {wide.shape[1]}, {wide.shape[3]}]"
            raise NodeError(f"input '{node.input_name(cache)}' must be {expected}, got {cache_type}")
        node.ignore(scale)
        return CacheFormat()
    if cache_type.dtype.name != "i8" or not node.has(scale):
        raise NodeError(
            f"attribute '{which}_quant_type' = '{kind}' needs an i8 cache and input '{which}_scale', got {cache_type}"
        )
    scales_type = node.type(scale)
    shape: tuple[Dim, ...] = (1, 1, 1, 1) if scales_type.elements == 1 else (1, *scales_type.shape)
    if len(shape) != 4:
        raise NodeError(f"scales must be one number or [heads, 1, size], got {scales_type}")
    return CacheFormat(8, node[scale].reshape(shape).cast(wide.dtype))


def _packed_tokens(node: Node, count: Dim) -> PackedSequences:
    """Return the sequences of `count` packed tokens."""
    return PackedSequences(
        node.builder, node.bind, node.index_vector, count, node.vector(ENDS), node.vector(PAST), node[TABLE],
        node.type(KEY_CACHE).shape[1],
    )  # fmt: skip


def _slots(node: Node, tokens: PackedSequences) -> Tensor:
    """Return where each token is written: what the node says, or its pages; -1 for nowhere."""
    if node.has(SLOTS):
        return maximum(node.vector(SLOTS), node.constant(-1, "i64"))
    return tokens.slots()
