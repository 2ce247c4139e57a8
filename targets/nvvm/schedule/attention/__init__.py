"""Attention on NVIDIA GPUs: on the matrix units if they support it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.value import Value
from mirlo.passes.rule_choices import choice_values
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.attention import AttentionBlocks, Read, cannot_be_attention
from mirlo.passes.schedule.blocks.group import BlockGroup, LaneModel, unfit_blocks
from mirlo.passes.schedule.parts import part_rule
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.attention import plan_attention, plan_group, plan_with_attention
from mirlo.targets.gpu.schedule.attention.lengths import AttentionPlan, QueryCountPlans
from mirlo.targets.gpu.schedule.attention.split_keys import BlockProperties, choose_key_splits
from mirlo.targets.gpu.schedule.attention.tiled import ThreadAttentionTile as SumsTile
from mirlo.targets.gpu.schedule.attention.work import Work
from mirlo.targets.gpu.schedule.costs import MATRIX_UNITS
from mirlo.targets.gpu.schedule.exchange import Exchange
from mirlo.targets.gpu.schedule.rules import function_group
from mirlo.targets.gpu.schedule.shuffles import ShuffleExchange
from mirlo.targets.gpu.schedule.stage import StagePlan
from mirlo.targets.gpu.schedule.vectors import is_aligned
from mirlo.targets.nvvm.options import Options, planned_for
from mirlo.targets.nvvm.schedule.attention.choices import (
    DECLINED_BY_TUNING,
    NO_CHOICES,
    AttentionChoices,
    is_allowed,
    resolved_choices,
    with_choices,
)
from mirlo.targets.nvvm.schedule.attention.decode import DecodeKernel, Teams, teams_of
from mirlo.targets.nvvm.schedule.attention.grouped import GroupAttentionPlan, plan_groups
from mirlo.targets.nvvm.schedule.attention.mma import MmaKernel, WarpAttentionTile
from mirlo.targets.nvvm.schedule.units import ROWS, Format, format_of
from mirlo.targets.nvvm.schedule.warprows import AROUND

RESIDENT_BLOCKS = 4
"""Resident blocks per multiprocessor, with few rows or one warp: each of them mostly waits."""
LARGEST = 256
"""The largest query size whose fragments fit registers."""


@dataclass(frozen=True)
class MmaAttentionPlan(AttentionPlan):
    """Attention by `mma.sync`."""

    tile: WarpAttentionTile
    form: Format

    def kernel(self, work: Work) -> MmaKernel:
        """See `AttentionPlan`."""
        return MmaKernel(work, self.tile, self.parts, self.form)


@dataclass(frozen=True)
class DecodeAttentionPlan(AttentionPlan):
    """Attention of few rows."""

    tile: Teams

    def kernel(self, work: Work) -> DecodeKernel:
        """See `AttentionPlan`."""
        return DecodeKernel(work, self.tile, self.parts)


def plan_group_attention(attention_blocks: AttentionBlocks, options: Options) -> GroupAttentionPlan | Decline:
    """Plan an attention by warpgroups."""
    if not options.chip.has_warpgroups:
        return decline("the chip has no products of warpgroups", chip=options.chip.name)
    if str(attention_blocks.sum_type) != "f32":
        return decline("the sums are not f32", type=str(attention_blocks.sum_type))
    form = _common_form(attention_blocks, options)
    return form if isinstance(form, Decline) else plan_groups(attention_blocks, form, options.chip)


def plan_mma_attention(attention_blocks: AttentionBlocks, options: Options) -> AttentionPlan | Decline:
    """Plan an attention by `mma.sync`."""
    if str(attention_blocks.sum_type) != "f32":
        return decline("the sums are not f32", type=str(attention_blocks.sum_type))
    form = _common_form(attention_blocks, options)
    if isinstance(form, Decline):
        return form
    if attention_blocks.size > LARGEST:
        return decline("heads are too large for registers", size=attention_blocks.size)
    rows = D.estimate_dim(attention_blocks.count(attention_blocks.rows))
    if rows < ROWS // 2:
        return decline("there are too few rows for matrix units", rows=rows)
    tile = choose_tile(attention_blocks)
    together = max(1, RESIDENT_BLOCKS // tile.warps)
    blocks = BlockProperties(tile.height, tile.keys, tile.columns, options.chip.units, MATRIX_UNITS, together)
    parts = choose_key_splits(attention_blocks, blocks)
    return MmaAttentionPlan("attention on tensor cores", attention_blocks, tile, parts, form)


def plan_decode(attention_blocks: AttentionBlocks, options: Options) -> AttentionPlan | Decline:
    """Plan an attention with few rows."""
    if str(attention_blocks.sum_type) != "f32":
        return decline("the sums are not f32", type=str(attention_blocks.sum_type))
    rows = attention_blocks.count(attention_blocks.rows)
    if not isinstance(rows, int):
        return decline("how many rows there are is known at run time only", rows=str(rows))
    if rows >= ROWS // 2:
        return decline("there are too many rows for registers", rows=rows)
    if max(attention_blocks.size, attention_blocks.value_size) > LARGEST:
        return decline(
            "heads are too large for registers", size=max(attention_blocks.size, attention_blocks.value_size)
        )
    teams = teams_of(attention_blocks)
    for read, loop in _reads(attention_blocks):
        if any(op.name != "arith.extf" for op in read.factor.body_ops):
            return decline("the factors are computed from their elements")
        if not _is_vectorizable(read, loop, teams.vector):
            return decline("an operand is not contiguous in 16-byte vectors", shape=read.operand.shape)
        if read.operand.element_type != attention_blocks.key.operand.element_type:
            return decline("the factors have different types", type=str(read.operand.element_type))
    blocks = BlockProperties(
        rows, teams.keys, attention_blocks.value_size, options.chip.units, together=RESIDENT_BLOCKS
    )
    return DecodeAttentionPlan(
        "attention of few rows", attention_blocks, teams, choose_key_splits(attention_blocks, blocks)
    )


def _reads(attention_blocks: AttentionBlocks) -> list[tuple[Read, int]]:
    """Return query, key and value, with the loop along which each is contiguous."""
    return [
        (attention_blocks.query, attention_blocks.size_loop),
        (attention_blocks.key, attention_blocks.size_loop),
        (attention_blocks.value, attention_blocks.value_loop),
    ]


def _common_form(attention_blocks: AttentionBlocks, options: Options) -> Format | Decline:
    """Return the common matrix-unit format of query, key and value."""
    forms: list[Format] = []
    for read, loop in _reads(attention_blocks):
        form = format_of(read.factor, read.operand.element_type, options)
        if isinstance(form, Decline):
            return form
        if form.bytes != 2 or form != (forms or [form])[0]:
            return decline("the factors are not all f16 or all bf16", type=form.name)
        if not _is_vectorizable(read, loop, form.vector):
            return decline("an operand is not contiguous in 16-byte vectors", shape=read.operand.shape)
        forms.append(form)
    return forms[0]


def _is_vectorizable(read: Read, loop: int, count: int) -> bool:
    """Return whether a tensor can be read in vectors along a loop: contiguous, aligned, never across an edge."""
    if read.operand.outside is not None:
        return False
    return is_aligned(read.instance.flat(read.operand), loop, count, read.instance.extents[loop])


def _by_shuffles(down: Value, across: Value, tile: SumsTile, kind: ir.Type) -> Exchange:
    return ShuffleExchange(down, across, tile.down, tile.across, tile.rows, kind)


def choose_tile(attention_blocks: AttentionBlocks) -> WarpAttentionTile:
    """Return warps of 16 rows each, as many as there are rows for, and as many keys as registers hold scores for."""
    rows = D.estimate_dim(attention_blocks.count(attention_blocks.rows))
    columns = min(128, -(-attention_blocks.value_size // 16) * 16)
    warps = 4 if rows > 32 else 2 if rows > 16 else 1
    keys = 64 if attention_blocks.size <= 128 else 32
    most = -(-attention_blocks.keys // 16) * 16 if isinstance(attention_blocks.keys, int) else keys
    return WarpAttentionTile(warps, 1, min(keys, most), columns)


PLANNERS: tuple[Callable[[AttentionBlocks, Options], AttentionPlan | Decline], ...] = (
    plan_decode,
    plan_group_attention,
    plan_mma_attention,
)


def plan_any(
    group: BlockGroup[LaneModel], options: Options, chosen: AttentionChoices = NO_CHOICES
) -> AttentionPlan | QueryCountPlans | Decline:
    """Plan these blocks if they are an attention."""

    def plan(attention_blocks: AttentionBlocks) -> AttentionPlan:
        reasons = []
        for way in PLANNERS:
            planned = (
                way(attention_blocks, options)
                if is_allowed(way is plan_group_attention, chosen)
                else DECLINED_BY_TUNING
            )
            if not isinstance(planned, Decline):
                break
            reasons.append(planned)
        else:
            planned = plan_attention(attention_blocks, busy=options.chip.units, team=_by_shuffles)
        if isinstance(planned.tile, WarpAttentionTile) and options.chip.has_warpgroups:
            planned = replace(planned, facts={"no_warpgroups": str(reasons[PLANNERS.index(plan_group_attention)])})
        return with_choices(planned, chosen)

    return plan_group(group, plan)


@part_rule("nvvm", function_group, priority=80)
def attention(group: BlockGroup[LaneModel], choices: AttentionChoices = NO_CHOICES) -> StagePlan | Decline:
    """Schedule attention on the matrix units or by FMA tiles; other blocks use the other plans."""
    refusal = unfit_blocks(group.blocks) or cannot_be_attention(group.blocks)
    if refusal is not None:
        return refusal
    plan = partial(plan_any, options=planned_for(group.context.options), chosen=choices)
    return plan_with_attention(group, plan, AROUND, lambda planned: choice_values(resolved_choices(planned, choices)))
