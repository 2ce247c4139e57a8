"""Fused layers of transformers that PyTorch's modules call in inference, expressed by other operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo_torch.registry import decomposition

if TYPE_CHECKING:
    import torch

KEYS, ROWS = 1, 0
"""Kinds of masks: by keys of each sequence, by queries and keys; others have four dims."""


@decomposition("aten._transformer_encoder_layer_fwd.default")
def encoder_layer(
    x: torch.Tensor, embed_dim: int, heads: int, qkv_weight: torch.Tensor, qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor, proj_bias: torch.Tensor, use_gelu: bool, norm_first: bool, eps: float,
    norm_weight_1: torch.Tensor, norm_bias_1: torch.Tensor, norm_weight_2: torch.Tensor, norm_bias_2: torch.Tensor,
    ffn_weight_1: torch.Tensor, ffn_bias_1: torch.Tensor, ffn_weight_2: torch.Tensor, ffn_bias_2: torch.Tensor,
    mask: torch.Tensor | None = None, mask_type: int | None = None,
) -> torch.Tensor:  # fmt: skip
    """Compute one encoder layer of a transformer."""
    import torch.nn.functional as F

    def norm_1(y: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(y, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def norm_2(y: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(y, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    def attend(y: torch.Tensor) -> torch.Tensor:
        return multi_head_attention(
            y, y, y, embed_dim, heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False, True, mask_type
        )[0]

    def feed_forward(y: torch.Tensor) -> torch.Tensor:
        inner = F.linear(y, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(inner) if use_gelu else F.relu(inner), ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = x + attend(norm_1(x))
        return x + feed_forward(norm_2(x))
    x = norm_1(x + attend(x))
    return norm_2(x + feed_forward(x))


@decomposition("aten._native_multi_head_attention.default")
def multi_head_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, embed_dim: int, heads: int, qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor, proj_weight: torch.Tensor, proj_bias: torch.Tensor, mask: torch.Tensor | None = None,
    need_weights: bool = True, average: bool = True, mask_type: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Compute attention with its projections; true or nonzero elements of the mask are excluded."""
    import torch
    import torch.nn.functional as F

    parts = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
    q, k, v = (F.linear(x, weight, bias).unflatten(-1, (heads, -1)).transpose(1, 2) for x, weight, bias in parts)
    allowed = None if mask is None else _allowed(mask.to(torch.bool).logical_not(), mask_type)
    weights = query.new_empty(0)
    if need_weights:
        products = q @ k.transpose(-1, -2) * (embed_dim // heads) ** -0.5
        if allowed is not None:
            products = products.masked_fill(allowed.logical_not(), float("-inf"))
        weights = products.softmax(-1)
        result = weights @ v
        weights = weights.mean(1) if average else weights
    else:
        result = F.scaled_dot_product_attention(q, k, v, allowed)
    return F.linear(result.transpose(1, 2).flatten(2), proj_weight, proj_bias), weights


def _allowed(mask: torch.Tensor, kind: int | None) -> torch.Tensor:
    """Return a mask that is broadcast to [batch, heads, queries, keys]."""
    if kind == KEYS:
        return mask[:, None, None, :]
    return mask[None, None] if kind == ROWS else mask
