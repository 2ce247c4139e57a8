"""Attention."""

from __future__ import annotations

import math

from mirlo.dialects.core import dims as D
from mirlo.frontends.builder import UnsupportedOperation
from mirlo.frontends.tensor import Tensor
from mirlo.frontends.torch.operation import AtenOperation
from mirlo.frontends.torch.registry import converter


@converter("aten.scaled_dot_product_attention.default")
def attention(
    op: AtenOperation, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, dropout: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """Convert attention on tensors of any number of outer dims; the last of them are the heads."""
    if dropout:
        raise UnsupportedOperation("drops elements, as in training: call eval() of its module")
    rank = query.rank
    if rank < 2 or not all(each.rank == rank for each in (key, value)):
        raise UnsupportedOperation("has operands of different ranks")
    outer = D.product(query.shape[:-3])
    given = []
    for each in (query, key, value):
        leading = each.shape[:-2]
        if leading[:-1] != query.shape[:-3] or (not enable_gqa and leading != query.shape[:-2]):
            leading = query.shape[:-2]
            each = op.expanded(each, (*leading, *each.shape[-2:]))
        heads = leading[-1] if leading else 1
        given.append(op.reshaped(each, (outer, heads, *each.shape[-2:])))
    if mask is not None:
        mask = _mask(op, mask, query, key)
    factor = 1 / math.sqrt(op.fixed(query.shape[-1], "a size of heads")) if scale is None else float(scale)
    result = op.emit("attention", *given, mask, scale=factor, causal=is_causal)
    result = op.reshaped(result, op.shape)
    if mask is None or not mask.dtype.is_bool:
        return result
    # A query that attends to nothing gives zeros.
    some = op.emit("reduce_any", mask, axes=[3], keepdims=True)
    flags = op.reshaped(op.expanded(some, (*given[0].shape[:3], 1)), (*query.shape[:-1], 1))
    return op.choose(flags, result, 0, op.dtype)


def _mask(op: AtenOperation, mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Return a mask of four dims."""
    shape = (*query.shape[:-1], key.shape[-2])
    if mask.rank == 2 or len(shape) == 4:
        return op.reshaped(mask, (*[1] * (4 - mask.rank), *mask.shape))
    whole = op.expanded(mask, shape)
    heads = shape[-3] if len(shape) > 2 else 1
    return op.reshaped(whole, (D.product(shape[:-3]), heads, *shape[-2:]))
