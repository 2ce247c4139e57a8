"""A cost model of products, which chooses the tile, and whether to split K among more thread blocks.

A multiprocessor runs one block or some, limited by arithmetic, by the time of a k-step, or by reads from the L2 cache
or from memory. The figures were fitted to 1,250 kernels on an H100, which they predict to 12 % (f32) and 7 % (f16); on
other devices only their ratios matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from mirlo.dialects.core.dims import estimate_dim
from mirlo.dialects.core.types import dims_of
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.rules import Decline
from mirlo.passes.schedule.blocks.contraction.body import count_operations
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.roles import ProductOperand, Roles
from mirlo.targets.gpu.schedule.split_k import SplitK, SplitKPlan, divisions
from mirlo.targets.gpu.schedule.stage import PlannedBlocks
from mirlo.targets.gpu.schedule.stream_k import StreamKPlan, cuts

SUMS, MATRIX_UNITS = 1.8e11, 1.1e12
"""Multiply-adds per second and multiprocessor: of its threads, of its matrix units by `mma.sync`."""
UNIT_BYTES = 2.3e10
"""Bytes of memory per second and multiprocessor when all of them read."""
CACHE_BYTES, ALONE = 8.3e10, 1.7
"""Bytes of the L2 cache per second and multiprocessor when all of them read, and the factor when few do."""
LAUNCH = 1e-6
"""Seconds per additional kernel."""
MIN_SPLIT_STEPS = 32
"""Fewest k-steps per part."""
START = 3e-6
"""Seconds that a product takes whatever its size."""
OVERLAPPED = 0.85
"""How much of the time of arithmetic, cache and memory overlaps."""
MAX_SPLIT_TIME = 0.9
"""K is split if that takes at most this share of the time."""


@dataclass(frozen=True)
class Shape:
    """The properties of a plan that its cost depends on."""

    height: int
    width: int
    rate: float = SUMS
    """Multiply-adds per second and multiprocessor, when it has as many blocks as fit."""
    step: float = 0.0
    """Seconds of a k-step of a block that is alone."""
    resident: int = 1
    """Blocks that a multiprocessor runs at a time."""


class ProductTile(Protocol):
    """The tile of a product that the threads of a block compute."""

    @property
    def height(self) -> int:
        """Return the rows."""

    @property
    def width(self) -> int:
        """Return the columns."""

    @property
    def accumulators(self) -> int:
        """Return the accumulators of a thread."""


Tile = TypeVar("Tile", bound=ProductTile)


class TilePlan(PlannedBlocks, Protocol):
    """A plan whose time is estimated."""

    @property
    def shape(self) -> Shape:
        """Return the properties of the plan that its cost depends on."""


def seconds(roles: Roles, shape: Shape, units: int) -> float:
    """Return the time of a product on this many multiprocessors."""
    rows, columns = roles.rows, roles.columns
    sizes = (element_bytes(rows.access.element_type), element_bytes(columns.access.element_type))
    batches, high, wide, depth = map(estimate_dim, (roles.batches, rows.extent, columns.extent, roles.depth))
    # Windows of an image are read more than once, from the cache.
    moved = min(batches * high * depth * sizes[0], _bytes(rows)) + min(
        batches * wide * depth * sizes[1], _bytes(columns)
    )
    return tiled_seconds((batches, high, wide, depth), sizes, shape, units, moved)


def tiled_seconds(
    product: tuple[int, int, int, int],
    sizes: tuple[int, int],
    shape: Shape,
    units: int,
    moved: int,
    cache_of_unit: float = CACHE_BYTES,
) -> float:
    """Return the time of a product: batches, rows, columns, K, bytes per operand element, bytes of both operands."""
    batches, rows, columns, depth = product
    blocks = batches * -(-rows // shape.height) * -(-columns // shape.width)
    each = -(-blocks // units)
    multiplied = each * shape.height * shape.width * depth / shape.rate
    waited = -(-each // shape.resident) * depth * shape.step
    height, width = min(shape.height, rows), min(shape.width, columns)
    bandwidth = cache_of_unit * min(ALONE, units / min(blocks, units))
    read = each * (height * sizes[0] + width * sizes[1]) * depth / bandwidth
    limits = (max(multiplied, waited), read, moved / (units * UNIT_BYTES))
    return START + OVERLAPPED * max(limits) + (1 - OVERLAPPED) * sum(limits)


def _bytes(side: ProductOperand) -> int:
    return math.prod(map(estimate_dim, dims_of(side.access.value.type))) * element_bytes(side.access.element_type)


def fastest_tile(
    roles: Roles, tiles: Iterable[Tile], shape_of: Callable[[Tile], Shape], units: int, max_ops: int
) -> Tile | None:
    """Return the tile with which a product takes the least time, the first one of equals; None if none fits.

    Epilogues have at most `max_ops` operations over all accumulators of a thread.
    """
    heavy = count_operations([stage.block for stage in roles.contraction.stages])
    fitting = [tile for tile in tiles if heavy * tile.accumulators <= max_ops]
    return min(fitting, key=lambda tile: seconds(roles, shape_of(tile), units), default=None)


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
    if least <= START + LAUNCH:
        return plan, own
    for divided in divisions(roles, MIN_SPLIT_STEPS):
        inner = plan_parts(divided.roles)
        if isinstance(inner, Decline):
            continue
        cost = seconds(divided.roles, inner.shape, units) + combining_seconds(divided, units)
        if cost < least:
            best, least = SplitKPlan(divided, inner), cost
    return best, own if best is plan else least
