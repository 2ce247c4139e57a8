"""Attention."""

from __future__ import annotations

import math

from mirlo.extend.frontend import Tensor, UnsupportedOperation, where
from mirlo.extend.frontend import dims as D
from mirlo_torch.operation import AtenOperation
from mirlo_torch.registry import converter


@converter("aten.scaled_dot_product_attention.default")
def attention(
    op: AtenOperation, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, dropout: float = 0.0,
    is_causal: bool = False, *, scale: float | Tensor | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """Convert attention on tensors of any number of outer dims; the last of them are the heads."""
    if dropout:
        raise UnsupportedOperation("drops elements, as in training: call eval() of its module")
    rank = query.rank
    if rank < 2 or not all(each.rank == rank for each in (key, value)):
        raise UnsupportedOperation("has operands of different ranks")
    outer = D.product(query.shape[:-3])
    query, factor = _scaled(op, query, scale)
    key = op.builder.with_dim(key, rank - 1, query.shape[-1])
    value = op.builder.with_dim(value, rank - 2, key.shape[-2])
    if rank > 2:
        value = op.builder.with_dim(value, rank - 3, key.shape[-3])
    operands = []
    for each in (query, key, value):
        for axis, size in enumerate(query.shape[:-3] if enable_gqa else query.shape[:-2]):
            each = op.builder.with_dim(each, axis, size)
        leading = each.shape[:-2]
        if leading[:-1] != query.shape[:-3] or (not enable_gqa and leading != query.shape[:-2]):
            leading = (*query.shape[:-3], leading[-1] if enable_gqa else query.shape[-3])
            each = each.expand((*leading, *each.shape[-2:]))
        heads = leading[-1] if leading else 1
        operands.append(each.reshape((outer, heads, *each.shape[-2:])))
    if mask is not None:
        mask = _mask(op, mask, query, key)
    result = op.emit("attention", *operands, mask, scale=factor, causal=is_causal)
    result = result.reshape((*query.shape[:-1], value.shape[-1]))
    if mask is None or not mask.dtype.is_bool:
        return result
    # A query that attends to nothing gives zeros.
    some = mask.any(3, keepdims=True)
    flags = some.expand((*operands[0].shape[:3], 1)).reshape((*query.shape[:-1], 1))
    return where(flags, result, 0, query.dtype)


@converter("aten._scaled_dot_product_flash_attention_for_cpu.default")
def attention_for_cpu(
    op: AtenOperation, query: Tensor, key: Tensor, value: Tensor, dropout: float = 0.0, is_causal: bool = False,
    *, attn_mask: Tensor | None = None, scale: float | Tensor | None = None,
) -> list[Tensor | None]:  # fmt: skip
    """Convert attention as PyTorch traces it for inference on CPUs; keys and values may have fewer heads."""
    if op.is_used(1):
        raise UnsupportedOperation("gives logarithms of sums, which only gradients need")
    grouped = query.shape[-3] != key.shape[-3]
    result = attention(
        op, query, key, value, attn_mask, dropout, is_causal, scale=scale, enable_gqa=grouped
    )  # fmt: skip
    return [result, None]


def _scaled(op: AtenOperation, query: Tensor, scale: float | Tensor | None) -> tuple[Tensor, float]:
    """Return a query and the factor of its products; a factor that depends on sizes is multiplied with the query."""
    size = query.shape[-1]
    if isinstance(scale, Tensor):
        factor = scale
    elif scale is not None:
        return query, float(scale)
    elif isinstance(size, int):
        return query, 1 / math.sqrt(size)
    else:
        factor = 1.0 / op.operand(size, "f64").sqrt()
    wide = op.wide(query)
    return (wide * factor.cast(wide.dtype)).cast(query.dtype), 1.0


def _mask(op: AtenOperation, mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Return a mask of four dims."""
    shape = (*query.shape[:-1], key.shape[-2])
    if mask.rank == 2 or len(shape) == 4:
        return mask.reshape((*[1] * (4 - mask.rank), *mask.shape))
    whole = mask.expand(shape)
    heads = shape[-3] if len(shape) > 2 else 1
    return whole.reshape((D.product(shape[:-3]), heads, *shape[-2:]))
