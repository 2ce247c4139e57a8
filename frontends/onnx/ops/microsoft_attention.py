"""Attention and fused layers of `com.microsoft`, as ONNX Runtime's optimizer writes them into transformers."""

from __future__ import annotations

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.onnx.dimensions import quotient
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node, type_of
from mirlo.frontends.onnx.ops.attention import bound_of, split_heads
from mirlo.frontends.onnx.ops.conv import conv_attributes
from mirlo.frontends.onnx.ops.matmul import gemm
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted

DOMAIN = "com.microsoft"
FILTER = -10000.0
"""Default value added to the scores of masked keys."""


@converter("FusedConv", domain=DOMAIN)
def fused_conv(node: Node) -> Converted:
    attributes = conv_attributes(node, node.type(0), node.type(1))
    result = node.emit("conv", node[0], node[1], node.optional(2), **attributes)
    if node.has(3):
        result = node.emit("add", result, node[3])
    return _activated(node, result)


@converter("FusedGemm", domain=DOMAIN)
def fused_gemm(node: Node) -> Converted:
    return _activated(node, gemm(node))


def _activated(node: Node, value: ir.Value) -> ir.Value:
    activation = node.attr.str("activation", "")
    params = node.attr.floats("activation_params", [])
    if activation == "LeakyRelu":
        alpha = params[0] if params else node.attr.float("activation_alpha", 0.01)
        return node.emit("leaky_relu", value, alpha=alpha)
    if activation == "Clip" and len(params) == 2:
        return node.emit("clip", value, min=params[0], max=params[1])
    plain = {"": None, "Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh"}
    if activation not in plain:
        raise NodeError(f"attribute 'activation' = '{activation}' is not supported")
    operator = plain[activation]
    return value if operator is None else node.emit(operator, value)


@converter("EmbedLayerNormalization", domain=DOMAIN)
def embed_layer_normalization(node: Node) -> Converted:
    """Convert EmbedLayerNormalization.

    The inputs are token ids, segment ids, embeddings of words, positions, segments, gamma, beta, mask, position ids.
    """
    batch, length = node.type(0).shape
    total = node.emit("gather", node[2], node[0], axis=0)
    if node.has(8):
        positions = node.emit("gather", node[3], node[8], axis=0)
    elif isinstance(length, int):
        positions = node.emit("strided_slice", node[3], axes=[0], begin=[0], end=[length], strides=[1])
    else:
        raise NodeError(f"the length of the input must be known, got {node.type(0)}")
    total = node.emit("add", total, positions)
    if node.has(1) and node.has(4):
        total = node.emit("add", total, node.emit("gather", node[4], node[1], axis=0))
    result = node.emit("layer_norm", total, node[5], node[6], axis=-1, epsilon=node.attr.float("epsilon", 1e-12))
    lengths = None
    if node.has(7):  # number of tokens per sequence without padding
        is_token = node.emit("equal", node[7], node.constant(1, node.type(7)))
        lengths = node.emit("reduce_sum", node.emit("cast", is_token, dtype="i32"), axes=[1])
    elif node.has_output(1):
        lengths = node.emit("full", shape=(batch,), value=0.0, dtype="i32")
    node.attr.ignore("mask_index_type")
    return result, lengths, total


@converter("MultiHeadAttention", domain=DOMAIN)
def multi_head_attention(node: Node) -> Converted:
    """Convert; inputs: query, key, value, bias of all three, key padding mask, bias of scores, past key, past value."""
    heads = node.attr.int("num_heads")
    if node.type(0).rank != 3 or not node.has(1) or not node.has(2):
        raise NodeError(f"packed queries, keys and values are not supported, got {node.type(0)}")
    parts = [node[0], node[1], node[2]]
    if node.has(3):
        sizes = tuple(type_of(part).shape[-1] for part in parts)
        biases = node.emit("split", node[3], axis=0, sizes=sizes)
        parts = [node.emit("add", part, bias) for part, bias in zip(parts, biases, strict=True)]
    query, key, value = (
        part if type_of(part).rank == 4 else split_heads(node, part, heads, "num_heads") for part in parts
    )
    if node.has(6):
        key, value = node.emit("concat", [node[6], key], axis=2), node.emit("concat", [node[7], value], axis=2)
    return _attended(node, query, key, value, mask=4, bias=5, has_past=node.has(6)), key, value


