"""The blocks of one loop nest, as all schedules see them, and their values that must be stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import BlockView, PrimView
from mirlo.passes.rules import Decline, decline
from mirlo.runtime.records import dataclass


class PlanContext(Protocol):
    """The environment of a compilation, as planners see it: a `ScheduleContext`."""

    @property
    def target(self) -> str:
        """Return the target of the blocks."""

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of the pass `schedule`, and of the compilation."""


class LaneModel(Protocol):
    """The interface of a machine model that analyses use."""

    def lanes(self, element_bytes: int) -> int:
        """Return how many elements of this size a vector has."""


Model = TypeVar("Model", bound=LaneModel)
Model_co = TypeVar("Model_co", bound=LaneModel, covariant=True)
Stage = TypeVar("Stage")
LONGEST_STAGE = 16
"""Most blocks that are tried as one stage."""


@dataclass(frozen=True)
class BlockGroup(Generic[Model_co]):
    """Consecutive blocks of a prim function."""

    blocks: tuple[BlockView, ...]
    kept: frozenset[ir.Value]
    """Values with users outside of the group: the function's caller, or a later group."""
    machine: Model_co
    """The machine model of the target."""
    siblings: tuple[BlockView, ...] = ()
    """All blocks of the function, if they have been read."""
    view: PrimView | None = None
    """The function, if it has been read."""
    threads: int = 1
    """Threads that divide its loops."""
    rule_context: PlanContext | None = None
    """The environment of the rule that plans the group, if one does."""

    @property
    def context(self) -> PlanContext:
        """Return the environment of the rule that plans the group."""
        assert self.rule_context is not None, "a rule plans the group"
        return self.rule_context

    @property
    def function(self) -> PrimView:
        """Return the prim function of the blocks."""
        assert self.view is not None, "the group is of a whole function, or a part of such a one"
        return self.view

    @property
    def made(self) -> dict[ir.Value, int]:
        """Return the values that blocks compute, with the position of the block."""
        return {output.value: i for i, block in enumerate(self.blocks) for output in block.outputs}

    def part(self, start: int, end: int) -> BlockGroup[Model_co]:
        """Return some of the blocks as a group."""
        inside = self.blocks[start:end]
        read_elsewhere = {o.value for b in (*self.blocks[:start], *self.blocks[end:]) for o in b.inputs}
        produced = {output.value for block in inside for output in block.outputs}
        kept = frozenset(produced & (read_elsewhere | self.kept))
        return replace(self, blocks=inside, kept=kept)


def whole_group(
    view: PrimView, machine: Model, threads: int = 1, context: PlanContext | None = None
) -> BlockGroup[Model]:
    """Return all blocks of a prim function as one group."""
    blocks = tuple(view.blocks)
    return BlockGroup(blocks, frozenset(view.returned), machine, blocks, view, threads, context)


def plan_in_stages(
    group: BlockGroup[Model],
    plan: Callable[[BlockGroup[Model]], Stage | None],
    alone: Callable[[BlockGroup[Model]], Stage],
) -> list[Stage]:
    """Plan the blocks in order, as many at a time as one plan accepts; `alone` plans a block that none accepts."""
    stages: list[Stage] = []
    at = 0
    while at < len(group.blocks):
        for end in range(min(len(group.blocks), at + LONGEST_STAGE), at, -1):
            stage = plan(group.part(at, end))
            if stage is not None:
                stages.append(stage)
                at = end
                break
        else:
            stages.append(alone(group.part(at, at + 1)))
            at += 1
    return stages


def unfit(view: PrimView) -> Decline | None:
    """Decline functions that no schedule handles."""
    if view.others:
        return decline("has operations other than blocks", first=view.others[0].name)
    return unfit_blocks(view.blocks)


def unfit_blocks(blocks: Sequence[BlockView]) -> Decline | None:
    """Decline blocks that no schedule handles."""
    if not blocks:
        return decline("has no block")
    for block in blocks:
        if 0 in block.domain:
            return decline("a block has no elements", block=block.name)
        for op in block.body_ops:
            if len(op.regions):
                return decline("a body has nested regions", block=block.name, operation=op.name)
            if len(op.results) != 1:
                return decline("a body has an operation without a single result", block=block.name, operation=op.name)
    return None


def opaque_of_group(group: BlockGroup[LaneModel]) -> Decline | None:
    """Decline bodies that extract elements of a value that the same group computes, or that pad it."""
    computed = group.made
    for block in group.blocks:
        for operand in block.inputs:
            if operand.value not in computed:
                continue
            if operand.is_opaque:
                return decline("a body picks elements of a value computed here", block=block.name)
            if operand.outside is not None:
                return decline("a block reads beyond the edges of a value computed here", block=block.name)
    return None


def same_domain(blocks: Sequence[BlockView]) -> Decline | None:
    """Decline blocks that reduce, or that are over different domains."""
    first = blocks[0]
    for block in blocks:
        if block.is_reduction:
            return decline("a block reduces", block=block.name)
        if block.domain != first.domain:
            return decline("blocks have different domains", blocks=f"{first.name}, {block.name}")
    return None
