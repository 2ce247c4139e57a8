"""What all plans of this folder share: the blocks of one loop nest, and which of their values must reach memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mirlo.dialects.tir.view import BlockView, PrimView
from mirlo.passes.rules import Decline, decline
from mirlo.targets.llvm.machine import Machine, find_machine
from mirlo.targets.llvm.schedule.linear import Linear, axis_index, number
from mirlo.targets.llvm.schedule.space import Place
from mirlo.targets.llvm.tuning import tuned_machine


@dataclass(frozen=True)
class Group:
    """Consecutive blocks of a prim function."""

    blocks: tuple[BlockView, ...]
    kept: frozenset[Any]
    """Values that somebody else reads: the caller of the function, or a later group."""
    machine: Machine

    @property
    def made(self) -> dict[Any, int]:
        """Values by the position of the block that computes them."""
        return {output.value: i for i, block in enumerate(self.blocks) for output in block.outputs}


def whole_function(kernel: Any, context: Any) -> Group | Decline:
    """All blocks of a prim function as one group."""
    view: PrimView = kernel.view
    refusal = unfit(view)
    if refusal is not None:
        return refusal
    machine = tuned_machine(view.op, find_machine(context.options.get("machine")))
    return Group(tuple(view.blocks), frozenset(view.returned), machine)


def unfit(view: PrimView) -> Decline | None:
    """Why nothing in this folder handles the function, if so."""
    if view.others:
        return decline("has operations beside blocks", first=view.others[0].name)
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


def opaque_of_group(group: Group) -> Decline | None:
    """Declines where a body picks elements of a value that the same group computes, or pads it."""
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


def placed(block: BlockView, loops: Sequence[int | None], extents: Sequence[Any]) -> Place:
    """A block whose axis i is the loop loops[i]; None stands for an axis of one element."""
    where: list[Linear] = [number(0) if loop is None else axis_index(loop) for loop in loops]
    return Place(block, where, extents)