@converter("Attention", domain=DOMAIN)
def attention(node: Node) -> Converted:
    """Convert; inputs: x, weights of query, key and value, their biases, mask, past, bias of scores."""
    heads = node.attr.int("num_heads")
    width: Dim | None = quotient(node.type(1).shape[-1], 3)
    sizes = tuple(node.attr.ints("qkv_hidden_sizes", None) or [width] * 3)
    if any(size is None for size in sizes):
        raise NodeError(f"input #1 must hold the weights of query, key and value, got {node.type(1)}")
    projected = node.emit("matmul", node[0], node[1])
    if node.has(2):
        projected = node.emit("add", projected, node[2])
    query, key, value = (
        split_heads(node, part, heads, "num_heads") for part in node.emit("split", projected, axis=2, sizes=sizes)
    )
    present = None
    if node.has(4):
        past_key, past_value = (
            node.emit("squeeze", part, axes=[0]) for part in node.emit("split", node[4], axis=0, sizes=(1, 1))
        )
        key, value = node.emit("concat", [past_key, key], axis=2), node.emit("concat", [past_value, value], axis=2)
    if node.has_output(1):
        present = node.emit("stack", [key, value], axis=0)
    return _attended(node, query, key, value, mask=3, bias=5, has_past=node.has(4)), present


def _attended(
    node: Node, query: ir.Value, key: ir.Value, value: ir.Value, mask: int, bias: int, has_past: bool
) -> ir.Value:
    """Return [batch, length, heads * size] from queries, keys and values [batch, heads, length, size]."""
    causal = node.attr.bool("unidirectional", 0)
    hidden = _hidden(node, mask, type_of(query), type_of(key).shape[2])
    added = node.optional(bias)
    if hidden is not None and added is not None:
        added = node.emit("add", added, hidden)
    added = hidden if added is None else added
    bound = bound_of(causal, has_past, query)
    result = node.emit("attention", query, key, value, added, scale=node.attr.float("scale", 0.0) or None, **bound)
    batch, heads, length, size = type_of(result).shape
    rows = node.emit("permute", result, axes=(0, 2, 1, 3))
    return node.emit("reshape", rows, shape=(batch, length, heads * size))


def _hidden(node: Node, mask: int, query: TensorType, keys: Dim) -> ir.Value | None:
    """Return what is added to the scores: a large negative number where the mask [batch, (queries,) keys] is 0.

    A mask [batch] holds the number of visible keys per sequence.
    """
    number = node.attr.float("mask_filter_value", FILTER)
    if not node.has(mask):
        return None
    found = node.type(mask)
    if found.rank == 1 and found.shape[0] == query.shape[0] and isinstance(keys, int):
        places = node.constant(np.arange(keys)[None], found)
        seen = node.emit("less", places, node.emit("reshape", node[mask], shape=(query.shape[0], 1)))
    elif found.rank in (2, 3) and found.shape[-1] == keys:
        seen = node.emit("not_equal", node[mask], node.constant(0, found))
    else:
        raise NodeError(
            f"input #{mask}, the mask, must be [batch], [batch, {keys}] or [batch, ..., {keys}], got {found}"
        )
    chosen = node.emit("where", seen, node.constant(0, query), node.constant(number, query))
    return node.emit("expand_dims", chosen, axes=[1] if found.rank == 3 else [1, 2])


@converter("RotaryEmbedding", domain=DOMAIN)
def rotary_embedding(node: Node) -> Converted:
    """Convert; inputs: x, positions (one each, or the first), cos and sin by position."""
    x = node.type(0)
    heads, rotated = node.attr.int("num_heads", 0), node.attr.int("rotary_embedding_dim", 0)
    node.attr.ignore("is_packed_batching")
    if node.attr.float("scale", 1.0) != 1:
        raise NodeError("attribute 'scale' must be 1")
    rank4 = x.rank == 4
    if x.rank == 3 and not rotated and not heads:
        heads = quotient(x.shape[2], 2 * node.type(2).shape[1]) or 0
    value = node[0] if rank4 else split_heads(node, node[0], int(heads), "num_heads")  # type: ignore[arg-type]
    length = type_of(value).shape[2]
    positions = node[1]
    if node.type(1).elements == 1 and node.type(1).rank == 1:
        if not isinstance(length, int):
            raise NodeError(f"the length of the input must be known, got {x}")
        steps = node.constant(np.arange(length, dtype=np.int64).reshape(1, length))
        positions = node.emit("add", positions, steps)
    cos, sin = (node.emit("expand_dims", node.emit("gather", node[i], positions, axis=0), axes=[1]) for i in (2, 3))
    result = node.emit("rotary_embedding", value, cos, sin, interleaved=node.attr.bool("interleaved", 0))
    if rank4:
        return result
    return node.emit("reshape", node.emit("permute", result, axes=(0, 2, 1, 3)), shape=x.shape)
