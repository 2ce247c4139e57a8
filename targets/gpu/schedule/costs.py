"""What products cost, roughly: whether to divide their sums among more blocks of threads.

A unit of a device computes one block at a time, as fast as it multiplies or as it gets numbers, whichever is slower.
The figures are of recent devices; only how they compare steers choices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.rules import Decline
from mirlo.targets.gpu.schedule.divided import Divided, DividedPlan, divisions
from mirlo.targets.gpu.schedule.roles import Roles
from mirlo.targets.gpu.schedule.rounds import RoundsPlan, cuts

SUMS, MATRIX_UNITS = 1.8e11, 1.4e12
"""Multiply-and-adds a second of a unit: of its threads, of what multiplies matrices."""
UNIT_BYTES, ALONE = 2e10, 3
"""Bytes a second that a unit gets where all of them read, and how many times as many where it is alone."""
LAUNCH = 3e-6
"""Seconds that one more kernel takes."""
FEWEST_STEPS = 128
"""Steps of the sums that are worth a part."""
WORTH = 0.9
"""A product is divided where it takes no more than this share of the time."""


@dataclass(frozen=True)
class Shape:
    """A plan as its cost depends on it: what a block of threads computes, and how fast."""

    height: int
    width: int
    rate: float = SUMS


def seconds(roles: Roles, shape: Shape, units: int) -> float:
    """What a product takes on so many units."""
    rows, columns = roles.rows, roles.columns
    sizes = (element_bytes(rows.access.element_type), element_bytes(columns.access.element_type))
    return tiled_seconds((roles.batches, rows.extent, columns.extent, roles.depth), sizes, shape, units)


def tiled_seconds(
    product: tuple[int, int, int, int],
    sizes: tuple[int, int],
    shape: Shape,
    units: int,
    bytes_of_unit: float = UNIT_BYTES,
) -> float:
    """The same of a product by its batches, rows, columns and the length of its sums, of factors of so many bytes."""
    batches, rows, columns, depth = product
    blocks = batches * -(-rows // shape.height) * -(-columns // shape.width)
    multiplied = shape.height * shape.width * depth / shape.rate
    height, width = min(shape.height, rows), min(shape.width, columns)
    read = (height * sizes[0] + width * sizes[1]) * depth / (ALONE * bytes_of_unit)
    everything = batches * depth * (rows * sizes[0] + columns * sizes[1])
    return max(-(-blocks // units) * max(multiplied, read), everything / (units * bytes_of_unit))


def combining_seconds(divided: Divided, units: int) -> float:
    """What it takes to write the parts and to add them up."""
    kind = divided.unfinished.type
    return LAUNCH + 2 * math.prod(kind.shape) * element_bytes(kind.element_type) / (units * UNIT_BYTES)


Planner = Callable[[Roles], Any]
ShapeOf = Callable[[Any], Shape]


def divided_if_better(plan: Any, roles: Roles, units: int, plan_parts: Planner, shape_of: ShapeOf) -> Any:
    """The plan of a product, or a plan of its parts where that takes less time."""
    return _divided(plan, roles, units, plan_parts, shape_of)[0]


def rounds_if_better(plan: Any, roles: Roles, units: int, plan_parts: Planner, shape_of: ShapeOf) -> Any:
    """The same, or a plan of whole rounds of tiles on so many units, and one for what is left in parts."""
    best, least = _divided(plan, roles, units, plan_parts, shape_of)
    shape = shape_of(plan)
    for whole, rest in cuts(roles, shape.height, shape.width, units):
        plans = [plan_parts(part) for part in (whole, rest)]
        if any(isinstance(made, Decline) for made in plans):
            continue
        last, cost = _divided(plans[1], rest, units, plan_parts, shape_of)
        cost += seconds(whole, shape_of(plans[0]), units) + LAUNCH
        if cost < WORTH * least:
            best, least = RoundsPlan(plans[0], last), cost
    return best


def _divided(plan: Any, roles: Roles, units: int, plan_parts: Planner, shape_of: ShapeOf) -> tuple[Any, float]:
    """The plan, or one in parts, and what it takes."""
    own = seconds(roles, shape_of(plan), units)
    best, least = plan, WORTH * own
    if least <= LAUNCH:
        return plan, own
    for divided in divisions(roles, FEWEST_STEPS):
        inner = plan_parts(divided.roles)
        if isinstance(inner, Decline):
            continue
        cost = seconds(divided.roles, shape_of(inner), units) + combining_seconds(divided, units)
        if cost < least:
            best, least = DividedPlan(divided, inner), cost
    return best, own if best is plan else least
