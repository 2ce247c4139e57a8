"""Losses whose data must be in a range."""

from __future__ import annotations

from mirlo.extend.frontend import Tensor, maximum
from mirlo_torch.bounds import require_none
from mirlo_torch.operation import AtenOperation
from mirlo_torch.registry import converter

NONE, MEAN = range(2)
"""ATen's numbers of reductions; other numbers mean the sum."""
LEAST_LOGARITHM = -100
"""The lower bound of logarithms in PyTorch, for probabilities of 0."""


@converter("aten.binary_cross_entropy.default")
def binary_cross_entropy(
    op: AtenOperation, x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    """Convert the cross entropy of probabilities, which are between 0 and 1."""
    outside = (x < 0) | (x > 1) | x.isnan()
    require_none(op, outside, f"{op.name}: probabilities that are not between 0 and 1; minus their number")
    probabilities, wanted = op.wide(x), op.wide(target)
    of_zero, of_one = (maximum(each, LEAST_LOGARITHM) for each in ((-probabilities).log1p(), probabilities.log()))
    loss = (wanted - 1) * of_zero - wanted * of_one
    if weight is not None:
        loss = loss * weight.cast(loss.dtype)
    if reduction != NONE and loss.rank:
        axes = list(range(loss.rank))
        loss = loss.mean(axes) if reduction == MEAN else loss.sum(axes)
    return loss.cast(op.dtype)
