"""The rule for products: on the matrix units where these take them, else in large tiles of f32."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mirlo.passes.rules import Decline, decline, schedule
from mirlo.passes.schedule.blocks.contraction.analysis import is_product
from mirlo.passes.schedule.blocks.group import Group, unfit
from mirlo.targets.gpu.schedule.stages import LANES, build, plan_stages
from mirlo.targets.nvvm.options import Options, planned_for
from mirlo.targets.nvvm.schedule.multiplyadd import TilesPlan, plan_tiles
from mirlo.targets.nvvm.schedule.tensorcore import TensorCorePlan, plan_tensor_cores
from mirlo.targets.nvvm.schedule.warpgroup import WarpgroupPlan, plan_warpgroups
from mirlo.targets.nvvm.schedule.warprows import AROUND

PLANS = (WarpgroupPlan, TensorCorePlan, TilesPlan)


def planners(options: Options) -> tuple[Callable[[Group], Any], ...]:
    """Ways to compute a product, the best first."""
    return partial(plan_warpgroups, options=options), partial(plan_tensor_cores, options=options), plan_tiles


@schedule("any", target="nvvm", priority=60)
def products(kernel: Any, context: Any) -> Any:
    """Products on the matrix units or in large tiles, and what is around them by the plans of all GPUs."""
    refusal = unfit(kernel.view)
    if refusal is not None:
        return refusal
    if not any(is_product(block) for block in kernel.view.blocks):
        return decline("no block is a product of two tensors")
    ways = planners(planned_for(context.options))
    found = plan_stages(kernel.view, (*ways, *AROUND))
    if any(isinstance(stage, PLANS) for stage in found):
        return build(kernel, found)
    first = next(block for block in kernel.view.blocks if is_product(block))
    alone = Group((first,), frozenset(o.value for o in first.outputs), LANES)
    reasons = [str(declined) for way in ways if isinstance(declined := way(alone), Decline)]
    return decline("; ".join(reasons) or "the product is not computed by itself")
