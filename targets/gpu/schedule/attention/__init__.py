"""Attention, one tile of scores at a time: the rule for all GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from mirlo.dialects.core import dims as D
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.rule_choices import ChoiceValues
from mirlo.passes.rules import Decline, deciding, decline
from mirlo.passes.schedule.blocks.attention import AttentionBlocks, cannot_be_attention
from mirlo.passes.schedule.blocks.find_attention import find_attention
from mirlo.passes.schedule.blocks.group import BlockGroup, LaneModel, unfit_blocks
from mirlo.passes.schedule.parts import part_rule
from mirlo.passes.targets import ThreadLimits, thread_limits
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.attention.lengths import AttentionPlan, QueryCountPlans, with_one_query
from mirlo.targets.gpu.schedule.attention.split_keys import BlockProperties, choose_key_splits
from mirlo.targets.gpu.schedule.attention.tiled import Team, ThreadAttentionTile, TiledKernel, in_shared_memory
from mirlo.targets.gpu.schedule.attention.work import Work
from mirlo.targets.gpu.schedule.rules import function_group
from mirlo.targets.gpu.schedule.stage import StagePlan
from mirlo.targets.gpu.schedule.stages import Planner, plan_stages

MIN_BLOCKS = 64
"""Assumed multiprocessors of a device: with fewer thread blocks, keys are split if that costs less."""
KEYS = 4
"""Most keys per thread, if there are few rows: of sums of 4 bytes, half as many of 8, whose values fill registers."""
WIDEST = 128
"""Most keys that the threads of a few rows process at a time."""
MOST_COLUMNS, FEWEST_COLUMNS = 256, 64
"""Most and fewest elements of a row of values per thread block."""


Plan = AttentionPlan | QueryCountPlans


@dataclass(frozen=True)
class TiledAttentionPlan(AttentionPlan):
    """Attention by any GPU's threads."""

    tile: ThreadAttentionTile
    team: Team

    def kernel(self, work: Work) -> TiledKernel:
        """See `AttentionPlan`."""
        return TiledKernel(work, self.tile, self.parts, self.team)


def plan_group(
    group: BlockGroup[LaneModel], plan: Callable[[AttentionBlocks], AttentionPlan | Decline]
) -> Plan | Decline:
    """Plan these blocks if they are an attention; with two plans if the number of queries is dynamic."""
    result = deciding(find_attention)(group)
    if isinstance(result, Decline):
        return result
    if result.scales_values:
        return decline("the weights are multiplied by scales of the values")
    more = plan(result)
    single = with_one_query(result)
    if isinstance(more, Decline) or single is None:
        return more
    one = plan(single[0])
    return one if isinstance(one, Decline) else QueryCountPlans(one, more, single[1])


def plan_attention(
    attention_blocks: AttentionBlocks,
    busy: int = MIN_BLOCKS,
    team: Team = in_shared_memory,
    limits: ThreadLimits | None = None,
) -> AttentionPlan:
    """Plan any attention, for threads with limits."""
    tile = choose_tile(attention_blocks, limits or ThreadLimits())
    parts = choose_key_splits(attention_blocks, BlockProperties(tile.height, tile.width, tile.columns, busy))
    return TiledAttentionPlan("attention", attention_blocks, tile, parts, team)


def choose_tile(attention_blocks: AttentionBlocks, limits: ThreadLimits) -> ThreadAttentionTile:
    """Return the largest tile that fits shared memory."""
    tile = _widest_tile(attention_blocks)
    size = element_bytes(attention_blocks.sum_type)
    while size * tile.shared_elements > limits.max_shared:
        if tile.columns > FEWEST_COLUMNS:
            tile = replace(tile, columns=-(-tile.columns // 2))
        elif tile.rows > 1:
            tile = replace(tile, rows=tile.rows // 2)
        elif tile.keys > 1:
            tile = replace(tile, keys=tile.keys // 2)
        else:
            break
    return tile


def _widest_tile(attention_blocks: AttentionBlocks) -> ThreadAttentionTile:
    """Return threads and their scores: as many rows as there are, up to 64."""
    rows = D.estimate_dim(attention_blocks.count(attention_blocks.rows))
    columns = min(attention_blocks.value_size, MOST_COLUMNS)
    if rows >= 16:
        of_thread = 4 if rows >= 64 else 2 if rows >= 32 else 1
        return ThreadAttentionTile(16, 16, of_thread, 2, columns)
    down = 1 << (rows - 1).bit_length()
    widest = max(
        attention_blocks.value_size,
        min(attention_blocks.keys, WIDEST) if isinstance(attention_blocks.keys, int) else WIDEST,
    )
    across = min(128 // down, max(16, 1 << (widest - 1).bit_length()))
    keys = KEYS * 4 // max(4, element_bytes(attention_blocks.sum_type))
    if isinstance(attention_blocks.keys, int):
        keys = max(1, min(keys, -(-attention_blocks.keys // across)))
    return ThreadAttentionTile(down, across, 1, keys, columns)


@part_rule("gpu", function_group, priority=70)
def attention(group: BlockGroup[LaneModel]) -> StagePlan | Decline:
    """Schedule two products and the softmax between them without storing scores; other blocks use the other plans."""
    refusal = unfit_blocks(group.blocks) or cannot_be_attention(group.blocks)
    if refusal is not None:
        return refusal
    plan = partial(plan_attention, limits=thread_limits(group.context.target))
    return plan_with_attention(group, lambda group: plan_group(group, plan))


def plan_with_attention(
    group: BlockGroup[LaneModel],
    plan: Callable[[BlockGroup[LaneModel]], Plan | Decline],
    around: Sequence[Planner] = (),
    choices: Callable[[Plan], ChoiceValues] | None = None,
) -> StagePlan | Decline:
    """Plan blocks among which there is an attention.

    Plans in `around` are tried on other blocks if sizes are static. `choices` returns those of the plan.
    """
    plans: list[Plan] = []

    def kept(group: BlockGroup[LaneModel]) -> Plan | Decline:
        result = plan(group)
        if not isinstance(result, Decline):
            plans.append(result)
        return result

    stages = plan_stages(group, (kept, *around), (kept,))
    if not plans:
        declined = plan(group)
        return declined if isinstance(declined, Decline) else decline("it is not computed by itself")
    used = choices(plans[0]) if choices is not None and len(plans) == 1 else {}
    return StagePlan(group, stages, plans[0].describe(), used)
