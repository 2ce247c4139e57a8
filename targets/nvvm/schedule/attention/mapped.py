"""Queries, keys and values as tensor maps copy them: one matrix per head, in tiles."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from mirlo.dialects.core.dims import static_dim
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.attention import AttentionBlocks, Read
from mirlo.passes.schedule.buffers import ScheduleFacts
from mirlo.runtime.records import dataclass
from mirlo.targets.nvvm.schedule.ring_buffer import GROUP, PRODUCT_ROWS
from mirlo.targets.nvvm.schedule.tilemaps import MappedMatrix, OuterDim, checked
from mirlo.targets.nvvm.schedule.units import ACCESS, Format


def _merged(dims: Sequence[OuterDim]) -> list[OuterDim]:
    """Merge adjacent dims with uniform strides: tensor maps have few dims."""
    result: list[OuterDim] = []
    for dim in dims:
        if result and result[-1].stride == dim.extent * dim.stride:
            before = result.pop()
            dim = OuterDim(before.loops + dim.loops, before.extents + dim.extents, dim.stride)
        result.append(dim)
    return result


@dataclass(frozen=True)
class GroupTile:
    """The tile of a thread block: rows by consumer warpgroups, keys, pipeline stages."""

    groups: int
    keys: int
    stages: int

    @property
    def height(self) -> int:
        return self.groups * PRODUCT_ROWS

    @property
    def threads(self) -> int:
        return (self.groups + 1) * GROUP

    def describe(self) -> ScheduleFacts:
        """Return what `mirlo explain` prints about it."""
        return {"tile": [self.height, self.keys], "slots": self.stages}


@dataclass(frozen=True)
class MappedOperands:
    """The tensors of an attention as they are copied."""

    query: MappedMatrix
    key: MappedMatrix
    value: MappedMatrix
    outer: tuple[int, ...]
    """Row loops that are constant within a tile."""

    def shared_bytes(self, tile: GroupTile) -> int:
        """Return the bytes of all stages."""
        return self.query.bytes(tile.height) + tile.stages * (self.key.bytes(tile.keys) + self.value.bytes(tile.keys))


def mapped_read(
    attention: AttentionBlocks, read: Read, form: Format, across: int, down: Sequence[int]
) -> MappedMatrix | Decline:
    """Return a tensor whose rows run over the loops `down`, contiguous along `across`."""
    if read.operand.outside is not None:
        return decline("a factor is read beyond its edges")
    flat = read.instance.flat(read.operand)
    if flat.divisions:
        return decline("the loops of a factor are not dims of its tensor", shape=read.operand.shape)
    if not flat.is_numeric:
        return decline("the offset of an operand is known only at run time", shape=read.operand.shape)
    if flat.coefficient(across) != 1:
        return decline("the elements of a head are not contiguous", shape=read.operand.shape)
    pitch = uniform_pitch(attention, read, down)
    if pitch is None:
        return decline("rows of a factor are not the same distance apart", shape=read.operand.shape)
    moving = [loop for loop in range(len(attention.extents)) if loop not in (across, *down) and flat.moves_along(loop)]
    outside = tuple(
        _merged([OuterDim((loop,), (static_dim(attention.extents[loop]),), flat.coefficient(loop)) for loop in moving])
    )
    lines = prod(static_dim(attention.extents[loop]) for loop in down)
    size = static_dim(attention.extents[across])
    return checked(MappedMatrix(read.operand.value, form, True, lines, size, pitch, outside, flat.constant))


def uniform_pitch(attention: AttentionBlocks, read: Read, down: Sequence[int]) -> int | None:
    """Return the uniform pitch along loops, the last one fastest; None if it is not uniform."""
    flat = read.instance.flat(read.operand)
    wide = [loop for loop in down if static_dim(attention.extents[loop]) > 1]
    if not wide:
        return static_dim(attention.extents[-1]) * ACCESS  # a single row: any pitch is right
    pitch: int = flat.coefficient(wide[-1])
    stride = pitch
    for loop in reversed(wide):
        if flat.coefficient(loop) != stride:
            return None
        stride *= static_dim(attention.extents[loop])
    return pitch
