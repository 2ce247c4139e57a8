"""Tuning choices of attention: warpgroups or not, tiles, and the number of key splits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from mirlo.dialects.core.dims import static_dim
from mirlo.passes.rule_choices import Choice
from mirlo.passes.rules import decline
from mirlo.passes.schedule.blocks.attention import AttentionBlocks
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.attention.lengths import AttentionPlan
from mirlo.targets.nvvm.schedule.attention import grouped
from mirlo.targets.nvvm.schedule.attention.grouped import GroupAttentionPlan
from mirlo.targets.nvvm.schedule.attention.mapped import GroupTile
from mirlo.targets.nvvm.schedule.attention.mma import WarpAttentionTile

if TYPE_CHECKING:
    from mirlo.targets.gpu.schedule.attention import Plan

DECLINED_BY_TUNING = decline("another strategy was measured to be faster")
MIN_STAGES = 2
MAX_PERSISTENT_REGISTERS = 208
"""Most registers per thread for values kept between tiles; the rest is for values in flight."""
MAX_SPLITS = 64


@dataclass(frozen=True)
class AttentionChoices:
    """Choices for an attention; None where the rule decides."""

    groups: Annotated[int | None, Choice(range(9), "warpgroups of a block; 0 for mma.sync")] = None
    stages: Annotated[int | None, Choice(range(1, 17), "tiles of keys in flight")] = None
    warps: Annotated[int | None, Choice((2, 4, 8), "warps of a block, with mma.sync")] = None
    rows: Annotated[int | None, Choice((1, 2), "tiles of 16 rows of a warp, with mma.sync")] = None
    keys: Annotated[int | None, Choice(range(1, 1025), "keys of a tile")] = None
    parts: Annotated[int | None, Choice(range(1, MAX_SPLITS + 1), "blocks that share the keys")] = None


NO_CHOICES = AttentionChoices()


def resolved_choices(plan: Plan, chosen: AttentionChoices) -> AttentionChoices:
    """Return the choices with which an attention is planned again; none if its sizes are dynamic."""
    tile, parts = getattr(plan, "tile", None), getattr(plan, "parts", None)
    if not isinstance(parts, int):
        return NO_CHOICES
    if isinstance(plan, GroupAttentionPlan):
        return _of_groups(plan.tile, parts)
    groups = 0 if chosen.groups == 0 else None
    if isinstance(tile, WarpAttentionTile):
        return replace(_of_warps(tile, parts), groups=groups)
    return AttentionChoices(groups=groups, parts=parts)


def _of_groups(tile: GroupTile, parts: int) -> AttentionChoices:
    return AttentionChoices(groups=tile.groups, stages=tile.stages, keys=tile.keys, parts=parts)


def _of_warps(tile: WarpAttentionTile, parts: int) -> AttentionChoices:
    return AttentionChoices(warps=tile.warps, rows=tile.rows, keys=tile.keys, parts=parts)


def tiles(attention: AttentionBlocks, own: WarpAttentionTile) -> Iterator[WarpAttentionTile]:
    """Yield `mma.sync` tiles whose fragments fit registers, those like the plan's own first."""
    for warps in (4, 8, 2):
        for rows in (1, 2):
            for keys in (64, 32, 128):
                tile = replace(own, warps=warps, rows=rows, keys=keys)
                fits = rows * (tile.columns / 2 + keys / 2 + attention.size / 4) <= MAX_PERSISTENT_REGISTERS
                if fits and (not isinstance(attention.keys, int) or keys <= max(attention.keys, 32)):
                    yield tile


def group_tiles(plan: GroupAttentionPlan) -> Iterator[GroupTile]:
    """Yield warpgroup tiles that fit registers and shared memory, with the most stages and with two."""
    for tile, _ in grouped.tiles(plan.found, plan.factors, plan.chip):
        yield tile
        if tile.stages > MIN_STAGES:
            yield replace(tile, stages=MIN_STAGES)


def is_allowed(by_groups: bool, chosen: AttentionChoices) -> bool:
    """Return whether the choices allow this strategy."""
    return not by_groups or chosen.groups != 0


def choices(plan: AttentionPlan) -> list[AttentionChoices]:
    """Return the alternatives to a plan with static sizes."""
    values: list[AttentionChoices] = []
    own_parts, own = static_dim(plan.parts), plan.tile
    if isinstance(plan, GroupAttentionPlan):
        others = (tile for tile in group_tiles(plan) if tile != plan.tile)
        values = [_of_groups(tile, own_parts) for tile in others]
        values.append(AttentionChoices(groups=0))
    if isinstance(own, WarpAttentionTile):
        warps = (tile for tile in tiles(plan.found, own) if tile != own)
        values = [_of_warps(tile, own_parts) for tile in warps]
    near = {1, 2 * own_parts, 4 * own_parts, own_parts // 2}
    numbers = [parts for parts in sorted(near) if 0 < parts <= MAX_SPLITS and parts != own_parts]
    return values + [AttentionChoices(parts=parts) for parts in numbers]


def with_choices(plan: AttentionPlan, chosen: AttentionChoices) -> AttentionPlan:
    """Return a plan with choices applied; values that do not fit it, from another version, are ignored."""
    if isinstance(plan, GroupAttentionPlan):
        return _with_groups(plan, chosen)
    if chosen.parts is not None:
        plan = replace(plan, parts=chosen.parts)
    own = plan.tile
    if not isinstance(own, WarpAttentionTile):
        return plan
    asked = replace(own, warps=chosen.warps or own.warps, rows=chosen.rows or own.rows, keys=chosen.keys or own.keys)
    return replace(plan, tile=asked) if asked in tiles(plan.found, own) else plan


def _with_groups(plan: GroupAttentionPlan, chosen: AttentionChoices) -> GroupAttentionPlan:
    own = plan.tile
    groups = own.groups if chosen.groups is None else chosen.groups
    asked = GroupTile(groups, chosen.keys or own.keys, chosen.stages or own.stages)
    tile = asked if asked in group_tiles(plan) else own
    parts = static_dim(plan.parts) if chosen.parts is None else chosen.parts
    return replace(plan, tile=tile, parts=grouped.nonempty_splits(plan.found, tile, parts))
