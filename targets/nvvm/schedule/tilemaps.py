"""Factors as the copying engine sees them: tensor maps, and what their tiles look like in shared memory.

A tile is a box of 128 bytes by so many rows, or several of these. Its 16-byte pieces are permuted in groups of 8
rows, so that neither the copy nor the products meet in one bank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.contraction.forms import Axis, Form
from mirlo.passes.schedule.blocks.evaluate import Memory
from mirlo.passes.schedule.loops import index
from mirlo.targets.gpu.schedule.launch import add
from mirlo.targets.gpu.schedule.roles import Indices, Roles, Side
from mirlo.targets.nvvm.schedule.bulk import Barriers, copy_tile
from mirlo.targets.nvvm.schedule.units import ACCESS, DEPTH_BYTES, Format

ROW_BYTES = 128
"""Of a tile in shared memory."""
GROUP_BYTES = 8 * ROW_BYTES
"""Of the rows whose pieces are permuted together."""
MOST_ROWS = 256
"""Of a box."""
MOST_DIMS = 5
_PERMUTED_128 = 1 << 62
"""In a descriptor: the kind of permutation."""


@dataclass(frozen=True)
class TiledTensor:
    """A tensor of which boxes are copied: its dims, numbers between neighbours, and the box, the innermost last."""

    sizes: Sequence[int]
    strides: Sequence[int]
    box: Sequence[int]
    form: Format
    offset: int = 0
    """The number of the buffer that it begins with."""

    def tensor_map(self, flat: Any) -> Any:
        """The map of the tensor in this buffer, on the host."""
        sizes, strides, element = list(self.sizes), list(self.strides), flat.type.element_type
        layout = ir.StridedLayoutAttr.get(self.offset, strides)
        whole = ir.Operation.create(
            "memref.reinterpret_cast", results=[ir.MemRefType.get(sizes, element, layout)], operands=[flat],
            attributes={
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0, 0]),
                "static_offsets": ir.DenseI64ArrayAttr.get([self.offset]),
                "static_sizes": ir.DenseI64ArrayAttr.get(sizes), "static_strides": ir.DenseI64ArrayAttr.get(strides),
            },
        ).results[0]  # fmt: skip
        unranked = create("memref.cast", ir.UnrankedMemRefType.get(element, None), whole)
        shape = "x".join(map(str, self.box))
        kind = ir.Type.parse(
            f"!nvgpu.tensormap.descriptor<tensor = memref<{shape}x{element}, 3>, swizzle = swizzle_128b, "
            "l2promo = l2promo_256b, oob = zero, interleave = none>"
        )
        # What the copies make of the numbers on the way: f32 is rounded.
        form = {"format": ir.StringAttr.get(self.form.name)}
        return create("nvgpu.tma.create.descriptor", kind, unranked, *map(index, self.box), **form)


@dataclass(frozen=True)
class MappedSide:
    """A factor that the copying engine can read: a matrix of lines by steps of the sums, for each of the batch."""

    side: Side
    form: Format
    along_sums: bool
    """Whether steps of the sums lie side by side in memory, or lines."""
    lines: int
    steps: int
    pitch: int
    """Numbers from one line to the next, or from one step to the next."""
    batch: tuple[tuple[Axis, int], ...]
    """Axes of the batch that it has, and numbers between neighbours along them."""

    @property
    def row(self) -> int:
        """Numbers of a tile's row."""
        return ROW_BYTES // self.form.bytes

    def box(self, lines: int) -> tuple[int, int]:
        """Rows and numbers of what is copied at a time, of a tile of so many lines."""
        return (min(lines, MOST_ROWS), self.row) if self.along_sums else (self.row, self.row)

    def tensor_map(self, memory: Memory, lines: int) -> Any:
        """The map, on the host; tiles are so many lines and a row of steps."""
        inner, outer = (self.steps, self.lines) if self.along_sums else (self.lines, self.steps)
        sizes = [axis.extent for axis, _ in self.batch] + [outer, inner]
        strides = [stride for _, stride in self.batch] + [self.pitch, 1]
        box = [1] * len(self.batch) + list(self.box(lines))
        return TiledTensor(sizes, strides, box, self.form).tensor_map(memory.slot(self.side.access.value).buffer)

    def copy(
        self, tensor_map: Any, target: Any, lines: int, place: tuple[Any, Any, Indices], barriers: Barriers,
        number: Any, blocks: int = 1,
    ) -> None:  # fmt: skip
        """Start the copy of a tile to each of the blocks: its first line and step, and where it is in the batch."""
        line, step, batch = place
        outside = [batch[axis.id] for axis, _ in reversed(self.batch)]
        rows, _ = self.box(lines)
        for first in range(0, lines, rows if self.along_sums else self.row):
            here = add(line, first)
            corner = [step, here] if self.along_sums else [here, step]
            copy_tile(add(target, first * ROW_BYTES), tensor_map, [*corner, *outside], barriers, number, blocks)


