"""Elements that stay in registers: a block computes them, and later blocks in the same iteration read them.

An element is in a register where it is read if the block that computes it comes before in the same loops, or in loops
around them, and has no other iterations: one element of a row for all loops over the row, one of a vector for the
blocks that follow in its loop. Elements that are only read in registers are not stored.
"""

from __future__ import annotations

from collections.abc import Iterator

from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.passes.schedule.primitives.index import LoopValue, LoopValues
from mirlo.passes.schedule.primitives.tree import (
    BOUND,
    Accumulation,
    BlockLeaf,
    BufferAccess,
    Loop,
    LoopIntrinsic,
    Root,
    RuleClaim,
    ScheduleBuffer,
    TileLeaf,
    TileStart,
    Transposition,
    around,
    region_of,
    register_loop,
    without_single,
)

Register = tuple[int, tuple[LoopValue, ...]]
"""The access that writes an element, and the iterations of the loops that have a register for each of theirs."""


def register_of(write: BufferAccess, access: BufferAccess, values: LoopValues) -> Register:
    """Return the register of an element, where a block accesses it."""
    return id(write), values.iteration_of(access.register_loops) if access.register_loops else ()


Uses = list[tuple[BlockLeaf, BufferAccess]]
"""Blocks, and how each of them accesses a buffer."""


def keep_in_registers(root: Root, in_threads: bool) -> None:
    """Find the elements that are in registers where they are read, of threads of a GPU or of a CPU."""
    leaves = root.leaves()
    written: dict[int, Uses] = {}
    read: dict[int, Uses] = {}
    elsewhere: set[int] = set()
    for leaf in leaves:
        for access in leaf.writes:
            written.setdefault(id(access.buffer), []).append((leaf, access))
        for access in leaf.reads:
            if access.inlined is None:
                read.setdefault(id(access.buffer), []).append((leaf, access))
        elsewhere.update(id(access.buffer) for access in _reads_inside(leaf))
    for buffer in root.buffers:
        uses = written.get(id(buffer), []), read.get(id(buffer), [])
        if _is_kept(*uses):
            if in_threads:
                from mirlo.passes.schedule.primitives.thread_registers import keep_in_thread  # for GPUs only

                keep_in_thread(*uses)
            else:
                _keep(*uses)
            _leave_out_stores(buffer, *uses, id(buffer) in elsewhere)


def _reads_inside(leaf: BlockLeaf) -> Iterator[BufferAccess]:
    """Yield the reads of blocks that are computed with a block: inlined ones, and those of its epilogue."""
    for access in leaf.reads:
        if access.inlined is not None:
            yield from access.inlined.reads
            yield from _reads_inside(access.inlined)
    for after in leaf.epilogue:
        yield from after.reads
        yield from after.writes
        yield from _reads_inside(after)


def _is_kept(writes: Uses, reads: Uses) -> bool:
    """Return whether elements of a buffer with these uses may be in registers."""
    makers = [leaf for leaf, _ in writes if leaf.epilogue or not isinstance(leaf.form, (Accumulation, type(None)))]
    return bool(reads) and not makers


def _leave_out_stores(buffer: ScheduleBuffer, writes: Uses, reads: Uses, is_elsewhere: bool) -> None:
    """Remove the stores to a buffer all of whose reads are in registers."""
    is_held = not buffer.is_parameter and not is_elsewhere
    is_held = is_held and all(access.register is not None for _, access in reads)
    for _, write in writes:
        write.is_held = is_held


def _keep(writes: Uses, reads: Uses) -> None:
    """Replace the reads of a buffer by registers where possible."""
    for leaf, write in writes:
        if isinstance(leaf.form, Accumulation) and leaf.begin not in (None, leaf):
            continue  # the block that begins a reduction has its results
        node = _once_an_iteration(leaf)
        if node is None or node.parent is None:
            continue
        siblings = node.parent.body
        after = {id(each) for each in siblings[siblings.index(node) + 1 :]}
        place: list[IndexExpr] | None = None
        for reader, access in reads:
            inside = _child_of(node.parent, reader)
            if access.register is not None or id(inside) not in after:
                continue
            place = without_single(leaf.place(write), leaf) if place is None else place
            if _may_be_held(leaf, node, reader, access, inside):
                access.register = write if place == without_single(reader.place(access), reader) else None


def _may_be_held(
    leaf: BlockLeaf, node: Loop | BlockLeaf, reader: BlockLeaf, access: BufferAccess, inside: Loop | BlockLeaf | None
) -> bool:
    """Return whether a value that a node computes in an iteration may be in a register where a block reads it."""
    if isinstance(reader.form, (RuleClaim, TileLeaf)) or access.is_opaque or access.outside is not None:
        return False
    if any(isinstance(loop.form, (Transposition, LoopIntrinsic)) or loop.kind == BOUND for loop in around(reader)):
        return False
    if node is not leaf or not leaf.guards:
        return True
    # Blocks with guards are emitted together, under one condition.
    assert node.parent is not None and inside is not None
    siblings = node.parent.body
    between = siblings[siblings.index(node) : siblings.index(inside) + 1]
    return all(isinstance(each, BlockLeaf) and each.guards == leaf.guards for each in between)


def _once_an_iteration(leaf: BlockLeaf) -> Loop | BlockLeaf | None:
    """Return the node that computes one element of a block, in each iteration of the loop that it is in.

    None if a node computes several elements, or may leave one out.
    """
    node: Loop | BlockLeaf = leaf
    if isinstance(leaf.form, Accumulation):
        region = register_loop(leaf)
        assert region is not None, "the results are in registers over a loop"
        chain, reduced = around(leaf), leaf.reduce_loops()
        if any(loop.name not in reduced and loop.extent != 1 for loop in chain[chain.index(region) :]):
            return None
        if region.is_unswitched or any(not index.variables() & reduced for index, _ in leaf.guards):
            return None
        node = region_of(region)[-1]
    elif leaf.is_reduction:
        return None
    while isinstance(node.parent, Loop) and node.parent.extent == 1 and len(node.parent.body) == 1:
        if node.parent.is_unswitched or isinstance(node.parent.form, TileStart) or leaf.guards:
            break
        node = node.parent
    return node


def _child_of(parent: Loop | Root, leaf: BlockLeaf) -> Loop | BlockLeaf | None:
    """Return the node of a loop that a block is in."""
    node: Loop | BlockLeaf = leaf
    while node.parent is not parent:
        if not isinstance(node.parent, Loop):
            return None
        node = node.parent
    return node
