"""A rough cost model of products: whether to split K among more thread blocks.

A multiprocessor runs one block at a time, limited by arithmetic or by memory. The figures are of recent devices;
only their ratios matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from mirlo.dialects.core.dims import estimate_dim, static_dim
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.rules import Decline
from mirlo.runtime.lazy_dataclass import dataclass
from mirlo.targets.gpu.schedule.roles import Roles
from mirlo.targets.gpu.schedule.split_k import SplitK, SplitKPlan, divisions
from mirlo.targets.gpu.schedule.stage import PlannedBlocks
from mirlo.targets.gpu.schedule.stream_k import StreamKPlan, cuts

SUMS, MATRIX_UNITS = 1.8e11, 1.4e12
"""Multiply-adds per second and multiprocessor: of its threads, of its matrix units."""
UNIT_BYTES, ALONE = 2e10, 3
"""Bytes per second and multiprocessor when all of them read, and the factor when it is alone."""
LAUNCH = 3e-6
"""Seconds per additional kernel."""
MIN_SPLIT_STEPS = 128
"""Fewest k-steps per part."""
MAX_SPLIT_TIME = 0.9
"""K is split if that takes at most this share of the time."""


@dataclass(frozen=True)
class Shape:
    """The properties of a plan that its cost depends on: what a thread block computes, and how fast."""

    height: int
    width: int
    rate: float = SUMS


class TilePlan(PlannedBlocks, Protocol):
    """A plan whose time is estimated."""

    @property
    def shape(self) -> Shape:
        """Return what a thread block computes, and how fast."""


def seconds(roles: Roles, shape: Shape, units: int) -> float:
    """Return the time of a product on this many multiprocessors."""
    rows, columns = roles.rows, roles.columns
    sizes = (element_bytes(rows.access.element_type), element_bytes(columns.access.element_type))
    batches, high, wide, depth = map(static_dim, (roles.batches, rows.extent, columns.extent, roles.depth))
    return tiled_seconds((batches, high, wide, depth), sizes, shape, units)


def tiled_seconds(
    product: tuple[int, int, int, int],
    sizes: tuple[int, int],
    shape: Shape,
    units: int,
    bytes_of_unit: float = UNIT_BYTES,
) -> float:
    """Return the time of a product, from batches, rows, columns, K, and bytes per operand element."""
    batches, rows, columns, depth = product
    blocks = batches * -(-rows // shape.height) * -(-columns // shape.width)
    multiplied = shape.height * shape.width * depth / shape.rate
    height, width = min(shape.height, rows), min(shape.width, columns)
    read = (height * sizes[0] + width * sizes[1]) * depth / (ALONE * bytes_of_unit)
    everything = batches * depth * (rows * sizes[0] + columns * sizes[1])
    return max(-(-blocks // units) * max(multiplied, read), everything / (units * bytes_of_unit))


def combining_seconds(divided: SplitK, units: int) -> float:
    """Return the time to write the parts and to add them."""
    kind = divided.unfinished.type
    return LAUNCH + 2 * math.prod(map(estimate_dim, kind.shape)) * element_bytes(kind.element_type) / (
        units * UNIT_BYTES
    )


Planner = Callable[[Roles], TilePlan | Decline]


def split_k_if_faster(plan: TilePlan, roles: Roles, units: int, plan_parts: Planner) -> PlannedBlocks:
    """Return the plan of a product, or a split-K plan if that takes less time."""
    return _divided(plan, roles, units, plan_parts)[0]


def whole_waves_if_faster(plan: TilePlan, roles: Roles, units: int, plan_parts: Planner) -> PlannedBlocks:
    """Return the same, or a plan of whole waves of tiles together with a split-K plan of the rest."""
    best, least = _divided(plan, roles, units, plan_parts)
    shape = plan.shape
    for whole, rest in cuts(roles, shape.height, shape.width, units):
        waves, others = plan_parts(whole), plan_parts(rest)
        if isinstance(waves, Decline) or isinstance(others, Decline):
            continue
        last, cost = _divided(others, rest, units, plan_parts)
        cost += seconds(whole, waves.shape, units) + LAUNCH
        if cost < MAX_SPLIT_TIME * least:
            best, least = StreamKPlan(waves, last), cost
    return best


def _divided(plan: TilePlan, roles: Roles, units: int, plan_parts: Planner) -> tuple[PlannedBlocks, float]:
    """Return the plan, or a split-K plan, and its time."""
    own = seconds(roles, plan.shape, units)
    best: PlannedBlocks = plan
    least = MAX_SPLIT_TIME * own
    if least <= LAUNCH:
        return plan, own
    for divided in divisions(roles, MIN_SPLIT_STEPS):
        inner = plan_parts(divided.roles)
        if isinstance(inner, Decline):
            continue
        cost = seconds(divided.roles, inner.shape, units) + combining_seconds(divided, units)
        if cost < least:
            best, least = SplitKPlan(divided, inner), cost
    return best, own if best is plan else least
