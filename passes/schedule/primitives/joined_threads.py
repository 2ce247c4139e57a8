"""Loops over threads that follow one another as one loop, in which threads keep results and elements in registers.

Loops over the elements of a row are bound to the same threads, one after the other. Threads of a GPU do not wait for
one another between such loops if each of them uses only values that it computed itself, or that all of them have
reduced. They wait where one uses elements that others of its block wrote to main memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.core.index_expr import loop_index, number
from mirlo.passes.schedule.primitives.loops import substitute, unique_loop_name
from mirlo.passes.schedule.primitives.threads import (
    accesses_of,
    bound_loops,
    computed_in,
    is_in_block,
    is_own,
    is_thread,
    memory_of,
    reduced_threads,
)
from mirlo.passes.schedule.primitives.tree import (
    SERIAL,
    SHARED,
    Accumulation,
    BlockLeaf,
    BufferAccess,
    JoinedThreads,
    Loop,
    Node,
    Root,
    ScheduleError,
    ThreadBarrier,
    around,
    leaves_of,
    register_loop,
    replace,
    set_children,
    without_single,
)

_IN_SHARED_MEMORY, _IN_MAIN_MEMORY = "shared", "main"
"""How threads exchange elements: in shared memory after a loop, or in main memory where all threads wait in a loop."""


def join_threads(root: Root) -> None:
    """Merge consecutive loops over the same threads into one, around the reductions of these threads."""
    for nest in root.body:
        if not isinstance(nest, Loop) or not bound_loops(nest):
            continue
        for leaf in leaves_of(nest):
            if isinstance(leaf.form, Accumulation) and reduced_threads(leaf):
                _move_threads_outside(leaf)
            _drop_unit_loops(nest, leaf)
        _join(nest)


def _drop_unit_loops(nest: Loop, leaf: BlockLeaf) -> None:
    """Take a block that does not reduce out of loops of one iteration with nothing else in them.

    The elements of a row that a thread computes are then next to the loops over its elements, which the block joins.
    """
    while isinstance(loop := leaf.parent, Loop) and loop is not nest and _is_plain_unit(loop):
        if leaf.is_reduction or loop.body != [leaf]:
            return
        substitute(loop, {loop.name: number(0)}, None)
        replace(loop, [leaf])


def _is_plain_unit(loop: Loop) -> bool:
    """Return whether a loop of one iteration has no kind or binding of its own."""
    marks, flags = (loop.form, loop.part), (loop.is_peeled, loop.is_unswitched, loop.accumulated)
    return loop.kind == SERIAL and loop.extent == 1 and not any(flags) and all(mark is None for mark in marks)


def _move_threads_outside(leaf: BlockLeaf) -> None:
    """Put the loop over which results are in registers into the loops over threads that it is, or has in it."""
    region = register_loop(leaf)
    assert region is not None, "the results are in registers over a loop"
    chain = around(leaf)
    inside = chain[chain.index(region) :]
    threads = [loop for loop in inside if is_thread(loop)]
    if not threads:
        return
    span = inside[: inside.index(threads[-1]) + 1]
    if any(outer.body != [inner] for outer, inner in zip(span, span[1:], strict=False)):
        raise ScheduleError(
            f"accumulate: '{threads[-1].name}' is bound to threads, and is not all that '{region.name}' has in it, "
            f"over which '{leaf.name}' is in registers: bind a loop around all of it"
        )
    rest, held = [loop for loop in span if loop not in threads], region.accumulated
    if region in threads:
        rest.insert(0, Loop(unique_loop_name(region, f"{region.name}_own"), 1))
        region.accumulated = ()
    rest[0].accumulated = held
    body, nest = span[-1].body, [*threads, *rest]
    replace(region, [nest[0]])
    for outer, inner in zip(nest, nest[1:], strict=False):
        set_children(outer, [inner])
    set_children(nest[-1], body)


def _join(parent: Loop) -> None:
    """Join loops over threads in a loop, the outermost ones first."""
    run: list[tuple[Loop | BlockLeaf, bool]] = []
    for node in list(parent.body):
        waits = _waits([each for each, _ in run], node)
        if waits is None:
            _join_run(parent, run)
            run = [(node, False)] if _thread(node) else []
        else:
            run.append((node, waits))
    _join_run(parent, run)
    for loop in parent.body:
        if isinstance(loop, Loop):
            _join(loop)


def _thread(node: Node) -> str | None:
    """Return the axis of a loop over threads."""
    return node.thread if isinstance(node, Loop) and is_thread(node) else None


def _waits(run: Sequence[Loop | BlockLeaf], node: Loop | BlockLeaf) -> bool | None:
    """Return whether threads wait for one another before a node, after the nodes that they already execute.

    None if the threads do not execute it in the same loop.
    """
    if not run or isinstance(node, Loop) and not _thread(node):
        return None
    first = run[0]
    assert isinstance(first, Loop)
    if isinstance(node, Loop) and (node.thread != first.thread or node.extent != first.extent):
        return None
    if any(isinstance(each, Loop) and each.is_unswitched for each in (first, node)):
        return None
    if isinstance(node, BlockLeaf) and (node.rule or node.is_reduction or node.guards and not node.is_clamped):
        return None
    exchanges = [_exchange(each, node) for each in run]
    return None if _IN_SHARED_MEMORY in exchanges else _IN_MAIN_MEMORY in exchanges


def _exchange(node: Node, other: Node) -> str:
    """Return how threads of the second node use elements that others write in the first one."""
    result = ""
    for maker, written, user, used in _uses(node, other):
        if is_own((maker, written), (user, used)) or _is_result(maker, written, user, used):
            continue
        if written.buffer.scope == SHARED or not is_in_block((maker, written), (user, used)):
            return _IN_SHARED_MEMORY
        result = _IN_MAIN_MEMORY
    return result


def _uses(node: Node, other: Node) -> Sequence[tuple[BlockLeaf, BufferAccess, BlockLeaf, BufferAccess]]:
    """Return the accesses of two nodes to the same buffer, of which the first writes."""
    accesses = [
        [(each, access) for leaf in leaves_of(n) for each in computed_in(leaf) for access in accesses_of(each)]
        for n in (node, other)
    ]
    writes = [
        [(each, access) for leaf in leaves_of(n) for each in computed_in(leaf) for access in each.writes]
        for n in (node, other)
    ]
    return [
        (maker, written, user, used)
        for stores, uses in ((writes[0], accesses[1]), (writes[1], accesses[0]))
        for maker, written in stores for user, used in uses if memory_of(used.buffer) is memory_of(written.buffer)
    ]  # fmt: skip


def _is_result(maker: BlockLeaf, written: BufferAccess, user: BlockLeaf, used: BufferAccess) -> bool:
    """Return whether a block uses a result that all threads have: reduced over them, or computed by each of them."""
    if used.is_opaque or used.outside is not None or used.inlined is not None or written.buffer.scope == SHARED:
        return False
    if isinstance(maker.parent, Loop) and _is_limited(maker):
        return False
    place = without_single(maker.place(written), maker)
    threads = {loop.name for loop in around(maker) if is_thread(loop)} - {loop.name for loop in around(user)}
    if any(index.variables() & threads for index in place):
        return False
    return place == without_single(user.place(used), user)


def _is_limited(leaf: BlockLeaf) -> bool:
    """Return whether some iterations of a block are left out, but those of a reduction."""
    reduced = leaf.reduce_loops()
    return not leaf.is_clamped and any(not index.variables() & reduced for index, _ in leaf.guards)


def _join_run(parent: Loop, run: Sequence[tuple[Loop | BlockLeaf, bool]]) -> None:
    """Put consecutive nodes into one loop over threads."""
    if len(run) < 2:
        return
    first, _ = run[0]
    assert isinstance(first, Loop)
    name = unique_loop_name(first, f"{first.name}_threads")
    joined = Loop(name, first.extent, first.kind, first.thread, form=JoinedThreads())
    at = parent.body.index(first)
    inside = [_of_all_threads(joined, node, waits) for node, waits in run]
    set_children(parent, [*parent.body[:at], joined, *parent.body[at + len(run) :]])
    set_children(joined, inside)


def _of_all_threads(joined: Loop, node: Loop | BlockLeaf, waits: bool) -> Loop | BlockLeaf:
    """Return the body of a node for each thread, in a loop of one iteration if it is a loop over threads."""
    if isinstance(node, BlockLeaf):
        if not waits:
            return node
        unit = Loop(unique_loop_name(node, f"{node.name}_own"), 1, form=ThreadBarrier())
        set_children(unit, [node])
        return unit
    substitute(node, {node.name: loop_index(joined.name)}, None)
    node.kind, node.thread, node.extent, node.form = SERIAL, None, 1, ThreadBarrier() if waits else None
    return node
