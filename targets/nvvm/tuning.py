"""What can be chosen for kernels of target `nvvm`: how a product is computed, and in which tiles."""

from __future__ import annotations

from typing import Any

from mirlo.dialects.tir.view import PrimView
from mirlo.passes.rules import Decline
from mirlo.passes.schedule.blocks.contraction.analysis import is_product
from mirlo.passes.schedule.blocks.group import Group, unfit
from mirlo.targets.nvvm.options import parse_options


def space(function: Any, options: Any = None) -> list[dict[str, int]]:
    """What may be tried for a prim function in tensor form, the likeliest first; empty for what has no choices."""
    from mirlo.targets.gpu.schedule.roles import product_of
    from mirlo.targets.gpu.schedule.stages import LANES
    from mirlo.targets.nvvm.schedule.products import TILE, WAY, WAYS

    view = PrimView(function)
    if unfit(view) is not None or not is_product(view.blocks[0]):
        return []
    roles = product_of(Group(tuple(view.blocks), frozenset(view.returned), LANES))
    if isinstance(roles, Decline):
        return []
    asked = parse_options(getattr(options, "target_options", ""))
    found: list[dict[str, int]] = []
    own = True
    for number, way in enumerate(WAYS):
        plan = way.plan(roles, asked)
        if isinstance(plan, Decline):
            continue
        # The first way that takes the product, in the tile that it chooses, is what is there without a choice.
        tiles = [i for i, tile in enumerate(way.tiles) if not own or tile != plan.tile]
        found += [{WAY: number, TILE: i} for i in tiles]
        own = False
    return found
