"""Code of a register tile: emitted once for all its points.

An access is a position at the first point of the tile, and a constant offset for each row, vector and unrolled step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import cycle
from typing import Protocol

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr, loop_index, number
from mirlo.dialects.core.value import Value, compare, index
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.blocks.contraction.body import ProductInput, convert_accumulator, emit_init, widened
from mirlo.passes.schedule.loops import either, for_loop, when
from mirlo.passes.schedule.primitives.contiguity import in_iterations, is_beyond, is_beyond_edge
from mirlo.passes.schedule.primitives.function_constants import FunctionConstants
from mirlo.passes.schedule.primitives.index import LoopValue, LoopValues
from mirlo.passes.schedule.primitives.memory import PlacedBuffers
from mirlo.passes.schedule.primitives.register_tile import sides_of, unrolled_loops
from mirlo.passes.schedule.primitives.sum_blocks import SUM_BLOCK, sum_block
from mirlo.passes.schedule.primitives.tile_instruction import SIGN_OF_BYTE
from mirlo.passes.schedule.primitives.tree import (
    UNROLLED,
    BufferAccess,
    Guard,
    Loop,
    Prefetch,
    TileLeaf,
    around,
)
from mirlo.passes.schedule.primitives.vector_memory import (
    LINE_BYTES,
    READ_FEW,
    OperandPositions,
    Piece,
    Position,
    VectorMemory,
    pieces_of,
)
from mirlo.passes.schedule.vectors import lane_indices, read_body, splat, vector_body
from mirlo.runtime.records import dataclass

Loaded = dict[tuple[str, ir.Value | None, Dim, int], ir.Value]
"""The operands that are loaded for some products: of which side, from where, with which columns."""


class TileFunction(Protocol):
    """The function that tiles are emitted in."""

    @property
    def placed(self) -> PlacedBuffers: ...

    @property
    def constants(self) -> FunctionConstants: ...

    @property
    def sizes(self) -> Mapping[str, int]:
        """Return the iterations of loops over elements of a tile, where it is a smaller one."""
        ...

    @property
    def ends(self) -> Mapping[str, ir.Value]:
        """Return where loops end early."""
        ...

    @property
    def assumed(self) -> Collection[Guard]:
        """Return the guards that all iterations pass which are emitted now."""
        ...

    @property
    def incomplete(self) -> Collection[Guard]:
        """Return the guards that some points of each iteration do not pass which is emitted now."""
        ...


@dataclass(frozen=True)
class TileSizes:
    """The points of a tile along a dim: of whole tiles, of the last one, and tests which of them this is."""

    whole: Dim
    rest: Dim = 0
    is_whole: ir.Value | None = None
    is_inside: ir.Value | None = None


@dataclass(frozen=True)
class PlacedAccess:
    """The place of an access of an epilogue: its buffer, position, and steps along the rows and the columns."""

    buffer: ir.Value
    start: Position
    step: Dim
    stride: Dim


class TileEmitter(VectorMemory):
    """Emits a tile of vectors in one function, at each place where the loops around it have values."""

    def __init__(self, tile: TileLeaf, function: TileFunction) -> None:
        super().__init__(function.constants)
        self.tile, self.function, self.placed = tile, function, function.placed
        (self.row_factor, self.row_access), (self.column_factor, self.column_access) = sides_of(tile)
        leaf = tile.leaf
        # Read once, for all sizes of the tile.
        self._epilogue = [(after, at, read_body(after.body)) for after, at in self.placed.epilogue(leaf)]
        self._inner = {loop.name for loop in tile.inner}
        self._prefetches = [*tile.prefetches, *self._of_next_part()]
        self._flat: dict[int, ir.Value] = {}
        """The memory of the operands as one dim, for the tile that is emitted now."""
        self.held_row: ir.Value | None = None
        """The row of the memory for accumulators in which those of a tile begin whose epilogue others share."""
        self.line = 0
        """The register of rows, of a loop of its own, whose epilogue is emitted."""
        self.column: LoopValue = 0
        """The first of the columns whose epilogue is emitted, where a loop is over them."""
        is_each = all(form.variables().isdisjoint(loop.name for loop in tile.over) for form, _ in self._group_guards)
        self.partial = self.tail if is_each else 0
        """The elements of the group that is emitted, where it has fewer than others."""

    def form(self, access: BufferAccess, at: list[IndexExpr]) -> IndexExpr:
        """Return the position of an access, with as few divisions as the points of the tile leave."""
        form = self.placed.flat_index(access, at)
        return in_iterations(form, self.tile.leaf) if form.divisions else form

    # Positions

    def start(self, form: IndexExpr, values: LoopValues) -> Position:
        """Emit a position at the first point of the tile."""
        return self.place(form, values, self._inner)

    def advance(self, place: Position, loop: Loop | None, by: LoopValue) -> Position:
        """Emit a position at an iteration of a loop."""
        return place if loop is None else self.moved(place, loop.name, by)

    def column_stride(self, place: Position) -> Dim:
        """Return the step of an access from one column to the next."""
        return place.stride(self.tile.lanes)

    # TileSizes

    def emit(self, values: LoopValues) -> None:
        """Emit the tile, and smaller ones for the rests of rows and columns."""
        tile = self.tile
        rows = self.sizes(tile.rows, None, tile.height, values)
        columns = self.sizes(tile.vectors, tile.lanes, tile.width, values)

        def rows_of(width: Dim) -> None:
            each_size(rows, lambda height: self.emit_tile(values, D.static_dim(height), width))

        each_size(columns, rows_of)

    def sizes(self, loop: Loop | None, inner: Loop | None, size: int, values: LoopValues) -> TileSizes:
        """Return the points of a whole tile along a dim, those of the last one, and tests which of them this is."""
        names = {each.name for each in (loop, inner) if each is not None}
        if loop is not None and loop.name in self.function.sizes:
            return TileSizes(self.function.sizes[loop.name])
        for guard, bound in self.tile.leaf.guards:
            if not guard.variables() & names:
                continue
            if (guard, bound) in self.function.assumed:
                continue
            origin = values.with_numbers(guard.replace({name: number(0) for name in names}))
            if not isinstance(bound, int):
                whole = bound // size * size
                if (guard, bound) in self.function.incomplete and len(guard.variables() - names) == 1:
                    return TileSizes(bound - whole)
                return TileSizes(size, bound - whole, compare("lt", values.emit(origin), self.index(whole)))
            if origin.is_constant:
                return TileSizes(min(size, bound - D.static_dim(origin.constant)))
            highest, rest = origin.range(self.placed.extents)[1], bound % size
            if highest + size <= bound:
                continue
            is_inside = compare("lt", values.emit(origin), self.index(bound)) if highest >= bound else None
            if rest == 0 or bound < size:
                return TileSizes(rest or size, 0, None, is_inside)
            return TileSizes(size, rest, compare("lt", values.emit(origin), self.index(bound - rest)), is_inside)
        return TileSizes(size)

    def pieces(self, columns: Dim) -> list[Piece]:
        """Return the vectors that cover this many columns; fewer than a tile has if only the run time knows them."""
        tile = self.tile
        if isinstance(columns, int):
            return pieces_of(columns, tile.lane_count, tile.is_masked)
        return [Piece(at, tile.lane_count, columns - at) for at in range(0, tile.width, tile.lane_count)]

    # One tile

    def emit_tile(self, values: LoopValues, rows: int, columns: Dim) -> None:
        """Emit a tile of this size: accumulators, loops of the reduction, epilogue."""
        tile, leaf = self.tile, self.tile.leaf
        assert leaf.view is not None
        pieces = self.pieces(columns)
        values = values.at({})
        if tile.awaited:
            when(self.is_last(values) if tile.blocks else None, lambda: self._await(values, rows, pieces))
        zero = emit_init(leaf.view, tile.product.accumulate_type)
        sums = self.initial_sums(rows, pieces, zero)
        operands = self.operands(values)
        steps = tile.steps if (rows, columns) == (tile.height, tile.width) else 1
        if not tile.blocks:
            self._finish(values, rows, pieces, self._summed(operands, sums, rows, pieces, steps, values))
            return
        place = self.start(self.form(leaf.writes[0], leaf.at), values)
        buffer, step = self.placed[leaf.writes[0].buffer].flat, place.stride(tile.rows)
        at = [(self.at(place, r * step + piece.offset), piece) for r in range(rows) for piece in pieces]
        kinds = [total.type for total in sums]
        sums = either(self.is_first(values), lambda: sums, lambda: [self.load(buffer, *each) for each in at], kinds)
        sums = self._summed(operands, sums, rows, pieces, steps, values)

        def keep() -> None:
            for total, (position, piece) in zip(sums, at, strict=True):
                self.store(total, buffer, position, piece)

        either(self.is_last(values), lambda: self._finish(values, rows, pieces, sums), keep)

    def initial_sums(self, rows: int, pieces: list[Piece], start: ir.Attribute) -> list[ir.Value]:
        """Return the accumulators before the first product."""
        return [self.constants.splat(piece.lanes, start) for _ in range(rows) for piece in pieces]

    def operands(self, values: LoopValues) -> OperandPositions:
        """Emit the positions at which the tile reads rows and columns, and its prefetches."""
        at = self.tile.leaf.at
        buffers = [self.row_access.buffer, self.column_access.buffer, *(each.buffer for each in self._prefetches)]
        self._flat = {id(buffer): self.placed[buffer].flat for buffer in buffers}
        row, column = (self.start(self.form(access, at), values) for access in (self.row_access, self.column_access))
        return OperandPositions(row, column, tuple(self._ahead(each, values) for each in self._prefetches))

    def inside(self, operands: OperandPositions, loop: Loop, i: LoopValue) -> OperandPositions:
        """Emit the operands at an iteration of a loop of the reduction."""
        ahead = tuple(None if each is None else self.advance(each, loop, i) for each in operands.ahead)
        return OperandPositions(self.advance(operands.rows, loop, i), self.advance(operands.columns, loop, i), ahead)

    def is_first(self, values: LoopValues) -> ir.Value:
        """Emit whether this is the first block of K."""
        return self._is_at(values, [0] * len(self.tile.blocks))

    def is_last(self, values: LoopValues) -> ir.Value:
        """Emit whether this is the last block of K."""
        return self._is_at(values, [D.maximum(1, loop.extent) - 1 for loop in self.tile.blocks])

    def _is_at(self, values: LoopValues, places: Sequence[Dim]) -> ir.Value:
        tests = [
            compare("eq", values.emit(loop_index(loop.name)), self.index(at))
            for loop, at in zip(self.tile.blocks, places, strict=True)
        ]
        result = tests[0]
        for test in tests[1:]:
            result = create("arith.andi", result.type, result, test)
        return result

    def _summed(
        self,
        operands: OperandPositions,
        sums: list[ir.Value],
        rows: int,
        pieces: list[Piece],
        steps: int,
        values: LoopValues,
    ) -> list[ir.Value]:
        """Emit the loops of the reduction, and take off the products of flipped sign bits, which are a row more."""
        if not self.tile.instruction.flips:
            return self._reduce(self.tile.over, operands, sums, rows, pieces, steps, values)
        signs = [self.zeros(piece.lanes, self.tile.product.accumulate_type) for piece in pieces]
        totals = self._reduce(self.tile.over, operands, [*sums, *signs], rows, pieces, steps, values)
        pairs = zip(totals[: len(sums)], cycle(totals[len(sums) :]))
        return [create("arith.subi", total.type, total, sign) for total, sign in pairs]

    def _reduce(
        self,
        loops: Sequence[Loop],
        operands: OperandPositions,
        sums: list[ir.Value],
        rows: int,
        pieces: list[Piece],
        steps: int,
        values: LoopValues,
    ) -> list[ir.Value]:
        """Emit the loops of the reduction, which carry the accumulators."""
        loop, *inner = loops
        if loop.kind == UNROLLED:
            return self._taps(loops, operands, sums, rows, pieces, values)

        is_partial = self.tile.has_partial_sums and loop is self.tile.over[0]
        is_blocked = self._begins_from_zero(inner)

        def body(i: LoopValue, *held: ir.Value) -> list[ir.Value]:
            here = self.inside(operands, loop, i)
            if is_partial:  # decides how many products the last iterations have
                sums = self._reduce(inner, here, self._new_sums(held), rows, pieces, steps, values.at({loop.name: i}))
                return self._added(held, sums)
            if is_blocked:
                return self._added(held, self._reduce(inner, here, self._new_sums(held), rows, pieces, steps, values))
            if inner:
                return self._reduce(inner, here, list(held), rows, pieces, steps, values)
            return self._steps(loop, here, 1, list(held), rows, pieces)

        def unrolled(i: ir.Value, *held: ir.Value) -> list[ir.Value]:
            return self._steps(loop, self.inside(operands, loop, i), steps, list(held), rows, pieces)

        count = loop.extent
        if not inner and self.tail and not self.partial:
            return self._last_group(loop, operands, sums, rows, pieces)
        bounds = self.clipped(loop, values)
        if bounds is not None:
            return for_loop(*bounds, self.index(1), body, sums, rolled=True)
        early = self.function.ends.get(loop.name)
        if count == 1 and early is None:
            return body(0, *sums)
        end, last = (early, None) if early is not None else self.end_of(loop, values)
        block = 0 if inner else self._sum_block(loop)
        if inner or steps == 1 or early is not None or not isinstance(count, int):
            return self._in_blocks(count, end, block, sums, partial(self._each_step, steps=1, each=body))
        has_rest = bool(count % steps or (last or 0) % steps)
        if has_rest and not block and last is None:
            whole = count // steps * steps
            sums = for_loop(self.index(0), self.index(whole), self.index(steps), unrolled, sums, rolled=True)
            return self._steps(loop, self.inside(operands, loop, whole), count - whole, sums, rows, pieces)
        each_step = partial(self._each_step, steps=steps, each=unrolled, rest=body if has_rest else None)
        return self._in_blocks(count, end, block, sums, each_step)

    @property
    def tail(self) -> int:
        """Return the elements of the last group along K; 0 if it has as many as others."""
        bounds = (D.static_dim(bound) for form, bound in self._group_guards)
        return next(bounds, 0) % self.tile.instruction.group

    @cached_property
    def _group_guards(self) -> list[tuple[IndexExpr, Dim]]:
        """Return the guards that limit the elements of a group along K."""
        group = {loop.name for loop in self.tile.depth}
        return [guard for guard in self.tile.leaf.guards if guard[0].variables() & group]

    def _last_group(
        self, loop: Loop, operands: OperandPositions, sums: list[ir.Value], rows: int, pieces: list[Piece]
    ) -> list[ir.Value]:
        """Emit a loop over groups of K, and the last one, which has fewer elements: the others are zero."""
        whole = D.static_dim(loop.extent) - 1

        def body(i: LoopValue, *held: ir.Value) -> list[ir.Value]:
            return self._steps(loop, self.inside(operands, loop, i), 1, list(held), rows, pieces)

        if whole:
            sums = for_loop(self.index(0), self.index(whole), self.index(1), body, sums, rolled=True)
        self.partial = self.tail
        sums = self._steps(loop, self.inside(operands, loop, whole), 1, sums, rows, pieces)
        self.partial = 0
        return sums

    @property
    def _sums_floats(self) -> bool:
        """Return whether sums are rounded, so that blocks of K have smaller errors."""
        return isinstance(self.tile.product.accumulate_type, ir.FloatType)

    def _begins_from_zero(self, inner: Sequence[Loop]) -> bool:
        """Return whether the accumulators of each iteration around some loops begin from zero: these add up many."""
        extents = [loop.extent for loop in inner]
        return self._sums_floats and D.is_certain(lambda: D.product(extents) >= SUM_BLOCK // 2)

    def _sum_block(self, loop: Loop) -> int:
        """Return the products of floats that are added up from zero along the innermost loop; 0 for all of them.

        It is a function of K alone, whatever the tile, and the blocks of K that are loops around it.
        """
        if not self._sums_floats:
            return 0
        loops = [*(self.tile.blocks if len(self.tile.over) == 1 else []), loop]
        rests = (bound for form, bound in self.tile.leaf.guards if form.coefficient(loop.name) == 1)
        depth = next(rests, D.product([each.extent for each in loops]))
        return sum_block(depth) if isinstance(depth, int) else 0

    def _in_blocks(
        self,
        count: Dim,
        end: ir.Value,
        block: int,
        sums: list[ir.Value],
        loop: Callable[[ir.Value, ir.Value, list[ir.Value]], list[ir.Value]],
    ) -> list[ir.Value]:
        """Emit a loop over K, `loop(start, end, accumulators)`, in blocks that begin from zero, if it has such."""
        zero = self.index(0)
        if not block:
            return loop(zero, end, sums)
        if isinstance(count, int) and count <= block:
            return self._added(sums, loop(zero, end, self._new_sums(sums)))
        is_even = isinstance(count, int) and count % block == 0 and end == self.index(count)

        def of_block(i: ir.Value, *held: ir.Value) -> list[ir.Value]:
            last: ir.Value = Value(i) + self.index(block)
            last = last if is_even else Value(last).minimum(end)
            return self._added(held, loop(i, last, self._new_sums(held)))

        return for_loop(zero, end, self.index(block), of_block, sums, rolled=True)

    def _each_step(
        self,
        start: ir.Value,
        end: ir.Value,
        sums: list[ir.Value],
        steps: int,
        each: Callable[..., list[ir.Value]],
        rest: Callable[..., list[ir.Value]] | None = None,
    ) -> list[ir.Value]:
        """Emit a loop of this many k-steps in an iteration, and one of the `rest`."""
        if rest is None:
            return for_loop(start, end, self.index(steps), each, sums, rolled=True)
        left = create("arith.remui", end.type, Value(end) - Value(start), self.index(steps))
        until = create("arith.subi", end.type, end, left)
        sums = for_loop(start, until, self.index(steps), each, sums, rolled=True)
        return for_loop(until, end, self.index(1), rest, sums, rolled=True)

    def _new_sums(self, sums: Sequence[ir.Value]) -> list[ir.Value]:
        return [self.zeros(total.type.shape[0], self.tile.product.accumulate_type) for total in sums]

    @staticmethod
    def _added(sums: Sequence[ir.Value], block: Sequence[ir.Value]) -> list[ir.Value]:
        return [create("arith.addf", total.type, total, each) for total, each in zip(sums, block, strict=True)]

    def end_of(self, loop: Loop, values: LoopValues) -> tuple[ir.Value, int | None]:
        """Return where a loop of the reduction ends, and the iterations of the last block of K if it is smaller."""
        for guard, bound in self.tile.leaf.guards:
            if loop.name not in guard.variables():
                continue
            step, names = guard.coefficient(loop.name), [each.name for each in self.tile.over]
            inside = {name: number(0) for name in names[names.index(loop.name) :]}
            origin = values.with_numbers(guard.replace(inside))
            if _is_within(origin.range(self.placed.extents)[1] + step * (loop.extent - 1) + 1, bound):
                continue
            left = Value(self.index(bound)) - values.emit(origin)
            if step != 1:
                left = Value(create("arith.ceildivsi", left.type, left, self.index(step)))
                return left.minimum(self.index(loop.extent)), D.static_dim(bound) // D.static_dim(step)
            return left.minimum(self.index(loop.extent)), D.static_dim(bound) % D.static_dim(loop.extent)
        return self.index(loop.extent), None

    def clipped(self, loop: Loop, values: LoopValues) -> tuple[ir.Value, ir.Value] | None:
        """Emit the iterations of a loop whose products are inside of the row operand; None for all of them."""
        access, leaf = self.row_access, self.tile.leaf
        if access.outside is None:
            return None
        for dim, (form, size) in enumerate(zip(leaf.place(access), access.buffer.shape, strict=True)):
            step = form.coefficient(loop.name)
            if not step or loop.kind == UNROLLED or not is_beyond_edge(access, dim, leaf):
                continue
            first = values.emit(form.replace({loop.name: number(0)}))
            lower, upper = index(0) - first, index(size) - first
            if step != 1:
                divided = (create("arith.ceildivsi", each.type, each, self.index(step)) for each in (lower, upper))
                lower, upper = (Value(each) for each in divided)
            return Value(lower).maximum(index(0)), Value(upper).minimum(index(loop.extent))
        return None

    def _taps(
        self,
        loops: Sequence[Loop],
        operands: OperandPositions,
        sums: list[ir.Value],
        rows: int,
        pieces: list[Piece],
        values: LoopValues,
    ) -> list[ir.Value]:
        """Emit the iterations of loops that are unrolled, of each row those that are not beyond its edges.

        Where rows have vectors of their own, which windows share, these are used up one after the other.
        """
        self.prefetch(operands, loops[-1], 1)
        taps: list[tuple[OperandPositions, dict[str, IndexExpr]]] = [(operands, {})]
        for loop in loops:
            each = range(D.static_dim(loop.extent))
            taps = [(self.inside(tap, loop, i), {**at, loop.name: number(i)}) for tap, at in taps for i in each]
        step, name = operands.rows.stride(self.tile.rows), "" if self.tile.rows is None else self.tile.rows.name
        pairs = [
            (tap, r) for tap, at in taps for r in range(rows) if not self._is_beyond({**at, name: number(r)}, values)
        ]
        if self._own_rows and all(isinstance(tap.rows.offset, int) for tap, _ in pairs) and isinstance(step, int):
            pairs.sort(key=lambda pair: D.static_dim(pair[0].rows.offset) + pair[1] * step)
        loaded: Loaded = {}
        for tap, r in pairs:
            sums = self._add_products(tap, [r], sums, pieces, loaded)
        return sums

    def _is_beyond(self, at: Mapping[str, IndexExpr], values: LoopValues) -> bool:
        """Return whether the row operand is beyond an edge at an iteration of the loops that are unrolled."""
        extents = self.placed.extents
        return any(is_beyond(values.with_numbers(form.replace(at)), size, extents) for form, size in self._edges)

    @cached_property
    def _edges(self) -> list[tuple[IndexExpr, Dim]]:
        """Return the indices of the row operand that loops which are unrolled move beyond edges, and sizes."""
        access, leaf, unrolled = self.row_access, self.tile.leaf, unrolled_loops(self.tile)
        if access.outside is None:
            return []
        return [
            (form, size)
            for dim, (form, size) in enumerate(zip(leaf.place(access), access.buffer.shape, strict=True))
            if form.variables() & unrolled and is_beyond_edge(access, dim, leaf)
        ]

    def _steps(
        self, loop: Loop, operands: OperandPositions, steps: int, sums: list[ir.Value], rows: int, pieces: list[Piece]
    ) -> list[ir.Value]:
        """Emit consecutive k-steps: outer products of a column of rows and a row of columns."""
        self.prefetch(operands, loop, steps)
        for step in range(steps):
            sums = self._add_products(self.inside(operands, loop, step), range(rows), sums, pieces, {})
        return sums

    def _add_products(
        self, operands: OperandPositions, rows: Iterable[int], sums: list[ir.Value], pieces: list[Piece], loaded: Loaded
    ) -> list[ir.Value]:
        """Add a product to each accumulator of some rows; `loaded` are the operands by their positions."""
        emit = self.tile.instruction.emit
        assert emit is not None
        a, b, following = operands.rows, operands.columns, list(sums)
        row_step, column_step = a.stride(self.tile.rows), b.stride(self.tile.rows)
        for r in rows:
            element = None if self._own_rows else self._row_element(a.shift(r * row_step), loaded)
            for p, piece in enumerate(pieces):
                columns = self._column_vector(b.shift(r * column_step), piece, loaded)
                if element is None:
                    row = self._row_vector(a.shift(r * row_step), piece, loaded)
                else:
                    row = self._spread(element, piece.lanes, loaded)
                at = r * len(pieces) + p
                following[at] = emit(row, columns, following[at])
        if self.tile.instruction.flips:
            for at, piece in enumerate(pieces, len(following) - len(pieces)):
                signs = ir.IntegerAttr.get(self.row_access.buffer.element, SIGN_OF_BYTE)
                bits = self.constants.splat(piece.lanes * self.tile.instruction.group, signs)
                following[at] = emit(bits, self._column_vector(b, piece, loaded), following[at])
        return following

    @cached_property
    def _own_rows(self) -> bool:
        """Return whether each column is multiplied by a row of its own: rows are vectors, too."""
        return bool(self.form(self.row_access, self.tile.leaf.at).coefficient(self.tile.lanes.name) != 0)

    def _row_element(self, place: Position, loaded: Loaded) -> ir.Value:
        """Load the elements of a row that an instruction multiplies, for all columns."""
        key = ("row", place.base, place.offset, 0)
        if key not in loaded:
            loaded[key] = self._row_group(self.at(place))
        return loaded[key]

    def _row_vector(self, place: Position, piece: Piece, loaded: Loaded) -> ir.Value:
        """Load a vector of rows, one for each column."""
        key = ("row", place.base, place.offset, piece.offset)
        if key not in loaded:
            buffer, stride = self._flat[id(self.row_access.buffer)], self.column_stride(place)
            vector = self.load_lanes(buffer, self.at(place, piece.offset * stride), stride, piece)
            loaded[key] = self._convert(self.row_factor, self.row_access, vector, piece.lanes)
        return loaded[key]

    def _column_vector(self, place: Position, piece: Piece, loaded: Loaded) -> ir.Value:
        key = ("column", place.base, place.offset, piece.offset)
        if key not in loaded:
            stride = self.column_stride(place)
            loaded[key] = self._column_groups(self.at(place, piece.offset * stride), piece, stride)
        return loaded[key]

    def _row_group(self, position: ir.Value) -> ir.Value:
        """Load the elements of a row that an instruction multiplies: one, or a group as 32 bits.

        Of a partial group with one element that is all: integers of columns are zeros where it is multiplied again.
        """
        buffer, group = self._flat[id(self.row_access.buffer)], self.tile.instruction.group
        element = buffer.type.element_type
        if group == 1:
            return self._convert(self.row_factor, self.row_access, create("memref.load", element, buffer, position), 1)
        if self.partial == 1 and isinstance(element, ir.IntegerType):
            single = create("memref.load", element, buffer, position)
            return self._prepared(self.row_factor, self.row_access, single, is_row=True)
        value = self._prepared(self.row_factor, self.row_access, self._elements_of_row(position), is_row=True)
        bits = ir.VectorType.get([1], ir.IntegerType.get_signless(32))
        first = ir.DenseI64ArrayAttr.get([0])
        return create("vector.extract", bits.element_type, create("vector.bitcast", bits, value), static_position=first)

    def _elements_of_row(self, position: ir.Value) -> ir.Value:
        """Load the elements of a row in a group; those that a partial group has not are zero."""
        buffer, group = self._flat[id(self.row_access.buffer)], self.tile.instruction.group
        element = buffer.type.element_type
        if not self.partial:
            return create("vector.load", ir.VectorType.get([group], element), buffer, position)
        value = self.zeros(group, element)
        for i in range(self.partial):
            at = create("arith.addi", position.type, position, self.index(i)) if i else position
            place = ir.DenseI64ArrayAttr.get([i])
            loaded = create("memref.load", element, buffer, at)
            value = create("vector.insert", value.type, loaded, value, static_position=place)
        return value

    def _spread(self, element: ir.Value, lanes: int, loaded: Loaded) -> ir.Value:
        """Spread the elements of a row to as many lanes."""
        key = ("lanes", element, lanes, 0)
        if key not in loaded:
            instruction, group = self.tile.instruction, self.tile.instruction.group
            kind = instruction.prepared_type(self.row_access.buffer.element)
            is_group = group > 1 and not (self.partial == 1 and element.type == kind)
            spread = splat(element, lanes if is_group else lanes * group)
            loaded[key] = (
                create("vector.bitcast", ir.VectorType.get([lanes * group], kind), spread) if is_group else spread
            )
        return loaded[key]

    def _column_groups(self, position: ir.Value, piece: Piece, stride: Dim) -> ir.Value:
        buffer, group = self._flat[id(self.column_access.buffer)], self.tile.instruction.group
        if group == 1:
            if stride == 1:
                vector = self.load(buffer, position, piece, self._reads_whole_vectors)
            else:
                vector = splat(self.load_lanes(buffer, position, stride, piece), piece.lanes)
            return self._convert(self.column_factor, self.column_access, vector, piece.lanes)
        kind = ir.VectorType.get([piece.lanes * group], buffer.type.element_type)
        value: ir.Value = create("vector.load", kind, buffer, position)  # stored panels are whole
        if self.partial:
            value = first_of_groups(value, group, self.partial)
        return self._prepared(self.column_factor, self.column_access, value, is_row=False)

    @property
    def _reads_whole_vectors(self) -> bool:
        """Return whether whole vectors may be read at the last columns: panels in memory are as wide as tiles."""
        tile, placed = self.tile, self.placed[self.column_access.buffer]
        form = self.form(self.column_access, tile.leaf.at)
        along = {tile.lanes.name, tile.vectors.name if tile.vectors is not None else ""}
        sizes = [*(c for a, c in form.terms.items() if a not in along), form.constant, D.product(placed.shape)]
        return all(D.is_certain(partial(_is_multiple, size, tile.width)) for size in sizes)

    def _prepared(self, factor: ProductInput, access: BufferAccess, value: ir.Value, is_row: bool) -> ir.Value:
        """Emit the elements of a group as the instruction takes them."""
        return value if access.is_converted else self.tile.instruction.prepared(factor, value, is_row)

    def _convert(self, factor: ProductInput, access: BufferAccess, value: ir.Value, lanes: int) -> ir.Value:
        if access.is_converted:
            return value
        return widened(factor.emit(value, lanes), self.tile.product.accumulate_type)

    # Prefetches

    def _of_next_part(self) -> list[Prefetch]:
        """Return the prefetch of what follows the part of the columns that is in memory, if one is wanted."""
        buffer = self.column_access.buffer
        layout = self.placed.parts.get(buffer.value)
        if layout is None or layout.ahead is None:
            return []
        along = loop_index(self._step_of_next_part.name) * layout.share
        return [Prefetch(buffer, "", layout.share, layout.ahead + along)]

    @property
    def _step_of_next_part(self) -> Loop:
        """Return the loop each of whose iterations prefetches a share of the next part."""
        return self.tile.lanes if self.tile.is_along_sum else self.tile.over[-1]

    def _ahead(self, prefetch: Prefetch, values: LoopValues) -> Position | None:
        """Return the positions that a tile prefetches: its share of the reads of a loop's next iteration."""
        tile = self.tile
        if prefetch.start is not None:
            outside = prefetch.start.variables() - self._inner
            if not all(name in values for name in outside):
                return None
            read = prefetch.distance * self._step_of_next_part.extent
            return self.within(self.start(prefetch.start, values), self._flat[id(prefetch.buffer)], read)
        form = self.form(self.column_access, tile.leaf.at)
        if not prefetch.loop:
            return self.start(form + prefetch.distance, values)
        chain = around(tile.leaf)
        first = next(i for i, loop in enumerate(chain) if loop.name == prefetch.loop)
        between = [loop for loop in chain[first + 1 :] if loop.name not in self._inner]
        read = tile.width * tile.instruction.depth  # by an iteration of the loops of the reduction
        tiles = D.product([loop.extent for loop in between])
        share = D.ceildiv(read, D.maximum(1, tiles))
        if not isinstance(tiles, int):
            # A tile that is alone prefetches one line: hardware is faster, and it does not read the columns again.
            share = share * D.minimum(1, D.maximum(0, tiles - 1))
        inside = self._inner | {loop.name for loop in between}
        step = form.coefficient(prefetch.loop)
        shared = IndexExpr({a: c for a, c in form.terms.items() if a not in inside}, form.constant + step)
        weight = D.product([loop.extent for loop in tile.over]) * share
        for loop in reversed(between):
            shared = shared + IndexExpr({loop.name: weight})
            weight = weight * loop.extent
        weight = share
        for loop in reversed(tile.over):
            shared = shared + IndexExpr({loop.name: weight})
            weight = weight * loop.extent
        return self.within(self.start(shared, values), self._flat[id(prefetch.buffer)], weight)

    def _await(self, values: LoopValues, rows: int, pieces: list[Piece]) -> None:
        """Emit prefetches of the epilogue's operands, into the L2 cache: in L1, rows may evict each other."""
        for after, at, _ in self._epilogue:
            for access in after.reads:
                if access.buffer not in self.tile.awaited:
                    continue
                place = self.start(self.form(access, at), values)
                buffer, step = self.placed[access.buffer].flat, place.stride(self.tile.rows)
                for r, p in _points(rows, len(pieces)):
                    self.touch(buffer, self.at(place, r * step + pieces[p].offset), READ_FEW)

    def prefetch(self, operands: OperandPositions, loop: Loop, steps: int) -> None:
        """Emit the prefetches of this many k-steps."""
        for place, each in zip(operands.ahead, self._prefetches, strict=True):
            if place is None:
                continue
            buffer = self._flat[id(each.buffer)]
            line = LINE_BYTES // element_bytes(buffer.type.element_type)
            if not each.loop and each.start is None:
                read = steps * self.tile.width * self.tile.instruction.depth
                self.fetch(buffer, self.at(place), read)
                continue
            share = each.distance or D.estimate_dim(place.stride(loop))
            for at in range(max(1, -(-steps * share // line))):
                self.touch(buffer, self.at(place, at * line), READ_FEW)

    # Epilogue

    def _finish(self, values: LoopValues, rows: int, pieces: list[Piece], sums: list[ir.Value]) -> None:
        """Compute the epilogue on the accumulators, vector by vector, and store the results."""
        tile, result = self.tile, self.tile.leaf.writes[0]
        if self.held_row is not None:
            line = create("arith.muli", self.held_row.type, self.held_row, self.index(tile.width))
            self._hold(line, tile.width, rows, pieces, sums)
            return
        is_whole = (rows, len(pieces)) == (tile.height, tile.width // tile.lane_count)
        if rows > 1 and tile.epilogue is not None and len(sums) > tile.epilogue[not is_whole]:
            width = sum(piece.lanes for piece in pieces)
            memory = self._hold(None, width, rows, pieces, sums)
            self.finish_rows(values, rows, pieces, memory, width)
            return
        places: dict[int, PlacedAccess] = {}
        seen: dict[tuple[int, Dim, int], ir.Value] = {}
        for r, p in _points(rows, len(pieces)):
            total = convert_accumulator(sums[r * len(pieces) + p], result.buffer.element)
            self._finish_vector(values, r, pieces[p], total, places, seen)

    def shares_rest(self, loop: Loop, sizes: Sequence[int]) -> bool:
        """Return whether the smaller tiles in a loop over tiles have one epilogue: each would be a copy of its code."""
        tile = self.tile
        if tile.epilogue is None or tile.instruction.unit is not None or tile.blocks or loop.body != tile.over[:1]:
            return False
        return len(sizes) > 1 and sum(sizes) * (tile.width // tile.lane_count) > tile.epilogue[1]

    def finish_rest(self, values: LoopValues, count: ir.Value) -> None:
        """Compute the epilogue of this many rows, whose accumulators smaller tiles have stored."""
        tile = self.tile
        values = values.at({})
        memory = self.memory(tile.product.accumulate_type)

        def finish(columns: Dim) -> None:
            self.finish_rows(values, count, self.pieces(columns), memory, tile.width)

        each_size(self.sizes(tile.vectors, tile.lanes, tile.width, values), finish)

    def _hold(
        self, line: ir.Value | None, width: int, rows: int, pieces: list[Piece], sums: list[ir.Value]
    ) -> ir.Value:
        """Store accumulators, from a position in memory on, in rows of this many columns; return the memory."""
        memory = self.memory(sums[0].type.element_type)
        for r, p in _points(rows, len(pieces)):
            offset = self.index(r * width + pieces[p].offset)
            where = offset if line is None else create("arith.addi", line.type, line, offset)
            ir.Operation.create("vector.store", operands=[sums[r * len(pieces) + p], memory, where])
        return memory

    def memory(self, kind: ir.Type) -> ir.Value:
        """Return memory for the accumulators of a tile, the same for all of its sizes."""
        return self.constants.scratch(("accumulators", self.tile), self.tile.height * self.tile.width, kind)

    def finish_rows(
        self, values: LoopValues, rows: int | ir.Value, pieces: list[Piece], memory: ir.Value, width: int
    ) -> None:
        """Compute the epilogue on accumulators in memory, in a loop over rows of this many columns."""

        def row(i: ir.Value) -> None:
            first = self.line * rows * width if isinstance(rows, int) else 0
            line = create("arith.muli", i.type, i, self.index(width))
            line = create("arith.addi", i.type, line, self.index(first)) if first else line
            places: dict[int, PlacedAccess] = {}
            for piece in pieces:
                where = create("arith.addi", i.type, line, self.index(piece.offset)) if piece.offset else line
                total = self.load(memory, where, piece, True)
                total = convert_accumulator(total, self.tile.leaf.writes[0].buffer.element)
                self._finish_vector(values, i, piece, total, places, {})

        for_loop(self.index(0), self.index(rows) if isinstance(rows, int) else rows, self.index(1), row)

    def _finish_vector(
        self,
        values: LoopValues,
        r: LoopValue,
        piece: Piece,
        total: ir.Value,
        places: dict[int, PlacedAccess],
        seen: dict[tuple[int, Dim, int], ir.Value],
    ) -> None:
        """Compute the epilogue on a vector of accumulators, in row r, and store the results."""
        leaf, tile = self.tile.leaf, self.tile
        result = leaf.writes[0]
        row = r if isinstance(r, int) else 0

        def place(access: BufferAccess, at: list[IndexExpr]) -> PlacedAccess:
            known = places.get(id(access))
            if known is None:
                start = self.advance(self.start(self.form(access, at), values), tile.lines, self.line)
                start = self.advance(start, tile.lanes, self.column)
                steps = start.stride(tile.rows), self.column_stride(start)
                start = start if isinstance(r, int) else self.advance(start, tile.rows, r)
                known = places[id(access)] = PlacedAccess(self.placed[access.buffer].flat, start, *steps)
            return known

        held = {id(result.buffer): total}
        if not result.is_held and tile.is_stored:
            self._write(total, place(result, leaf.at), row, piece)
        for after, at, body in self._epilogue:
            env: dict[ir.Value, ir.Value] = {}
            for axis, argument in after.body.indices:
                env[argument] = self._index(at[axis], values, r, piece)
            for argument, access in zip(after.body.inputs, after.reads, strict=True):
                if id(access.buffer) in held:
                    env[argument] = held[id(access.buffer)]
                elif access.is_opaque:
                    env[argument] = self.placed[access.buffer].value
                else:
                    env[argument] = self._read(access, place(access, at), row, piece, seen)
            mask = self.mask(piece) if piece.is_partial else None
            outputs = vector_body(body, env, piece.lanes, mask)
            for value, write in zip(outputs, after.writes, strict=True):
                held[id(write.buffer)] = value
                if not write.is_held:
                    self._write(splat(value, piece.lanes), place(write, at), row, piece)

    def _index(self, form: IndexExpr, values: LoopValues, r: LoopValue, piece: Piece) -> ir.Value:
        """Emit the index of an axis, in each lane if it moves along the columns."""
        start = self.advance(self.start(in_iterations(form, self.tile.leaf), values), self.tile.lines, self.line)
        start = self.advance(self.advance(start, self.tile.rows, r), self.tile.lanes, self.column)
        stride = self.column_stride(start)
        first = self.at(start, piece.offset * stride)
        return first if stride == 0 else lane_indices(first, piece.lanes)

    def _read(
        self,
        access: BufferAccess,
        place: PlacedAccess,
        r: int,
        piece: Piece,
        seen: dict[tuple[int, Dim, int], ir.Value],
    ) -> ir.Value:
        """Load an operand of an epilogue at a vector of columns, if it is not loaded yet."""
        stride = place.stride
        offset = r * place.step + piece.offset * stride
        key = (id(access), offset, piece.lanes if stride else 0)
        if key not in seen:
            seen[key] = self.load_lanes(place.buffer, self.at(place.start, offset), stride, piece)
        return seen[key]

    def _write(self, value: ir.Value, place: PlacedAccess, r: int, piece: Piece) -> None:
        self.store(value, place.buffer, self.at(place.start, r * place.step + piece.offset), piece)


def _points(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    return ((r, c) for r in range(rows) for c in range(columns))


def each_size(sizes: TileSizes, body: Callable[[Dim], None]) -> None:
    """Emit a body for whole tiles, and for the last one if it is smaller."""

    def inside() -> None:
        if sizes.is_whole is None:
            body(sizes.whole)
        else:
            either(sizes.is_whole, lambda: body(sizes.whole), lambda: body(sizes.rest))

    when(sizes.is_inside, inside)


def first_of_groups(value: ir.Value, group: int, count: int) -> ir.Value:
    """Emit a vector of groups with zeros after the first elements of each, whatever is in memory there."""
    (size,), element = value.type.shape, value.type.element_type
    bits = ir.IntegerType.get_signless(8 * element_bytes(element))
    kind = ir.VectorType.get([size], bits)
    masks = [ir.IntegerAttr.get(bits, -1 if i % group < count else 0) for i in range(size)]
    mask = create("arith.constant", kind, value=ir.DenseElementsAttr.get(masks, kind))
    kept = create("arith.andi", kind, create("vector.bitcast", kind, value), mask)
    return create("vector.bitcast", value.type, kept)


def _is_multiple(value: Dim, factor: int) -> bool:
    return bool(value % factor == 0)


def _is_within(value: Dim, bound: Dim) -> bool:
    return D.is_certain(lambda: value <= bound)
