"""Queries, keys and values as tensor maps copy them: one matrix per head, in tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.value import Value
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.attention import AttentionBlocks, Read
from mirlo.passes.schedule.blocks.evaluate import TensorBuffers
from mirlo.targets.gpu.schedule.launch import add, multiply
from mirlo.targets.nvvm.schedule.bulk import Barriers, copy_tile
from mirlo.targets.nvvm.schedule.ring_buffer import GROUP, PRODUCT_ROWS
from mirlo.targets.nvvm.schedule.tilemaps import MAX_MAP_DIMS, ROW_BYTES, TiledTensor
from mirlo.targets.nvvm.schedule.units import ACCESS, Format


@dataclass(frozen=True)
class Outside:
    """An outer dim of the rows: one loop, or several with a uniform stride, innermost last."""

    loops: tuple[int, ...]
    extents: tuple[int, ...]
    stride: int
    """Elements between consecutive indices."""

    @property
    def extent(self) -> int:
        return prod(self.extents)

    def index(self, indices: Mapping[int, Any]) -> Any:
        """Return the index in this dim for given loop indices."""
        found = None
        for loop, extent in zip(self.loops, self.extents, strict=True):
            found = indices[loop] if found is None else add(multiply(found, extent), indices[loop])
        return found


def _merged(dims: Sequence[Outside]) -> list[Outside]:
    """Merge adjacent dims with uniform strides: tensor maps have few dims."""
    found: list[Outside] = []
    for dim in dims:
        if found and found[-1].stride == dim.extent * dim.stride:
            before = found.pop()
            dim = Outside(before.loops + dim.loops, before.extents + dim.extents, dim.stride)
        found.append(dim)
    return found


@dataclass(frozen=True)
class MappedRead:
    """A tensor of attention: contiguous rows at a uniform pitch."""

    read: Read
    form: Format
    lines: int
    width: int
    pitch: int
    """Elements from one row to the next."""
    outside: tuple[Outside, ...]
    """The other dims, outermost first."""
    offset: int = 0
    """The element of the tensor where the first row starts."""

    @property
    def row(self) -> int:
        """Return the elements of a tile's row in shared memory."""
        return ROW_BYTES // self.form.bytes

    def bytes(self, lines: int) -> int:
        """Return the shared memory for a tile of this many rows."""
        return self.boxes * lines * ROW_BYTES

    @property
    def boxes(self) -> int:
        """Return the number of boxes that a row is split into; each is a separate part of a tile."""
        return -(-self.width // self.row)

    def tensor_map(self, memory: TensorBuffers, lines: int) -> Value:
        """Create the tensor map, on the host, for tiles of this many rows."""
        sizes = [dim.extent for dim in self.outside] + [self.lines, self.width]
        strides = [dim.stride for dim in self.outside] + [self.pitch, 1]
        box = [1] * len(self.outside) + [lines, self.row]
        buffer = memory.slot(self.read.operand.value).buffer
        return TiledTensor(sizes, strides, box, self.form, self.offset).tensor_map(buffer)

    def copy(
        self, tensor_map: ir.Value, target: ir.Value, lines: int, first: ir.Value, loops: Mapping[int, Value],
        barriers: Barriers, number: ir.Value,
    ) -> None:  # fmt: skip
        """Start the copy of a tile from its first row on; out-of-bounds elements are zero."""
        others = [dim.index(loops) for dim in reversed(self.outside)]
        for box in range(self.boxes):
            # The first element of a box is static, the row is not.
            corner = [box * self.row, first, *others]
            copy_tile(add(target, box * lines * ROW_BYTES), tensor_map, corner, barriers, number)


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

    def describe(self) -> dict[str, object]:
        """Return what `mirlo explain` prints about it."""
        return {"tile": [self.height, self.keys], "slots": self.stages}


@dataclass(frozen=True)
class MappedOperands:
    """The tensors of an attention as they are copied."""

    query: MappedRead
    key: MappedRead
    value: MappedRead
    outer: tuple[int, ...]
    """Row loops that are constant within a tile."""

    def shared_bytes(self, tile: GroupTile) -> int:
        """Return the bytes of all stages."""
        return self.query.bytes(tile.height) + tile.stages * (self.key.bytes(tile.keys) + self.value.bytes(tile.keys))


def static_size(size: Dim) -> int:
    """Return a size of an attention with static sizes."""
    assert isinstance(size, int)
    return size


def mapped_read(
    found: AttentionBlocks, read: Read, form: Format, across: int, down: Sequence[int]
) -> MappedRead | Decline:
    """Return a tensor whose rows run over the loops `down`, contiguous along `across`."""
    if read.operand.outside is not None:
        return decline("a factor is read beyond its edges")
    flat = read.place.flat(read.operand)
    if flat.divisions:
        return decline("the loops of a factor are no dims of its tensor", shape=read.operand.shape)
    if not flat.is_numeric:
        return decline("the offset of an operand is known only at run time", shape=read.operand.shape)
    if flat.coefficient(across) != 1:
        return decline("the elements of a head are not contiguous", shape=read.operand.shape)
    pitch = uniform_pitch(found, read, down)
    if pitch is None:
        return decline("rows of a factor are not the same distance apart", shape=read.operand.shape)
    moving = [loop for loop in range(len(found.extents)) if loop not in (across, *down) and flat.coefficient(loop)]
    outside = tuple(
        _merged([Outside((loop,), (static_size(found.extents[loop]),), flat.coefficient(loop)) for loop in moving])
    )
    distances = [pitch, *(dim.stride for dim in outside)]
    if min(distances) <= 0 or any(distance * form.bytes % ACCESS for distance in (*distances, flat.constant)):
        return decline("lines of a factor do not begin at multiples of 16 bytes", distances=distances)
    if len(outside) + 2 > MAX_MAP_DIMS:
        return decline("a factor has more dims than tensor maps", dims=len(outside) + 2)
    lines = prod(static_size(found.extents[loop]) for loop in down)
    return MappedRead(read, form, lines, static_size(found.extents[across]), pitch, outside, flat.constant)


def uniform_pitch(found: AttentionBlocks, read: Read, down: Sequence[int]) -> int | None:
    """Return the uniform pitch along loops, the last one fastest; None if it is not uniform."""
    flat = read.place.flat(read.operand)
    wide = [loop for loop in down if static_size(found.extents[loop]) > 1]
    if not wide:
        return static_size(found.extents[-1]) * ACCESS  # a single row: any pitch is right
    pitch = stride = flat.coefficient(wide[-1])
    for loop in reversed(wide):
        if flat.coefficient(loop) != stride:
            return None
        stride *= static_size(found.extents[loop])
    return pitch
