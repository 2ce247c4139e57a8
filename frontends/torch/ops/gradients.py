"""Gradients of operators that PyTorch computes by kernels of its own, by other operators."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mirlo.frontends.torch.registry import decomposition

if TYPE_CHECKING:
    import torch


@decomposition("aten._scaled_dot_product_flash_attention_for_cpu_backward.default")
def attention_backward(
    grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, result: torch.Tensor,
    logarithms: torch.Tensor, dropout: float, is_causal: bool, *, attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Compute the gradients of attention from its operands alone, so that forward has no logarithms to save."""
    import torch

    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    wide = torch.promote_types(query.dtype, torch.float32)
    q, g = query.to(wide), grad.to(wide)
    repeats = query.shape[-3] // key.shape[-3]
    k, v = (each.to(wide).repeat_interleave(repeats, -3) if repeats != 1 else each.to(wide) for each in (key, value))
    scores = (q @ k.transpose(-2, -1)) * factor
    if is_causal:
        rows, columns = scores.shape[-2:]
        allowed = torch.ones((rows, columns), dtype=torch.bool).tril()
        scores = torch.where(allowed, scores, -math.inf)
    if attn_mask is not None:
        masked = attn_mask.dtype == torch.bool
        scores = torch.where(attn_mask, scores, -math.inf) if masked else scores + attn_mask.to(wide)
    weights = torch.softmax(scores, -1)
    if attn_mask is not None:  # a query that attends to nothing gives zeros
        weights = torch.where((scores == -math.inf).all(-1, keepdim=True), 0, weights)
    by_value = weights.transpose(-2, -1) @ g
    by_weights = g @ v.transpose(-2, -1)
    by_scores = weights * (by_weights - (weights * by_weights).sum(-1, keepdim=True)) * factor
    by_query, by_key = by_scores @ k, by_scores.transpose(-2, -1) @ q
    if repeats != 1:
        by_key, by_value = (each.unflatten(-3, (-1, repeats)).sum(-3) for each in (by_key, by_value))
    return by_query.to(query.dtype), by_key.to(key.dtype), by_value.to(value.dtype)
