"""Mixtures of experts: each expert computes the rows of the tokens that chose it."""

from __future__ import annotations

from collections.abc import Callable

from mirlo.dialects.core.dims import Dim, SymbolicDim
from mirlo.dialects.core.errors import OpError
from mirlo.dialects.core.types import MAX_RANK
from mirlo.frontends.tensor import ONE_TENSOR, Tensor, concat
from mirlo.runtime.callbacks import Expected, checked, each_is, is_integer

MAX_EXPERTS = 4096
"""Most experts of a mixture: models have up to 512, and each has calls of kernels of its own."""


def _bounds(count: int) -> Expected:
    """Return the type of the result of `bind`: this many dims."""
    holds = each_is(lambda each: is_integer(each) or isinstance(each, SymbolicDim))
    return Expected(f"{count} dims", lambda value: holds(value) and len(value) == count)


def mix_experts(
    rows: Tensor,
    chosen: Tensor,
    factors: Tensor,
    experts: Tensor,
    bind: Callable[[Tensor, list[Dim]], tuple[Dim, ...]],
    compute: Callable[[int, Tensor], Tensor],
    scales_inputs: bool = False,
) -> Tensor:
    """Return the sum of what the chosen experts compute for each token, times their factors.

    With `scales_inputs`, it is what experts read that is multiplied by the factors.

    `rows` are [tokens, width], `chosen` and `factors` [tokens, count], `experts` the numbers [1, experts]. `bind`
    returns the elements of a list as sizes, with bounds. The choices are sorted by expert: each expert computes a range
    of them, whose size is bound at run time, so the weights of an expert that no token chose are not read. Its results
    are written where the choices were before, in place: memory holds the rows of one expert at a time.
    """
    emit, (tokens, count), total = rows.builder.emit, chosen.type.shape, experts.type.elements
    assert isinstance(count, int) and isinstance(total, int)
    if total > MAX_EXPERTS:
        raise OpError(f"a mixture of {total} experts is not supported: at most {MAX_EXPERTS} are")
    choices, width = tokens * count, rows.shape[1]
    flat = chosen.reshape((choices,))
    order = emit("argsort", flat, axis=0)
    token = order // count
    sizes = flat.reshape((choices, 1)).equals(experts).cast("i64").sum(0)
    compute = checked(compute, ONE_TENSOR, "mix_experts", OpError)
    limits = concat([sizes.cumsum(0) - sizes, sizes], axis=0)
    bound: list[Dim] = []
    while len(bound) < 2 * total:
        few = min(MAX_RANK, 2 * total - len(bound))
        bind_few = checked(bind, _bounds(few), "mix_experts", OpError)
        bound += bind_few(limits.slice(0, len(bound), few), [choices] * few)
    each = rows.builder.constant(0, rows.dtype).expand((choices, width))
    for expert, (begin, size) in enumerate(zip(bound[:total], bound[total:], strict=True)):
        own = rows.gather(token.slice(0, begin, size))
        places = order.slice(0, begin, size)
        if scales_inputs:
            own = own * factors.reshape((choices, 1)).gather(places)
        each = emit("scatter_nd", each, places.reshape((size, 1)), compute(expert, own))
    each = each.reshape((tokens, count, width))
    return (each if scales_inputs else each * factors.reshape((tokens, count, 1))).sum(1)
