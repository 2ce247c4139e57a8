"""The passes over a tree of loops between the last primitive and its code, in their order."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType

from mirlo.dialects.core.index_expr import loop_index
from mirlo.dialects.tir.buffers import INPLACE
from mirlo.passes.schedule.primitives.blocks import decompose
from mirlo.passes.schedule.primitives.held import keep_in_registers
from mirlo.passes.schedule.primitives.joined_threads import join_threads
from mirlo.passes.schedule.primitives.kernels import limits_of, prepare_kernels
from mirlo.passes.schedule.primitives.loops import unique_loop_name
from mirlo.passes.schedule.primitives.registers import accumulate
from mirlo.passes.schedule.primitives.threads import accesses_of, computed_in, prepare_threads, reduced_threads
from mirlo.passes.schedule.primitives.tree import (
    BOUND,
    Loop,
    Root,
    ScheduleError,
    SharedPosition,
    ShiftedTiles,
    TileStart,
    around,
    leaves_of,
    set_children,
)
from mirlo.runtime.errors import nearest


def share_positions(root: Root) -> None:
    """Replace the indices of two nested loops that are bound to hardware axes by one, where a block needs only one."""
    for inner in [loop for loop in root.loops() if loop.kind == BOUND]:
        for outer in [loop for loop in around(inner) if loop.kind == BOUND]:
            if _share_position(outer, inner):
                break


def _share_position(outer: Loop, inner: Loop) -> bool:
    """Replace two loops by their position in all blocks inside, if these use nothing else; return whether they do."""
    if outer.extent == 1 or inner.extent == 1:
        return False
    name = unique_loop_name(inner, f"{inner.name}_position")
    position = loop_index(outer.name) * inner.extent + loop_index(inner.name)
    known = {inner.name: loop_index(name) + loop_index(inner.name) - position}
    replaced = []
    for leaf in leaves_of(inner):
        accesses = [access for each in computed_in(leaf) for access in accesses_of(each)]
        if any(access.buffer.scope and not access.is_held for access in accesses):
            return False  # memory of threads and blocks has what one iteration of the loops around it uses
        if any(each.is_reduction and {outer.name, inner.name} & each.reduce_loops() for each in computed_in(leaf)):
            return False  # threads that reduce a block are found by the loops of its axes
        at = [index.replace(known) for index in leaf.at]
        guards = [(index.replace(known), bound) for index, bound in leaf.guards]
        if any({outer.name, inner.name} & index.variables() for index in (*at, *(guard for guard, _ in guards))):
            return False
        replaced.append((leaf, at, guards))
    for leaf, at, guards in replaced:
        leaf.at, leaf.guards = at, guards
    loop = Loop(name, outer.extent * inner.extent, form=SharedPosition(position))
    inside = inner.body
    set_children(inner, [loop])
    set_children(loop, inside)
    return True


def drop_inplace(root: Root) -> None:
    """Use separate memory for results and operands where tiles overlap, as elements are computed twice."""
    overlap = any(isinstance(loop.form, (TileStart, ShiftedTiles)) for loop in root.loops())
    if overlap and INPLACE in root.view.op.attributes:
        del root.view.op.attributes[INPLACE]


def start_reductions(root: Root) -> None:
    """Begin each reduction that no primitive arranged, in registers if it has an epilogue."""
    for leaf in root.leaves():
        if not leaf.is_reduction or not leaf.is_whole:
            continue
        chain, reduced = around(leaf), leaf.reduce_loops()
        if reduced_threads(leaf) or leaf.epilogue:
            accumulate(root, leaf, next(loop for loop in chain if loop.name in reduced))
        elif not leaf.rule:
            # What continues a reduction is decomposed with the block that begins it. Each iteration of a loop
            # may have a partial result of one element: then no loop of the reduction is left.
            decompose(root, leaf, next((loop for loop in chain if loop.name in reduced), chain[-1]))


def keep_values(root: Root) -> None:
    """Keep elements in registers between the block that writes them and those that read them."""
    keep_in_registers(root, limits_of(root) is not None)


def _in_threads(rewrite: Callable[[Root], None]) -> Callable[[Root], None]:
    """Return a rewrite for targets whose threads are iterations of loops."""

    @functools.wraps(rewrite)
    def run(root: Root) -> None:
        if limits_of(root) is not None:
            rewrite(root)

    return run


TREE_PASSES: Mapping[str, Callable[[Root], None]] = MappingProxyType({
    "prepare-kernels": prepare_kernels,
    "drop-inplace": drop_inplace,
    "start-reductions": start_reductions,
    "join-threads": _in_threads(join_threads),
    "keep-in-registers": keep_values,
    "prepare-threads": prepare_threads,
    "share-positions": _in_threads(share_positions),
})  # fmt: skip
"""The passes by their names; those of threads leave the trees of CPUs as they are."""


def tree_pass_summary(name: str) -> str:
    """Return the summary of a pass."""
    return (inspect.getdoc(TREE_PASSES[name]) or "").split("\n")[0]


def require_tree_pass(name: str) -> None:
    """Raise `ScheduleError` for a name that no pass has."""
    if name not in TREE_PASSES:
        hint = nearest(name, TREE_PASSES)
        raise ScheduleError(f"there is no pass '{name}' over loops{hint}; there are: {', '.join(TREE_PASSES)}")


def run_passes(root: Root, last: str = "") -> None:
    """Run all passes over a tree, or those up to one."""
    if last:
        require_tree_pass(last)
    for name, run in TREE_PASSES.items():
        run(root)
        if name == last:
            return
