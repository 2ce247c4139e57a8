"""Attention and fused layers of `com.microsoft`, as ONNX Runtime's optimizer writes them into transformers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirlo.dialects.core.dims import Dim, DimsDiffer
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.library.attention import join_heads
from mirlo.frontends.library.normalizations import layer_norm
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.attention import bound_of, heads_of
from mirlo.frontends.onnx.ops.conv import conv_attributes
from mirlo.frontends.onnx.ops.matmul import gemm
from mirlo.frontends.onnx.ops.microsoft import real
from mirlo.frontends.onnx.ops.microsoft_beams import CachedRows, read_caches
from mirlo.frontends.onnx.registry import converter, relax_class
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.sizes import quotient
from mirlo.frontends.tensor import Tensor, concat, stack, where

DOMAIN = "com.microsoft"
FILTER = -10000.0
"""Default value added to the scores of masked keys."""


@converter("FusedConv", domain=DOMAIN)
def fused_conv(node: Node) -> Converted:
    attributes = conv_attributes(node, node.type(0), node.type(1))
    result = node.emit("conv", node[0], node[1], node.optional(2), **attributes)
    if node.has(3):
        result = result + node[3]
    return activated(node, result)


@converter("FusedGemm", domain=DOMAIN)
def fused_gemm(node: Node) -> Converted:
    return activated(node, gemm(node))


def activated(node: Node, value: Tensor) -> Tensor:
    """Return the value after the activation that a fused node names."""
    activation = node.attr.str("activation", "")
    params = node.attr.floats("activation_params", [])
    if activation == "LeakyRelu":
        alpha = params[0] if params else node.attr.float("activation_alpha", 0.01)
        return node.emit("leaky_relu", value, alpha=alpha)
    if activation == "HardSigmoid" and len(params) == 2:
        return node.emit("hard_sigmoid", value, alpha=params[0], beta=params[1])
    if activation == "Clip" and len(params) == 2:
        return value.clip(params[0], params[1])
    if not activation:
        return value
    if activation not in ("Relu", "Sigmoid", "Tanh"):
        raise NodeError(f"attribute 'activation' = '{activation}' is not supported")
    return node.emit(relax_class(activation), value)


@converter("EmbedLayerNormalization", domain=DOMAIN)
def embed_layer_normalization(node: Node) -> Converted:
    """Convert EmbedLayerNormalization.

    The inputs are token ids, segment ids, embeddings of words, positions, segments, gamma, beta, mask, position ids.
    """
    total = node[2].gather(node[0]) + _placed(node, node[3], 8)
    if node.has(1) and node.has(4):
        total = total + node[4].gather(node[1])
    result = layer_norm(total, node[5], node[6], -1, node.attr.float("epsilon", 1e-12))
    node.attr.ignore("mask_index_type")
    return result, _tokens(node), total


@converter("QEmbedLayerNormalization", domain=DOMAIN)
def quantized_embed_layer_normalization(node: Node) -> Converted:
    """Convert; the tables, gamma and beta are quantized: their scales begin at input 8, their zero points at 13."""
    words, indices, segments, gamma, beta = (
        real(node, 2 + i, 8 + i, 13 + i) if node.has(2 + i) else None for i in range(5)
    )
    assert words is not None
    assert indices is not None
    total = words.gather(node[0]) + _placed(node, indices)
    if node.has(1) and segments is not None:
        total = total + segments.gather(node[1])
    result = layer_norm(total, gamma, beta, -1, node.attr.float("epsilon", 1e-12))
    return result, _tokens(node)


def _placed(node: Node, table: Tensor, places: int | None = None) -> Tensor:
    """Return the embeddings of positions: those of an input, or of 0, 1, 2, ..."""
    if places is not None and node.has(places):
        return table.gather(node[places])
    return table.gather(node.index_vector(node.type(0).shape[1]))


def _tokens(node: Node) -> Tensor | None:
    """Return how many tokens of each sequence are not padding, for mask type 7, where the mask is 1."""
    if node.has(7):
        is_token = node[7].equals(1)
        return is_token.cast("i32").sum(1)
    if not node.has_output(1):
        return None
    return node.emit("full", shape=(node.type(0).shape[0],), value=0.0, dtype="i32")


@converter("MultiHeadAttention", domain=DOMAIN)
def multi_head_attention(node: Node) -> Converted:
    """Convert; inputs: query, key, value, bias of all three, key padding mask, bias of scores, past key, past value.

    Then the length of the past in caches with room, and which beam each token in them came from.
    """
    query, key, value = _heads(node, _unpacked(node), bias=3)
    cached = read_caches(node, key, value, past=6, length=8, beams=9, mask=4)
    result = _attended(node, query, *cached.read, mask=4, bias=5, past=cached)
    return result, *cached.kept


@converter("DecoderMaskedMultiHeadAttention", domain=DOMAIN)
def decoder_masked_attention(node: Node) -> Converted:
    """Convert attention of one token; inputs: query, key, value, mask, bias of scores, past key, past value.

    Then the length of the past in caches with room, the number of beams, which beam each token in the caches came from,
    and the bias of query, key and value.
    """
    node.ignore(8)  # the dims of the input after it say so
    if node.attr.bool("output_qk", 0):
        raise NodeError("attribute 'output_qk' must be 0: the scores are no output")
    if node.attr.bool("past_present_share_buffer", 0) != node.has(7):
        raise NodeError("input 'past_sequence_length' and attribute 'past_present_share_buffer' = 1 need each other")
    parts = [node[0], node[1], node[2]] if node.has(1) else _thirds(node)
    query, key, value = _heads(node, parts, bias=10)
    if query.type.shape[2] != 1:
        raise NodeError(f"one token of each sequence is expected, got {node.type(0)}")
    if node.has(1) and node.type(1).rank == 4:  # keys and values of another sequence, which stay
        cached = CachedRows((key, value), (key, value), None)
    else:
        cached = read_caches(node, key, value, past=5, length=7, beams=9, mask=3)
    return _attended(node, query, *cached.read, mask=3, bias=4, past=cached), *cached.kept


def _thirds(node: Node) -> list[Tensor]:
    """Return queries, keys and values that are side by side in input 0."""
    width = quotient(node.type(0).shape[-1], 3)
    if width is None:
        raise NodeError(f"input #0 must hold queries, keys and values, got {node.type(0)}")
    return list(node[0].split((width,) * 3, 2))


def _heads(node: Node, parts: list[Tensor], bias: int) -> list[Tensor]:
    """Return queries, keys and values [batch, heads, length, size], after their biases; those of rank 4 stay."""
    heads = node.attr.int("num_heads")
    if node.has(bias):
        sizes = tuple(part.type.shape[-1] for part in parts)
        biases = node[bias].split(sizes, 0)
        parts = [part + each for part, each in zip(parts, biases, strict=True)]
    return [part if part.type.rank == 4 else heads_of(node, part, heads, "num_heads") for part in parts]


def _unpacked(node: Node) -> list[Tensor]:
    """Return queries, keys and values; they may be packed: all [batch, length, heads, 3, size], or the last two."""
    if node.type(0).rank == 5 and not node.has(1) and not node.has(2):
        return _slices(node, 0, 3)
    if node.has(1) and node.type(1).rank == 5 and not node.has(2):
        return [node[0], *_slices(node, 1, 2)]
    if node.type(0).rank != 3 or not node.has(1) or not node.has(2):
        raise NodeError(
            f"queries [batch, length, width] with keys and values, or all packed, are expected: {node.type(0)}"
        )
    return [node[0], node[1], node[2]]


def _slices(node: Node, index: int, count: int) -> list[Tensor]:
    """Return the slices of an input [batch, length, heads, count, size] as [batch, length, heads * size]."""
    tensor_type = node.type(index)
    if tensor_type.shape[3] != count:
        raise NodeError(f"dim 3 of input '{node.input_name(index)}' must be {count}, got {tensor_type}")
    batch, length, heads, _, size = tensor_type.shape
    parts = node[index].split([1] * count, 3)
    return [part.reshape((batch, length, heads * size)) for part in parts]


@converter("Attention", domain=DOMAIN)
def attention(node: Node) -> Converted:
    """Convert; inputs: x, weights of query, key and value, their biases, mask, past, bias of scores."""
    sizes = node.attr.ints("qkv_hidden_sizes", None)
    projected = node[0] @ node[1]
    if node.has(2):
        projected = projected + node[2]
    return _projected(node, projected, sizes, mask=3, past=4, bias=5)


@converter("QAttention", domain=DOMAIN)
def quantized_attention(node: Node) -> Converted:
    """Convert; inputs: x, weights, bias, scales of x and of the weights, mask, zero points of both, past."""
    if node.attr.bool("do_rotary", 0) or node.attr.bool("past_present_share_buffer", 0):
        raise NodeError("attributes 'do_rotary' and 'past_present_share_buffer' must be 0")
    by_column = node.type(4).elements != 1
    if by_column:
        zeros = node.optional(7)
        if zeros is not None and node.type(7).elements == 1:
            zeros = zeros.expand(node.type(4).shape)
        weights = node.emit("dequantize", node[1], node[4], zeros, axis=1, dtype=node.type(4).dtype)
    else:
        weights = real(node, 1, 4, 7)
    projected = (real(node, 0, 3, 6) @ weights) + node[2]
    return _projected(node, projected, None, mask=5, past=8)


def _projected(
    node: Node, projected: Tensor, widths: list[int] | None, mask: int, past: int, bias: int | None = None
) -> Converted:
    """Return the attention of queries, keys and values that lie side by side, and the keys and values with the past."""
    heads = node.attr.int("num_heads")
    width = quotient(projected.type.shape[-1], 3)
    sizes: Sequence[Dim] = widths or ([] if width is None else [width] * 3)
    if not sizes:
        raise NodeError(f"input #1 must hold the weights of query, key and value, got {node.type(1)}")
    query, key, value = (heads_of(node, part, heads, "num_heads") for part in projected.split(sizes, 2))
    present = None
    if node.has(past):
        past_key, past_value = (part.squeeze(0) for part in node[past].split((1, 1), 0))
        key, value = concat([past_key, key], axis=2), concat([past_value, value], axis=2)
    if node.has_output(1):
        present = stack([key, value], axis=0)
    cached = CachedRows((key, value), (key, value), None, node.has(past))
    return _attended(node, query, key, value, mask, bias, cached), present


def _attended(
    node: Node, query: Tensor, key: Tensor, value: Tensor, mask: int, bias: int | None, past: CachedRows
) -> Tensor:
    """Return [batch, length, heads * size] from queries, keys and values [batch, heads, length, size]."""
    causal = node.attr.bool("unidirectional", 0)
    hidden = _hidden(node, mask, query.type, key.type.shape[2])
    added = None if bias is None else node.optional(bias)
    if hidden is not None and added is not None:
        added = added + hidden
    added = hidden if added is None else added
    bound = bound_of(causal, past.has_past, query)
    result = node.emit("attention", query, key, value, added, scale=node.attr.float("scale", 0.0) or None, **bound)
    return join_heads(result)


def _hidden(node: Node, mask: int, query: TensorType, keys: Dim) -> Tensor | None:
    """Return the term added to the scores: a large negative number where the mask [batch, (queries,) keys] is 0.

    A mask [batch] holds the number of visible keys per sequence.
    """
    number = node.attr.float("mask_filter_value", FILTER)
    if not node.has(mask):
        return None
    tensor_type = node.type(mask)
    if tensor_type.rank == 1 and tensor_type.shape[0] == query.shape[0]:
        indices = node.index_vector(keys).reshape((1, keys)).cast(tensor_type.dtype)
        seen = indices < node[mask].reshape((query.shape[0], 1))
    elif tensor_type.rank in (2, 3) and tensor_type.shape[-1] == keys:
        seen = node[mask].not_equals(node.constant(0, tensor_type))
    else:
        raise NodeError(
            f"input #{mask}, the mask, must be [batch], [batch, {keys}] or [batch, ..., {keys}], got {tensor_type}"
        )
    chosen = where(seen, node.constant(0, query), node.constant(number, query))
    return chosen.expand_dims(1) if tensor_type.rank == 3 else chosen.expand_dims(1, 2)


@converter("RotaryEmbedding", domain=DOMAIN)
def rotary_embedding(node: Node) -> Converted:
    """Convert; inputs: x, positions (one each, or the first), cos and sin by position."""
    value = _by_head(node)
    length = value.type.shape[2]
    indices = node[1]
    if node.type(1).elements == 1 and node.type(1).rank == 1:
        indices = indices + node.index_vector(length).reshape((1, length))
    cos, sin = (node[i].gather(indices).expand_dims(1) for i in (2, 3))
    return _rotated(node, value, cos, sin)


@converter("MRotaryEmbedding", domain=DOMAIN)
def multimodal_rotary_embedding(node: Node) -> Converted:
    """Convert; inputs: x, positions [3, batch, length] in time, height and width, cos and sin by position."""
    sections, layout = node.attr.ints("mrope_section"), node.attr.int("mrope_layout", 0)
    half = node.type(2).shape[1]
    if len(sections) != 3 or min(sections) < 0 or sum(sections) != half:
        raise NodeError(f"attribute 'mrope_section' must be three numbers whose sum is {half}, got {sections}")
    if layout not in (0, 1):
        raise NodeError(f"attribute 'mrope_layout' must be 0 or 1, got {layout}")
    if node.type(1).rank != 3 or node.type(1).shape[0] != 3:
        raise NodeError(f"input #1 must be positions [3, batch, length], got {node.type(1)}")
    value = _by_head(node)
    chosen = np.repeat(range(3), sections)
    if layout:
        indices = np.arange(sum(sections))
        chosen = np.where(indices % 3 * (indices < 3 * np.array(sections)[indices % 3]), indices % 3, 0)
    is_of = node.constant(chosen == np.arange(3).reshape(3, 1, 1, 1))
    cos, sin = (_selected(node, node[i].gather(node[1]), is_of).expand_dims(1) for i in (2, 3))
    return _rotated(node, value, cos, sin)


def _selected(node: Node, values: Tensor, is_of: Tensor) -> Tensor:
    """Return, for each place of the last dim, the one of three values [3, ...] that is selected there."""
    return where(is_of, values, node.constant(0, values.type)).sum(0)


def _by_head(node: Node) -> Tensor:
    """Return x as [batch, heads, length, size]; it may be given as [batch, length, heads * size]."""
    x = node.type(0)
    heads, rotated = node.attr.int("num_heads", 0), node.attr.int("rotary_embedding_dim", 0)
    node.attr.ignore("is_packed_batching")
    if node.attr.float("scale", 1.0) != 1:
        raise NodeError("attribute 'scale' must be 1")
    half = node.type(2).shape[1]
    if rotated and 2 * half != rotated:
        text = f"attribute 'rotary_embedding_dim' is {rotated}, but the caches have {half} angles"
        raise DimsDiffer(text, 2 * half, rotated)
    if x.rank == 3 and not rotated and not heads:
        size = quotient(x.shape[2], 2 * half)
        heads = size if isinstance(size, int) else 0
    return node[0] if x.rank == 4 else heads_of(node, node[0], heads, "num_heads")


def _rotated(node: Node, value: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return the rotated values, in the form of x."""
    x = node.type(0)
    result = node.emit("rotary_embedding", value, cos, sin, interleaved=node.attr.bool("interleaved", 0))
    if x.rank == 4:
        return result
    return join_heads(result)
