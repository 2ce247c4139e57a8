"""The blocks of one loop nest, as all schedules see them, and their values that must be stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr, loop_index, number
from mirlo.dialects.tir.view import BlockView, PrimView
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.space import BlockInstance


class LaneModel(Protocol):
    """What analyses read of a machine model."""

    def lanes(self, element_bytes: int) -> int:
        """Return how many elements of this size a vector has."""


Model_co = TypeVar("Model_co", bound=LaneModel, covariant=True)


@dataclass(frozen=True)
class BlockGroup(Generic[Model_co]):
    """Consecutive blocks of a prim function."""

    blocks: tuple[BlockView, ...]
    kept: frozenset[ir.Value]
    """Values with users outside of the group: the function's caller, or a later group."""
    machine: Model_co
    """The machine model of the target."""

    @property
    def made(self) -> dict[ir.Value, int]:
        """Return the values that blocks compute, with the position of the block."""
        return {output.value: i for i, block in enumerate(self.blocks) for output in block.outputs}


def unfit(view: PrimView) -> Decline | None:
    """Decline functions that no schedule handles."""
    if view.others:
        return decline("has operations other than blocks", first=view.others[0].name)
    if not view.blocks:
        return decline("has no block")
    for block in view.blocks:
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
    made = group.made
    for block in group.blocks:
        for operand in block.inputs:
            if operand.value not in made:
                continue
            if operand.is_opaque:
                return decline("a body picks elements of a value computed here", block=block.name)
            if operand.outside is not None:
                return decline("a block reads beyond the edges of a value computed here", block=block.name)
    return None


def placed(block: BlockView, loops: Sequence[int | None], extents: Sequence[Dim]) -> BlockInstance:
    """Place a block so that its axis i is the loop loops[i]; None stands for an axis of extent 1."""
    where: list[IndexExpr] = [number(0) if loop is None else loop_index(loop) for loop in loops]
    return BlockInstance(block, where, extents)
