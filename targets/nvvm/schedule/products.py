"""The rule for products: on the matrix units if possible, else in large tiles; few rows separately.

If that leaves multiprocessors idle, K is split among more thread blocks where that costs less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

from mirlo.dialects.core.dims import is_static
from mirlo.passes.rule_choices import Choice, choice_values
from mirlo.passes.rules import Decline, deciding, decline
from mirlo.passes.schedule.blocks.contraction.analysis import is_product
from mirlo.passes.schedule.blocks.group import BlockGroup, LaneModel, unfit_blocks
from mirlo.passes.schedule.parts import part_rule
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.contraction import fma
from mirlo.targets.gpu.schedule.contraction.tiled import ProductTile, TiledPlan
from mirlo.targets.gpu.schedule.costs import whole_waves_if_faster
from mirlo.targets.gpu.schedule.roles import Roles, product_of
from mirlo.targets.gpu.schedule.rules import function_group
from mirlo.targets.gpu.schedule.split_k import SplitKPlan, divide
from mirlo.targets.gpu.schedule.stage import LANES, PlannedBlocks, StagePlan, decline_dynamic_dims
from mirlo.targets.gpu.schedule.stages import Planner, plan_stages
from mirlo.targets.gpu.schedule.stream_k import StreamKPlan
from mirlo.targets.nvvm.options import Options, planned_for
from mirlo.targets.nvvm.schedule import tensorcore, tensormemory, warpgroup
from mirlo.targets.nvvm.schedule.gemv import GemvPlan, plan_gemv
from mirlo.targets.nvvm.schedule.pipelined import PipelinedPlan
from mirlo.targets.nvvm.schedule.tensorcore import plan_tensor_cores
from mirlo.targets.nvvm.schedule.warpgroup import plan_warpgroups
from mirlo.targets.nvvm.schedule.warprows import AROUND

if TYPE_CHECKING:
    pass

TilePlan = PipelinedPlan | TiledPlan
OwnPlan = GemvPlan | TilePlan
Plan = OwnPlan | SplitKPlan | StreamKPlan


@dataclass(frozen=True)
class ProductStrategy:
    """A strategy for tiled products, with alternatives to its own tile."""

    plan: Callable[[Roles, Options], TilePlan | Decline]
    tiles: Sequence[ProductTile]

    def own(self, roles: Roles, options: Options) -> TilePlan | Decline:
        """Return the plan with its own tile."""
        return self.plan(roles, options)

    def with_tile(self, roles: Roles, options: Options, number: int) -> TilePlan | Decline:
        """Return the plan with the tile of this number, if the strategy accepts the product."""
        plan = self.plan(roles, options)
        return plan if isinstance(plan, Decline) else plan.with_tile(self.tiles[number])


STRATEGIES = (
    ProductStrategy(plan_warpgroups, warpgroup.TILES),
    ProductStrategy(plan_tensor_cores, tensorcore.TILES),
    ProductStrategy(lambda roles, options: fma.plan_large_tiles(roles, options.chip.units), fma.TILES),
    ProductStrategy(tensormemory.plan_tensor_memory, tensormemory.TILES),
)
"""Strategies by their numbers in tuning databases. No chip has both warpgroups and tensor memory."""
BEST_FIRST = (STRATEGIES[3], *STRATEGIES[:3])


@dataclass(frozen=True)
class ProductChoices:
    """Choices for a product; None where the rule decides."""

    way: Annotated[
        int | None, Choice(range(len(STRATEGIES)), "how: 0 warpgroups, 1 mma.sync, 2 f32 tiles, 3 tensor memory")
    ] = None
    tile: Annotated[int | None, Choice(range(max(len(way.tiles) for way in STRATEGIES)), "the number of the tile")] = (
        None
    )
    parts: Annotated[
        int | None, Choice(range(1, 1 << 16), "parts of K that are computed separately and added; 1 for none")
    ] = None


NO_CHOICES = ProductChoices()


def resolved_choices(stages: Sequence[PlannedBlocks]) -> ProductChoices:
    """Return the choices with which the product among some stages is planned again, if there is only one."""
    plans = [stage for stage in stages if isinstance(stage, Plan)]
    if len(plans) != 1 or isinstance(plans[0], StreamKPlan):
        return NO_CHOICES
    whole = plans[0]
    plan: PlannedBlocks = whole
    parts = 1
    if isinstance(whole, SplitKPlan):
        plan, parts = whole.inner, whole.divided.parts
    if isinstance(plan, GemvPlan):
        return ProductChoices(parts=parts)
    if not isinstance(plan, TilePlan):
        return NO_CHOICES  # parts that the rule of all GPUs computes, one thread per sum
    for number, way in enumerate(STRATEGIES):
        if plan.tile in way.tiles:
            return ProductChoices(number, list(way.tiles).index(plan.tile), parts)
    return NO_CHOICES


def planners(options: Options, choices: ProductChoices) -> list[Callable[[Roles], OwnPlan | Decline]]:
    """Return the planners of a product, best first."""
    ways: list[Callable[[Roles], OwnPlan | Decline]] = [plan_gemv]
    ways += [partial(way.own, options=options) for way in BEST_FIRST]
    if choices.way is not None and choices.tile is not None and choices.tile < len(STRATEGIES[choices.way].tiles):
        ways.insert(0, partial(STRATEGIES[choices.way].with_tile, options=options, number=choices.tile))
    return ways


def plan_product(group: BlockGroup[LaneModel], options: Options, choices: ProductChoices) -> PlannedBlocks | Decline:
    """Plan these blocks, the first of which is the product; or decline with the reason of each strategy."""
    roles = product_of(group)
    return roles if isinstance(roles, Decline) else plan_roles(roles, options, choices)


def plan_dynamic(group: BlockGroup[LaneModel], options: Options) -> TilePlan | Decline:
    """Plan a product with dynamic sizes and a static reduction."""
    roles = product_of(group)
    if isinstance(roles, Decline):
        return roles
    if not is_static(roles.depth):
        return decline("how long the sums are is known at run time only", steps=str(roles.depth))
    on_units = plan_tensor_cores(roles, options)
    return fma.plan_large_tiles(roles, options.chip.units) if isinstance(on_units, Decline) else on_units


def plan_roles(roles: Roles, options: Options, choices: ProductChoices) -> PlannedBlocks | Decline:
    """Plan a product."""

    def way(part: Roles) -> OwnPlan | Decline:
        return _first(part, options, choices)

    plan = way(roles)
    if choices.parts is not None and choices.parts > 1:
        divided = divide(roles, choices.parts)
        inner = divided if isinstance(divided, Decline) else way(divided.roles)
        return plan if isinstance(divided, Decline) or isinstance(inner, Decline) else SplitKPlan(divided, inner)
    if isinstance(plan, Decline) or choices != NO_CHOICES:
        return plan
    return whole_waves_if_faster(plan, roles, options.chip.units, way)


def _first(roles: Roles, options: Options, choices: ProductChoices) -> OwnPlan | Decline:
    reasons = []
    for way in planners(options, choices):
        plan = way(roles)
        if not isinstance(plan, Decline):
            return plan
        reasons.append(str(plan))
    return decline("; ".join(reasons))


@part_rule("nvvm", function_group, priority=60)
def products(group: BlockGroup[LaneModel], choices: ProductChoices = NO_CHOICES) -> StagePlan | Decline:
    """Schedule products on the matrix units, in large tiles or by few rows; other blocks use the plans of all GPUs."""
    refusal = unfit_blocks(group.blocks)
    if refusal is not None:
        return refusal
    if not any(is_product(block) for block in group.blocks):
        return decline("no block is a product of two tensors")
    options = planned_for(group.context.options)
    plan: Planner = partial(plan_product, options=options, choices=choices)
    by_guess = deciding(partial(plan_dynamic, options=options))
    stages = plan_stages(group, (plan, *AROUND), (by_guess,))
    if any(isinstance(stage, Plan) for stage in stages):
        return StagePlan(
            group, stages, chosen={} if decline_dynamic_dims(group.blocks) else choice_values(resolved_choices(stages))
        )
    first = next(block for block in group.blocks if is_product(block))
    if decline_dynamic_dims([first]) is not None:
        plan = by_guess
    declined = plan(BlockGroup((first,), frozenset(o.value for o in first.outputs), LANES))
    return declined if isinstance(declined, Decline) else decline("the product is not computed by itself")
