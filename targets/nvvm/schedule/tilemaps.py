"""Operands copied by tensor maps, and the layout of their tiles in shared memory.

A tile is a box of 128 bytes by some rows, or several of these. Its 16-byte vectors are swizzled in groups of 8 rows,
so that neither copies nor products have bank conflicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import static_dim
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.core.value import Value, index
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.contraction.forms import BlockAxis
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.roles import Indices, ProductOperand, Roles
from mirlo.targets.nvvm.schedule.bulk import Barriers, copy_tile
from mirlo.targets.nvvm.schedule.units import ACCESS, DEPTH_BYTES, Format

ROW_BYTES = 128
"""Bytes of a tile row in shared memory."""
GROUP_BYTES = 8 * ROW_BYTES
"""Bytes of the rows that are swizzled together."""
MAX_BOX_ROWS = 256
"""Most rows of a box."""
MAX_MAP_DIMS = 5
SHARED_BYTES = 1 << 18
"""Bytes of shared memory that a descriptor can address."""
_PERMUTED_128 = 1 << 62
"""Swizzle mode in a descriptor."""


@dataclass(frozen=True)
class OuterDim:
    """A dim of a tensor outside of its matrices: one loop, or several with a uniform stride, innermost last."""

    loops: tuple[int, ...]
    extents: tuple[int, ...]
    stride: int
    """Elements between consecutive indices."""

    @property
    def extent(self) -> int:
        return prod(self.extents)

    def index(self, indices: Indices) -> Value:
        """Return the index in this dim for given loop indices."""
        result = indices[self.loops[0]]
        for loop, extent in zip(self.loops[1:], self.extents[1:], strict=True):
            result = result * extent + indices[loop]
        return result


@dataclass(frozen=True)
class MappedMatrix:
    """A tensor that the copy engine reads in boxes: a matrix of lines by steps for each index of its outer dims."""

    value: ir.Value
    """The tensor."""
    form: Format
    along_k: bool
    """Whether memory is contiguous along the steps, or along lines."""
    lines: int
    steps: int
    pitch: int
    """Elements from one line to the next, or from one step to the next."""
    outside: tuple[OuterDim, ...]
    """The other dims, outermost first."""
    offset: int = 0
    """The element of the tensor where the first line starts."""

    @property
    def row(self) -> int:
        """Return the elements of a tile row."""
        return ROW_BYTES // self.form.bytes

    @property
    def boxes(self) -> int:
        """Return the tile rows of a whole line."""
        return -(-self.steps // self.row)

    def bytes(self, lines: int) -> int:
        """Return the shared memory for a tile of this many whole lines."""
        return self.boxes * lines * ROW_BYTES

    def box(self, lines: int) -> tuple[int, int]:
        """Return rows and elements of a box, for a tile of this many lines."""
        return (min(lines, MAX_BOX_ROWS), self.row) if self.along_k else (self.row, self.row)

    def tensor_map(self, memory: TensorBuffers, lines: int) -> Value:
        """Create the map, on the host, for tiles of this many lines."""
        flat = memory.slot(self.value).buffer
        matrix = (self.lines, self.steps) if self.along_k else (self.steps, self.lines)
        sizes = [*(dim.extent for dim in self.outside), *matrix]
        strides, element = [*(dim.stride for dim in self.outside), self.pitch, 1], flat.type.element_type
        box = [*(1 for _ in self.outside), *self.box(lines)]
        layout = ir.StridedLayoutAttr.get(self.offset, strides)
        numbers = ir.DenseI64ArrayAttr.get
        whole = create(
            "memref.reinterpret_cast", ir.MemRefType.get(sizes, element, layout), flat,
            operandSegmentSizes=ir.DenseI32ArrayAttr.get([1, 0, 0, 0]), static_offsets=numbers([self.offset]),
            static_sizes=numbers(sizes), static_strides=numbers(strides),
        )  # fmt: skip
        unranked = create("memref.cast", ir.UnrankedMemRefType.get(element, None), whole)
        shape = "x".join(map(str, box))
        kind = ir.Type.parse(
            f"!nvgpu.tensormap.descriptor<tensor = memref<{shape}x{element}, 3>, swizzle = swizzle_128b, "
            "l2promo = l2promo_256b, oob = zero, interleave = none>"
        )
        # The format after the copy: f32 is rounded.
        form = {"format": ir.StringAttr.get(self.form.name)}
        return create("nvgpu.tma.create.descriptor", kind, unranked, *map(index, box), **form)

    def copy(
        self, tensor_map: Value, target: Value, lines: int, place: tuple[Value, Value, Indices],
        barriers: Barriers, number: ir.Value, blocks: int = 1, boxes: int = 1,
    ) -> None:  # fmt: skip
        """Start the copy of a tile to each of the blocks, given its first line and step, and outer indices.

        Each of its `boxes` has one row of every line; elements out of bounds are zero.
        """
        line, step, indices = place
        outside = [dim.index(indices) for dim in reversed(self.outside)]
        rows, _ = self.box(lines)
        for box in range(boxes):
            for first in range(0, lines, rows):
                at, here = step + box * self.row if box else step, line + first
                corner = [at, here] if self.along_k else [here, at]
                to = target + (box * lines + first) * ROW_BYTES
                copy_tile(to, tensor_map, [*corner, *outside], barriers, number, blocks)


def descriptor(form: Format, along_k: bool, address: Value, product: int) -> Value:
    """Return the descriptor of a tile for one of the products of a row."""
    # Along K a product starts 32 bytes further in each row, otherwise as many rows further as it has K elements.
    moved = DEPTH_BYTES if along_k else form.depth * ROW_BYTES
    beside = ACCESS if along_k else ROW_BYTES // form.bytes * ROW_BYTES
    return described(address + product * moved, beside)


def described(address: Value, beside: int) -> Value:
    """Return the descriptor of a tile: its address, and the byte distance of adjacent groups of lines.

    The distance matters only for tiles contiguous along lines, whose boxes hold 128 bytes of them.
    """
    i64 = ir.IntegerType.get_signless(64)
    at = create("arith.index_cast", i64, address)
    # In clusters the bits above name the block, and would change the distance.
    place = create("arith.andi", i64, at, emit_constant(SHARED_BYTES - 1, i64))
    start = create("arith.shrui", i64, place, emit_constant(4, i64))
    rest = _PERMUTED_128 | GROUP_BYTES // ACCESS << 32 | beside // ACCESS << 16
    return create("arith.ori", i64, start, emit_constant(rest, i64))


def mapped(roles: Roles, side: ProductOperand, form: Format) -> MappedMatrix | Decline:
    """Return an operand as the copy engine reads it, or decline."""
    position, what = side.position, str(form.name)
    if side.access.outside is not None:
        return decline("a factor is read beyond its edges")
    if position.constant:
        return decline("an operand does not begin at the start of its tensor")
    along_k, along_lines = _stride(roles.sums, position), _stride(side.axes, position)
    if along_k is None or along_lines is None:
        return decline("a factor is not a matrix in memory: its lines or sums have several distances")
    if along_k != 1 and along_lines != 1:
        return decline("an operand is contiguous neither along rows nor along K")
    if along_k != 1 and form.bytes != 2:
        return decline("an operand is not contiguous along K, which warpgroups support only in 16 bits", type=what)
    pitch = along_lines if along_k == 1 else along_k
    batch = [OuterDim((axis.id,), (axis.extent,), position.terms.get(axis.id, 0)) for axis in roles.batch]
    outside = tuple(dim for dim in batch if dim.stride)
    return checked(
        MappedMatrix(
            side.access.value, form, along_k == 1, static_dim(side.extent), static_dim(roles.depth), pitch, outside
        )
    )


def checked(matrix: MappedMatrix) -> MappedMatrix | Decline:
    """Return a matrix if tensor maps can describe it."""
    distances = [matrix.pitch, *(dim.stride for dim in matrix.outside)]
    if min(distances) <= 0 or any(n * matrix.form.bytes % ACCESS for n in (*distances, matrix.offset)):
        return decline(
            "a factor's lines do not begin at multiples of 16 bytes", type=matrix.form.name, distances=distances
        )
    if len(distances) + 1 > MAX_MAP_DIMS:
        return decline("a factor has more dims than tensor maps", dims=len(distances) + 1)
    return matrix


def _stride(axes: Sequence[BlockAxis], position: IndexExpr) -> int | None:
    """Return the stride along the space of these axes; None if it is not uniform."""
    if not axes:
        return None
    result: int = position.terms.get(axes[-1].id, 0)
    stride = result
    for axis in reversed(axes):
        if position.terms.get(axis.id, 0) != stride:
            return None
        stride *= axis.extent
    return result
