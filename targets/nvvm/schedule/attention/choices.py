"""Tuning choices of attention: warpgroups or not, tiles, and the number of key splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from mirlo.dialects.core.dims import static_dim
from mirlo.passes.rules import RuleChoice, decline
from mirlo.passes.schedule.blocks.attention import AttentionBlocks
from mirlo.targets.gpu.schedule.attention.lengths import AttentionPlan
from mirlo.targets.nvvm.schedule.attention import grouped
from mirlo.targets.nvvm.schedule.attention.grouped import GroupAttentionPlan
from mirlo.targets.nvvm.schedule.attention.mapped import GroupTile
from mirlo.targets.nvvm.schedule.attention.mma import WarpAttentionTile

if TYPE_CHECKING:
    from mirlo.targets.gpu.schedule.attention import Plan

WARPS, ROWS, KEYS, PARTS = "warps", "rows", "keys", "parts"
GROUPS, STAGES = "groups", "stages"
"""Choices for warpgroups; without them, `mma.sync` is used."""
DECLINED_BY_TUNING = decline("another strategy was measured to be faster")
MIN_STAGES = 2
MAX_PERSISTENT_REGISTERS = 208
"""Most registers per thread for values kept between tiles; the rest is for values in flight."""
MAX_SPLITS = 64


CHOICES = (
    RuleChoice(GROUPS, range(9), "warpgroups of a block; 0 for mma.sync"),
    RuleChoice(STAGES, range(1, 17), "tiles of keys in flight"),
    RuleChoice(WARPS, (2, 4, 8), "warps of a block, with mma.sync"),
    RuleChoice(ROWS, (1, 2), "tiles of 16 rows of a warp, with mma.sync"),
    RuleChoice(KEYS, range(1, 1025), "keys of a tile"),
    RuleChoice(PARTS, range(1, MAX_SPLITS + 1), "blocks that share the keys"),
)


def chosen_values(plan: Plan, tuned: Mapping[str, int]) -> dict[str, int]:
    """Return the choices with which an attention is planned again; none if its sizes are dynamic."""
    tile, parts = getattr(plan, "tile", None), getattr(plan, "parts", None)
    if not isinstance(parts, int):
        return {}
    if isinstance(plan, GroupAttentionPlan):
        return {GROUPS: plan.tile.groups, KEYS: plan.tile.keys, STAGES: plan.tile.stages, PARTS: parts}
    without = {GROUPS: 0} if tuned.get(GROUPS) == 0 else {}
    if isinstance(tile, WarpAttentionTile):
        return {**without, WARPS: tile.warps, ROWS: tile.rows, KEYS: tile.keys, PARTS: parts}
    return {**without, PARTS: parts}


def tiles(found: AttentionBlocks, own: WarpAttentionTile) -> Iterator[WarpAttentionTile]:
    """Yield `mma.sync` tiles whose fragments fit registers, those like the plan's own first."""
    for warps in (4, 8, 2):
        for rows in (1, 2):
            for keys in (64, 32, 128):
                tile = replace(own, warps=warps, rows=rows, keys=keys)
                fits = rows * (tile.columns / 2 + keys / 2 + found.size / 4) <= MAX_PERSISTENT_REGISTERS
                if fits and (not isinstance(found.keys, int) or keys <= max(found.keys, 32)):
                    yield tile


def group_tiles(plan: GroupAttentionPlan) -> Iterator[GroupTile]:
    """Yield warpgroup tiles that fit registers and shared memory, with the most stages and with two."""
    for tile, _ in grouped.tiles(plan.found, plan.factors, plan.chip):
        yield tile
        if tile.stages > MIN_STAGES:
            yield replace(tile, stages=MIN_STAGES)


def is_allowed(by_groups: bool, values: Mapping[str, int]) -> bool:
    """Return whether the tuned values allow this strategy."""
    return not by_groups or values.get(GROUPS) != 0


def choices(plan: AttentionPlan) -> list[dict[str, int]]:
    """Return the alternatives to a plan with static sizes."""
    values, own_parts, own = [], static_dim(plan.parts), plan.tile
    if isinstance(plan, GroupAttentionPlan):
        others = (tile for tile in group_tiles(plan) if tile != plan.tile)
        values = [{GROUPS: t.groups, KEYS: t.keys, STAGES: t.stages, PARTS: own_parts} for t in others]
        values.append({GROUPS: 0})
    if isinstance(own, WarpAttentionTile):
        warps = (tile for tile in tiles(plan.found, own) if tile != own)
        values = [{WARPS: t.warps, ROWS: t.rows, KEYS: t.keys, PARTS: own_parts} for t in warps]
    near = {1, 2 * own_parts, 4 * own_parts, own_parts // 2}
    return values + [{PARTS: parts} for parts in sorted(near) if 0 < parts <= MAX_SPLITS and parts != own_parts]


def with_choices(plan: AttentionPlan, values: Mapping[str, int]) -> AttentionPlan:
    """Return a plan with tuned values applied; values that do not fit it, from another version, are ignored."""
    if isinstance(plan, GroupAttentionPlan):
        return _with_groups(plan, values)
    parts = values.get(PARTS, plan.parts)
    if parts in range(1, MAX_SPLITS + 1):
        plan = replace(plan, parts=parts)
    own = plan.tile
    if not isinstance(own, WarpAttentionTile):
        return plan
    asked = [values.get(name, getattr(own, name)) for name in (WARPS, ROWS, KEYS)]
    for tile in tiles(plan.found, own):
        if [tile.warps, tile.rows, tile.keys] == asked:
            return replace(plan, tile=tile)
    return plan


def _with_groups(plan: GroupAttentionPlan, values: Mapping[str, int]) -> GroupAttentionPlan:
    asked = GroupTile(*(values.get(name, getattr(plan.tile, name)) for name in (GROUPS, KEYS, STAGES)))
    tile = asked if asked in group_tiles(plan) else plan.tile
    parts = values.get(PARTS, plan.parts)
    parts = static_dim(parts if parts in range(1, MAX_SPLITS + 1) else plan.parts)
    return replace(plan, tile=tile, parts=grouped.nonempty_splits(plan.found, tile, parts))