def descriptor(form: Format, along_sums: bool, address: Any, product: int) -> Any:
    """What the products of a warpgroup are told of a tile: where it begins, for one of the products of a row."""
    # Along the sums a product takes 32 bytes of each row, else so many rows as it has steps.
    moved = DEPTH_BYTES if along_sums else form.depth * ROW_BYTES
    beside = ACCESS if along_sums else ROW_BYTES // form.bytes * ROW_BYTES
    return described(add(address, product * moved), beside)


def described(address: Any, beside: int) -> Any:
    """A tile as products of warpgroups take it: where it begins, and after how many bytes the lines beside it do.

    The latter is looked at only where neighbouring lines lie side by side: boxes hold 128 bytes of these.
    """
    i64 = ir.IntegerType.get_signless(64)
    at = create("arith.index_cast", i64, address)
    start = create("arith.shrui", i64, at, emit_constant(4, i64))
    rest = _PERMUTED_128 | GROUP_BYTES // ACCESS << 32 | beside // ACCESS << 16
    return create("arith.ori", i64, start, emit_constant(rest, i64))


def mapped(roles: Roles, side: Side, form: Format) -> MappedSide | Decline:
    """A factor as the copying engine sees it, or why it does not."""
    position, what = side.position, str(form.name)
    if side.access.outside is not None:
        return decline("a factor is read beyond its edges")
    if position.constant:
        return decline("a factor does not begin where its tensor does")
    along_sums, along_lines = _stride(roles.sums, position), _stride(side.axes, position)
    if along_sums is None or along_lines is None:
        return decline("a factor is no matrix in memory: its lines or sums have several distances")
    if along_sums != 1 and along_lines != 1:
        return decline("neither lines nor sums of a factor lie side by side")
    if along_sums != 1 and form.bytes != 2:
        return decline("lines of a factor lie side by side, which warpgroups only multiply in 16 bits", type=what)
    pitch = along_lines if along_sums == 1 else along_sums
    batch = tuple((axis, position.terms[axis.id]) for axis in roles.batch if position.terms.get(axis.id))
    distances = [pitch, *(stride for _, stride in batch)]
    if any(distance <= 0 or distance * form.bytes % ACCESS for distance in distances):
        return decline("a factor's lines do not begin at multiples of 16 bytes", type=what, distances=distances)
    if len(batch) + 2 > MOST_DIMS:
        return decline("a factor has more dims than tensor maps", dims=len(batch) + 2)
    return MappedSide(side, form, along_sums == 1, side.extent, roles.depth, pitch, batch)


def _stride(axes: Sequence[Axis], position: Form) -> int | None:
    """Numbers between neighbours along the space of these axes; None where it is not the same everywhere."""
    if not axes:
        return None
    stride = found = position.terms.get(axes[-1].id, 0)
    for axis in reversed(axes):
        if position.terms.get(axis.id, 0) != stride:
            return None
        stride *= axis.extent
    return found
