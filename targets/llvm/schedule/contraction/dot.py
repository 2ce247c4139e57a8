"""Tiles of dot products: the lanes run along K.

For operands that are both contiguous along the reduction and have too little reuse to be worth transposing: a vector
times a transposed matrix, a matrix times a vector, a single dot product.
"""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.blocks.contraction.body import emit_init
from mirlo.passes.schedule.blocks.contraction.forms import LoopAxis
from mirlo.passes.schedule.loops import loop_over_tiles
from mirlo.passes.schedule.primitives.index import LoopValue, LoopValues
from mirlo.passes.schedule.primitives.vector_memory import Piece, Position, pieces_of
from mirlo.passes.schedule.vectors import pick_lanes, shuffle
from mirlo.targets.llvm.schedule.contraction.tile import Extent, Tiles, multiply_add
from mirlo.targets.llvm.schedule.cost import REGISTER_PART


def add_vectors(left: ir.Value, right: ir.Value) -> ir.Value:
    name = "arith.addf" if isinstance(left.type.element_type, ir.FloatType) else "arith.addi"
    return create(name, left.type, left, right)


def create_store(value: ir.Value, buffer: ir.Value, position: ir.Value) -> None:
    ir.Operation.create("vector.store", operands=[value, buffer, position])


def sum_lanes(vectors: list[ir.Value], lanes: int, part: int) -> ir.Value:
    """Return a vector whose lane i is the sum of the lanes of vector i, for a power of two of vectors.

    Two vectors become one of sums of lanes, until one is left: three operations for two vectors in each step. Lanes of
    `part` elements exchange elements with each other.
    """
    owners = [[i] * lanes for i in range(len(vectors))]
    distance = lanes // 2
    while distance:
        low, high = _halves(lanes, distance, part)
        pairs = [(i, min(i + 1, len(vectors) - 1)) for i in range(0, len(vectors), 2)]
        owners = [[(owners[a] + owners[b])[i] for i in low] for a, b in pairs]
        vectors = [
            add_vectors(shuffle(vectors[a], vectors[b], low), shuffle(vectors[a], vectors[b], high)) for a, b in pairs
        ]
        distance //= 2
    (sums,), (order,) = vectors, owners
    wanted = [order.index(i) if i in order else 0 for i in range(lanes)]
    return pick_lanes(sums, wanted)


