"""Memory of a schedule's buffers: what one iteration of the loops around all uses needs, in the requested order."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core.index_expr import IndexExpr, floor_divide, modulo
from mirlo.dialects.tir.buffers import ALIGNMENT, element_bytes
from mirlo.passes.schedule.buffers import BufferFunction
from mirlo.passes.schedule.words.regions import region_of
from mirlo.passes.schedule.words.tree import BlockLeaf, BufferAccess, Loop, Root, ScheduleBuffer, ScheduleError, around

LOCAL = "local"
MAX_STACK_BYTES = 1 << 18
"""Most bytes of a buffer on the stack."""


@dataclass(frozen=True)
class Placed:
    """A buffer in memory, and how its dims map to those in memory."""

    buffer: ScheduleBuffer
    value: ir.Value
    start: list[IndexExpr]
    """Offset to subtract from each index: the buffer holds only what one iteration needs."""

    def at(self, indices: list[IndexExpr]) -> list[IndexExpr]:
        """Return the indices in memory."""
        inside = [index - start for index, start in zip(indices, self.start, strict=True)]
        tiles = self.buffer.tiles
        outer = [floor_divide(inside[d], tiles[d]) if d in tiles else inside[d] for d in self.buffer.order]
        return outer + [modulo(inside[d], tiles[d]) for d in self.buffer.order if d in tiles]


def allocate_buffers(root: Root, function: BufferFunction) -> dict[int, Placed]:
    """Allocate all buffers that blocks access; return them by identity."""
    placed = {}
    for buffer in root.buffers:
        uses = [(leaf, access) for leaf in root.leaves() for access in _accesses(leaf) if access.buffer is buffer]
        if buffer.is_parameter and buffer.value is not None:
            value = function.buffers[buffer.value]
            placed[id(buffer)] = Placed(buffer, value, [IndexExpr()] * len(buffer.shape))
        elif buffer.value is not None and any(leaf.rule for leaf, _ in uses):
            value = function.buffer(buffer.value)
            placed[id(buffer)] = Placed(buffer, value, [IndexExpr()] * len(buffer.shape))
        elif uses:
            placed[id(buffer)] = _allocate(buffer, uses, function)
    return placed


def _accesses(leaf: BlockLeaf) -> list[BufferAccess]:
    """Return all accesses of a block, those of inlined blocks included."""
    found = list(leaf.writes)
    for access in leaf.reads:
        found += _accesses(access.inlined) if access.inlined is not None else [access]
    return found


def _allocate(buffer: ScheduleBuffer, uses: list[tuple[BlockLeaf, BufferAccess]], function: BufferFunction) -> Placed:
    common = _common_loops([leaf for leaf, _ in uses])
    inlined = any(access not in (*leaf.reads, *leaf.writes) for leaf, access in uses)
    places = [(leaf, None if access.is_opaque or inlined else leaf.place(access)) for leaf, access in uses]
    region = region_of(places, common, buffer.shape)
    start, shape = [part[0] for part in region], [part[1] for part in region]
    memory = [-(-shape[d] // buffer.tiles[d]) if d in buffer.tiles else shape[d] for d in buffer.order]
    memory += [buffer.tiles[d] for d in buffer.order if d in buffer.tiles]
    if buffer.scope != LOCAL and buffer.scope:
        return Placed(buffer, _alloca(memory, buffer, function, ir.StringAttr.get(buffer.scope)), start)
    if not buffer.scope:
        return Placed(buffer, function.scratch(memory, buffer.element), start)
    size = math.prod(memory) * element_bytes(buffer.element)
    if size > MAX_STACK_BYTES:
        raise ScheduleError(
            f"'{buffer.name}' is {size} bytes, too many for the stack: compute it further in, or give it no scope"
        )
    return Placed(buffer, _alloca(memory, buffer, function, None), start)


def _alloca(shape: list[int], buffer: ScheduleBuffer, function: BufferFunction, space: ir.Attribute | None) -> ir.Value:
    kind = ir.MemRefType.get(shape, buffer.element, memory_space=space)
    alignment = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), ALIGNMENT)
    with ir.InsertionPoint.at_block_begin(function.entry), function.location:
        return memref.AllocaOp(kind, [], [], alignment=alignment).result


def _common_loops(leaves: list[BlockLeaf]) -> list[Loop]:
    """Return the loops around all of these blocks."""
    chains = [around(leaf) for leaf in leaves]
    common = []
    for level in zip(*chains, strict=False):
        if any(loop is not level[0] for loop in level):
            break
        common.append(level[0])
    return common
