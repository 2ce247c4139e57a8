"""Mixtures of experts: each expert computes the rows of the tokens that chose it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.errors import OpError
from mirlo.frontends.builder import GraphBuilder
from mirlo.frontends.tensor import ONE_TENSOR, TWO_DIMS, Tensor, stack
from mirlo.runtime.callbacks import checked

MAX_EXPERTS = 4096
"""Most experts of a mixture: models have up to 512."""


def mix_experts(
    builder: GraphBuilder,
    rows: Tensor,
    chosen: Tensor,
    factors: Tensor,
    experts: Tensor,
    bind: Callable[[Tensor, list[Dim]], tuple[Dim, ...]],
    compute: Callable[[tuple[int, ...], Tensor, Tensor], Tensor],
    scales_inputs: bool = False,
    groups: Sequence[tuple[int, ...]] = (),
) -> Tensor:
    """Return the sum of what the chosen experts compute for each token, times their factors.

    With `scales_inputs`, it is what experts read that is multiplied by the factors.

    `rows` are [tokens, width], `chosen` and `factors` [tokens, count], `experts` the numbers [1, experts]. `bind`
    returns the elements of a list as sizes, with bounds. The choices are sorted by expert: each expert computes a range
    of them, whose size is bound at run time, so the weights of an expert that no token chose are not read. Its results
    are written where the choices were before, in place: memory holds the rows of one expert at a time.

    A loop over the experts computes one in each iteration. `compute` takes their numbers, the position of one of them,
    which is known at run time, and its rows: `gather` reads its weights from those of all. Experts with weights of
    other types are in other `groups`, each a loop; a group of one expert has none, and 0 for the position.
    """
    emit, (tokens, count), total = builder.emit, chosen.type.shape, experts.type.elements
    assert isinstance(count, int) and isinstance(total, int)
    if total > MAX_EXPERTS:
        raise OpError(f"a mixture of {total} experts is not supported: at most {MAX_EXPERTS} are")
    bind = checked(bind, TWO_DIMS, "mix_experts", OpError)
    compute = checked(compute, ONE_TENSOR, "mix_experts", OpError)
    choices, width = tokens * count, rows.shape[1]
    flat = chosen.reshape((choices,))
    order = emit("argsort", flat, axis=0)
    token = order // count
    sizes = flat.reshape((choices, 1)).equals(experts).cast("i64").sum(0)
    limits = stack([sizes.cumsum(0) - sizes, sizes], 1)
    each = builder.constant(0, rows.dtype).expand((choices, width))

    def written(members: tuple[int, ...], position: Tensor, before: Tensor) -> Tensor:
        expert = position if members == every else builder.constant(members, "i64").gather(position)
        begin, size = bind(limits.gather(expert), [choices, choices])
        own = rows.gather(token.slice(0, begin, size))
        places = order.slice(0, begin, size)
        if scales_inputs:
            own = own * factors.reshape((choices, 1)).gather(places)
        return emit("scatter_nd", before, places.reshape((size, 1)), compute(members, position, own))

    every = tuple(range(total))
    for members in groups or (every,):
        if len(members) == 1:
            each = written(members, builder.constant(0, "i64"), each)
            continue

        def iterate(position: Tensor, carried: list[Tensor], members: tuple[int, ...] = members) -> list[Tensor]:
            return [written(members, position, *carried)]

        (each,) = builder.repeat_times(len(members), [each], iterate)
    each = each.reshape((tokens, count, width))
    return (each if scales_inputs else each * factors.reshape((tokens, count, 1))).sum(1)
