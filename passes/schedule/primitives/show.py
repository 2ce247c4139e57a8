"""The text of a schedule's loops."""

from __future__ import annotations

from collections.abc import Iterator

from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.passes.schedule.primitives.tree import (
    SERIAL,
    BlockLeaf,
    BufferAccess,
    Loop,
    PageCopies,
    Root,
    RowBlocks,
    ScheduleBuffer,
    ShiftedTiles,
    TileLeaf,
    TileStart,
    Transposition,
    intrinsic_of,
    leaves_of,
    placed_at,
)


def show(root: Root) -> str:
    """Return the loops as text, with the reads and writes of each block."""
    copies = [_buffer(buffer) for buffer in root.buffers if not buffer.is_parameter]
    lines = [f"buffers: {', '.join(copies)}"] if copies else []
    for node in root.body:
        lines += _node(node, 0)
    return "\n".join(lines)


def _buffer(buffer: ScheduleBuffer) -> str:
    times = f"{buffer.copies} x " if buffer.copies > 1 else ""
    return f"{times}{buffer} {buffer.scope or 'memory'}"


def _node(node: Loop | BlockLeaf, depth: int) -> Iterator[str]:
    indent = "  " * depth
    if isinstance(node, BlockLeaf):
        yield f"{indent}{_leaf(node)}"
        return
    kind = "" if node.kind == SERIAL else f" {node.thread or node.kind}"
    form, intrinsic = node.form, intrinsic_of(node)
    by = f" by {intrinsic.name}" if intrinsic is not None else ""
    peeled = " peeled" if node.is_peeled else ""
    peeled += " transposed" if isinstance(form, Transposition) else ""
    if isinstance(form, TileLeaf):
        by = f" in a {form.name}"
    if isinstance(form, RowBlocks):
        peeled += f" over blocks of {form.size} rows"
        peeled += f", by pages of {' and '.join(each.rows.cache.name for each in form.pages)}" if form.pages else ""
    if isinstance(form, PageCopies):
        by = f" by copies of pages of {form.rows.cache.name}"
    if isinstance(form, ShiftedTiles):
        peeled += f" shifted, of {', '.join(map(str, (form.size, *form.rests)))}"
    begun = [leaf for leaf in leaves_of(node) if leaf.begin in (None, leaf)]
    names = [leaf.name for leaf in begun if leaf.form in node.accumulated]
    held = f" with {', '.join(names)} in registers" if names else ""
    if isinstance(form, TileStart):
        yield f"{indent}for {node.name} at tile {form.tile} of {form.size}, aligned to {form.buffer.name}:"
    else:
        yield f"{indent}for {node.name} in {node.extent}{kind}{peeled}{by}{held}:"
    if intrinsic is None:
        for child in node.body:
            yield from _node(child, depth + 1)


def _leaf(leaf: BlockLeaf) -> str:
    writes = ", ".join(_access(leaf, access) for access in leaf.writes)
    reads = ", ".join(_access(leaf, access) for access in leaf.reads)
    guards = "".join(f" if {index} < {bound}" for index, bound in leaf.guards)
    after = "".join(f"; then {_after(leaf, each)}" for each in leaf.epilogue)
    sign = "+=" if leaf.is_reduction and not leaf.is_start else "="
    past = " past the caches" if leaf.is_streamed else ""
    return f"{leaf.name}: {writes} {sign} {reads or 'start'}{guards}{after}{past}"


def _after(leaf: BlockLeaf, after: BlockLeaf) -> str:
    at = placed_at(after.at, leaf.at)
    writes, reads = (", ".join(_access(after, access, at) for access in each) for each in (after.writes, after.reads))
    return f"{after.name}: {writes} = {reads}"


def _access(leaf: BlockLeaf, access: BufferAccess, at: list[IndexExpr] | None = None) -> str:
    place = ", ".join(map(str, placed_at(access.at, leaf.at if at is None else at)))
    if access.inlined is not None:
        return f"{access.inlined.name}({place})"
    return f"{access.buffer.name}[{place}]"