def _halves(lanes: int, distance: int, part: int) -> tuple[list[int], list[int]]:
    """Return the lanes of two vectors that are added to those at a distance, and these."""
    low = [i for i in range(lanes) if not i & distance]
    if distance >= part:
        chosen = [*low, *(lanes + i for i in low)]
    else:
        half = part // 2
        chosen = []
        for first in range(0, lanes // 2, half):
            chosen += [*low[first : first + half], *(lanes + i for i in low[first : first + half])]
    return chosen, [i + distance for i in chosen]


class DotTiles(Tiles):
    """Tiles of rows x columns dot products, each accumulated in a vector."""

    def emit(self, values: LoopValues, extent: Extent) -> None:
        """Emit a tile: accumulators, epilogue, stores."""
        values = values.at({})
        rows, cut = extent.rows, extent.cut
        columns = sum(piece.active for piece in cut if isinstance(piece.active, int))
        kind = self.plan.contraction.product.accumulate_type
        sums = [self.zeros(self.plan.lanes, kind) for _ in range(rows * columns)]
        operands = self.operands(values)
        sums = self._walk(self.plan.reduce, operands.rows, operands.columns, sums, columns)
        # Whole vectors of sums are stored, also behind the last one.
        lanes = self.plan.lanes
        held = self.memory.buffers.scratch([-(-self.plan.tile_rows * self.plan.tile_columns // lanes) * lanes], kind)
        start = emit_init(self.plan.contraction.block, kind)
        for first in range(0, len(sums), lanes):
            self._store_sums(sums[first : first + lanes], start, held, first)
        for r in range(rows):
            for piece in cut:
                position = self.index(r * columns + piece.offset)
                self.epilogue.store_results(values, r, piece, self.load(held, position, piece), {}, {})

    def _walk(
        self, axes: list[LoopAxis], rows: Position, columns: Position, sums: list[ir.Value], count: int
    ) -> list[ir.Value]:
        axis, *inner = axes

        def inside(i: LoopValue) -> tuple[Position, Position]:
            return self.moved(rows, axis.id, i), self.moved(columns, axis.id, i)

        if inner:
            return loop_over_tiles(
                0, axis.extent, 1, lambda i, *held: self._walk(inner, *inside(i), list(held), count), sums
            )
        lanes = self.plan.lanes
        whole = axis.extent // lanes * lanes
        if whole != 0:
            piece = Piece(0, lanes, lanes)
            sums = loop_over_tiles(
                0, whole, lanes, lambda i, *held: self._add(*inside(i), list(held), count, piece), sums
            )
        rest = axis.extent - whole
        open_end = [] if isinstance(rest, int) else [Piece(0, lanes, rest)]
        for piece in open_end or pieces_of(rest, lanes, self.plan.machine.masked):
            sums = self._add(rows.shift(whole), columns.shift(whole), sums, count, piece)
        return sums

    def _add(self, rows: Position, columns: Position, sums: list[ir.Value], count: int, piece: Piece) -> list[ir.Value]:
        """Add a vector of products to each accumulator; a partial vector is padded with zeros."""
        row_stride, lane_axis = self.row_stride(rows), self.plan.lane_axis
        left_stride, right_stride = rows.step(lane_axis.id), columns.step(lane_axis.id)
        left: dict[Dim, ir.Value] = {}
        right: dict[Dim, ir.Value] = {}
        following = []
        for i, total in enumerate(sums):
            r, c = divmod(i, count)
            x, y = r * row_stride + c * left_stride, c * right_stride
            if x not in left:
                left[x] = self._widen(self.read(self.plan.rows, self.buffers.rows, rows, x, 1, piece), piece)
            if y not in right:
                loaded = self.read(self.plan.columns, self.buffers.columns, columns, y, 1, piece)
                right[y] = self._widen(loaded, piece)
            following.append(multiply_add(left[x], right[y], total))
        return following

    def _widen(self, value: ir.Value, piece: Piece) -> ir.Value:
        """Widen a vector to the lanes of the accumulators."""
        lanes = self.plan.lanes
        if piece.lanes == lanes:
            return value
        kind = ir.VectorType.get([lanes], value.type.element_type)
        zero, one = (ir.IntegerAttr.get(ir.IntegerType.get_signless(64), n) for n in (0, 1))
        offsets, strides = ir.ArrayAttr.get([zero]), ir.ArrayAttr.get([one])
        return create(
            "vector.insert_strided_slice", kind, value, self.zeros(lanes, kind.element_type),
            offsets=offsets, strides=strides,
        )  # fmt: skip

    def _store_sums(self, sums: list[ir.Value], start: ir.Attribute, held: ir.Value, first: int) -> None:
        """Store the sums of the lanes of up to as many vectors as a vector has lanes."""
        count, lanes = len(sums), self.plan.lanes
        if count < 2 or count & (count - 1) or lanes & (lanes - 1):
            for i, total in enumerate(sums):
                self._store_scalar(self._sum_up(total, start), held, first + i)
            return
        kind = sums[0].type.element_type
        totals = sum_lanes(sums, lanes, max(1, REGISTER_PART // element_bytes(kind)))
        init = create("vector.broadcast", totals.type, create("arith.constant", kind, value=start))
        create_store(add_vectors(totals, init), held, self.index(first))

    def _sum_up(self, total: ir.Value, start: ir.Attribute) -> ir.Value:
        kind = total.type.element_type
        combining = ir.Attribute.parse("#vector.kind<add>")
        first = create("arith.constant", kind, value=start)
        flags = {"fastmath": ir.Attribute.parse("#arith.fastmath<reassoc>")} if isinstance(kind, ir.FloatType) else {}
        return create("vector.reduction", kind, total, first, kind=combining, **flags)

    def _store_scalar(self, value: ir.Value, buffer: ir.Value, position: int) -> None:
        ir.Operation.create("memref.store", operands=[value, buffer, self.index(position)])
