"""Positions of threads: the index of loops over blocks and over threads together, as one value.

Addresses and quotients need the index of the original loop, which was split and bound to blocks and threads. With the
products of both in each address, addresses have no common part.
"""

from __future__ import annotations

from mirlo.dialects.core.index_expr import loop_index
from mirlo.passes.schedule.primitives.loops import unique_loop_name
from mirlo.passes.schedule.primitives.threads import accesses_of, computed_in
from mirlo.passes.schedule.primitives.tree import BOUND, Loop, Root, SharedPosition, around, leaves_of, set_children


def share_positions(root: Root) -> None:
    """Replace the indices of two nested loops that are bound to hardware axes by one, where a block needs only one."""
    for inner in [loop for loop in root.loops() if loop.kind == BOUND]:
        for outer in [loop for loop in around(inner) if loop.kind == BOUND]:
            if _share_position(root, outer, inner):
                break


def _share_position(root: Root, outer: Loop, inner: Loop) -> bool:
    """Replace two loops by their position in all blocks inside, if these use nothing else; return whether they do."""
    if outer.extent == 1 or inner.extent == 1:
        return False
    name = unique_loop_name(root, f"{inner.name}_position")
    position = loop_index(outer.name) * inner.extent + loop_index(inner.name)
    known = {inner.name: loop_index(name) + loop_index(inner.name) - position}
    replaced = []
    for leaf in leaves_of(inner):
        accesses = [access for each in computed_in(leaf) for access in accesses_of(each)]
        if any(access.buffer.scope and not access.is_held for access in accesses):
            return False  # memory of threads and blocks has what one iteration of the loops around it uses
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
