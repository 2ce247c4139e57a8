"""Choices for tuning of target `nvvm`: how products and attentions are computed, tiles, and split factors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import PrimView
from mirlo.passes.rule_choices import tuning_point
from mirlo.passes.rules import Decline
from mirlo.passes.schedule.blocks.contraction.analysis import is_product
from mirlo.passes.schedule.blocks.group import unfit, whole_group
from mirlo.targets.gpu.schedule.attention.lengths import AttentionPlan
from mirlo.targets.gpu.schedule.costs import MIN_SPLIT_STEPS
from mirlo.targets.gpu.schedule.roles import Roles, product_of
from mirlo.targets.gpu.schedule.split_k import SplitKPlan, divisions
from mirlo.targets.gpu.schedule.stage import LANES, decline_dynamic_dims
from mirlo.targets.nvvm.options import Options, parse_options
from mirlo.targets.nvvm.schedule.attention import plan_any
from mirlo.targets.nvvm.schedule.attention.choices import choices
from mirlo.targets.nvvm.schedule.products import BEST_FIRST, NO_CHOICES, STRATEGIES, ProductChoices, plan_roles

if TYPE_CHECKING:
    from mirlo.passes.targets import CompileOptions

MAX_SPLIT_OUTPUTS = 1 << 20
"""Most outputs of a product for which split-K is tried."""


def space(function: ir.Operation | ir.OpView, options: CompileOptions | None = None) -> list[dict[str, int]]:
    """Return the choices for a prim function in tensor form, likeliest first; empty if there are none."""
    view = PrimView(function)
    if unfit(view) or decline_dynamic_dims(view.blocks) or not is_product(view.blocks[0]):
        return []
    asked = parse_options(getattr(options, "target_options", ""))
    group = whole_group(view, LANES)
    attention = plan_any(group, asked)
    if isinstance(attention, AttentionPlan):
        return [tuning_point(each) for each in choices(attention)]
    roles = product_of(group)
    if isinstance(roles, Decline):
        return []
    points: list[dict[str, int]] = []
    own = True
    for way in BEST_FIRST:
        number = STRATEGIES.index(way)
        plan = way.plan(roles, asked)
        if isinstance(plan, Decline):
            continue
        # Without a choice, the first strategy that accepts the product is used with its own tile.
        tiles = [i for i, tile in enumerate(way.tiles) if not own or tile != plan.tile]
        points += [tuning_point(ProductChoices(number, i)) for i in tiles]
        own = False
    return points + _divisions(roles, asked)


def _divisions(roles: Roles, options: Options) -> list[dict[str, int]]:
    """Return split-K factors to try besides the plan's own."""
    own = plan_roles(roles, options, NO_CHOICES)
    has = own.divided.parts if isinstance(own, SplitKPlan) else 1
    # With many blocks, split-K is not worthwhile.
    few = [d.parts for d in divisions(roles, MIN_SPLIT_STEPS) if d.parts <= 16 and roles.outputs <= MAX_SPLIT_OUTPUTS]
    return [tuning_point(ProductChoices(parts=parts)) for parts in ([1] if has > 1 else []) + few if parts != has]
