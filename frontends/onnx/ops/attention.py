"""Attention and rotary embeddings."""

from __future__ import annotations

from mirlo.dialects.core.dims import Dim, DimsDiffer
from mirlo.frontends.library.attention import join_heads, split_heads
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import DECLINED, Converted
from mirlo.frontends.sizes import divisible, quotient
from mirlo.frontends.tensor import Tensor, concat

PAST_KEY, PAST_VALUE, NONPAD_LENGTHS = 4, 5, 6
SCORES = 3
"""Output index of the scores before or after the softmax."""


@converter("Attention", since=23)
def attention(node: Node) -> Converted:
    """Convert to relax.attention; leave what it cannot express to ONNX's function body."""
    causal = node.attr.bool("is_causal", 0)
    if node.has_output(SCORES) or node.has(NONPAD_LENGTHS) or node.attr.float("softcap", 0.0) != 0:
        return DECLINED
    if any(node.attr.int(f"{side}_window_size", -1) != -1 for side in ("left", "right")):
        return DECLINED
    node.attr.ignore("qk_matmul_output_mode")  # selects which scores to return, and none are
    node.attr.ignore("softmax_precision")  # accumulators are f32 or better
    query = _heads(node, node[0], "q_num_heads")
    key, value = _heads(node, node[1], "kv_num_heads"), _heads(node, node[2], "kv_num_heads")
    if node.has(PAST_KEY):
        key = concat([node[PAST_KEY], key], axis=2)
    if node.has(PAST_VALUE):
        value = concat([node[PAST_VALUE], value], axis=2)
    mask = node.optional(3)
    if mask is not None and not mask.type.rank:
        raise NodeError(f"input 'attn_mask' must have 2 to 4 dims, got {mask.type}")
    if mask is not None and mask.type.shape[-1] != key.type.shape[2] and mask.type.shape[-1] != 1:
        return DECLINED
    bound = bound_of(causal, node.has(PAST_KEY), query)
    result = node.emit("attention", query, key, value, mask, scale=node.attr.float("scale", None), **bound)
    if node.type(0).rank == 3:
        result = join_heads(result)
    return result, key, value


def bound_of(causal: bool, has_past: bool, query: Tensor) -> dict[str, bool]:
    """Return the causal attributes of attention; with a cache, the last query sees all keys."""
    if not causal or (has_past and query.type.shape[2] == 1):
        return {}
    return {"causal": True, "at_end": has_past}


def _heads(node: Node, x: Tensor, attribute: str) -> Tensor:
    """Return [batch, heads, length, size], from that or from [batch, length, heads * size]."""
    tensor_type = x.type
    if tensor_type.rank == 4:
        node.attr.ignore(attribute)
        return x
    if tensor_type.rank != 3:
        raise NodeError(f"query, key and value must have rank 3 or 4, got {tensor_type}")
    return heads_of(node, x, node.attr.int(attribute), attribute)


def heads_of(node: Node, x: Tensor, heads: int, attribute: str) -> Tensor:
    """Return [batch, heads, length, size] of [batch, length, heads * size]; an attribute says how many heads."""
    hidden = x.shape[2]
    size: Dim | None = quotient(hidden, heads)
    if size is None:
        text = f"attribute '{attribute}' is {heads}, which does not divide {hidden}, the last dim of {x.type}"
        raise DimsDiffer(text, *divisible(hidden, heads)) if heads > 0 else NodeError(text)
    return split_heads(x, heads, size)


@converter("RotaryEmbedding", since=23)
def rotary_embedding(node: Node) -> Converted:
    tensor_type = node.type(0)
    heads, rotated = node.attr.int("num_heads", 0), node.attr.int("rotary_embedding_dim", 0)
    cos, sin = (_angles(node, i) for i in (1, 2))
    half = cos.type.shape[-1]
    if rotated and 2 * half != rotated:
        text = f"attribute 'rotary_embedding_dim' is {rotated}, but the caches have {half} angles"
        raise DimsDiffer(text, 2 * half, rotated)
    x = node[0] if tensor_type.rank == 4 else heads_of(node, node[0], heads, "num_heads")
    result = node.emit("rotary_embedding", x, cos, sin, interleaved=node.attr.bool("interleaved", 0))
    if tensor_type.rank == 4:
        return result
    return join_heads(result)


def _angles(node: Node, index: int) -> Tensor:
    """Return the cache as [batch, 1, length, angles], with rows selected by 'position_ids' if given."""
    cache = node[index]
    if node.has(3):
        cache = cache.gather(node[3])
    if cache.type.rank != 3:
        raise NodeError(f"input '{node.input_name(index)}' does not fit: got {node.type(index)}")
    return cache.expand_dims(1)
