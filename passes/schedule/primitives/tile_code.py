"""Code of a register tile: emitted once for all its points, as loops of the reduction around products."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import accumulate, cycle

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr, loop_index, number
from mirlo.dialects.core.value import Value, compare, index
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.blocks.contraction.body import emit_init
from mirlo.passes.schedule.loops import either, for_loop, when
from mirlo.passes.schedule.primitives.contiguity import is_beyond, is_beyond_edge
from mirlo.passes.schedule.primitives.index import LoopValue, LoopValues
from mirlo.passes.schedule.primitives.register_tile import unrolled_loops
from mirlo.passes.schedule.primitives.sum_blocks import SUM_BLOCK, sum_block
from mirlo.passes.schedule.primitives.tile_epilogue import TileEpilogue
from mirlo.passes.schedule.primitives.tile_instruction import SIGN_OF_BYTE
from mirlo.passes.schedule.primitives.tile_operands import Loaded, TileOperands
from mirlo.passes.schedule.primitives.tile_points import TileFunction, each_size, tile_points
from mirlo.passes.schedule.primitives.tree import (
    UNROLLED,
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
)

MOST_SUMS_HELD = 6
"""Most accumulators for which registers have the sums of the blocks of K before, too; those of others are in memory.

LLVM would spill them around each block, the first one too, which has none before.
"""


class TileEmitter(TileOperands, TileEpilogue):
    """Emits a tile of vectors in one function, at each place where the loops around it have values."""

    def __init__(self, tile: TileLeaf, function: TileFunction) -> None:
        super().__init__(tile, function)
        self._prefetches = [*tile.prefetches, *self._of_next_part()]

    def emit(self, values: LoopValues) -> None:
        """Emit the tile, and smaller ones for the rests of rows and columns."""
        tile = self.tile
        rows = self.sizes(tile.rows, None, tile.height, values)
        columns = self.sizes(tile.vectors, tile.lanes, tile.width, values)

        def rows_of(width: Dim) -> None:
            each_size(rows, lambda height: self.emit_tile(values, D.static_dim(height), width))

        each_size(columns, rows_of)

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
        is_known = isinstance(count, int) and end == self.index(count)
        is_even = is_known and count % block == 0

        def of_block(i: ir.Value) -> list[ir.Value]:
            last: ir.Value = Value(i) + self.index(block)
            last = last if is_even else Value(last).minimum(end)
            return loop(i, last, self._new_sums(sums))

        def in_registers(i: ir.Value, *held: ir.Value) -> list[ir.Value]:
            return self._added(held, of_block(i))

        def in_memory(i: ir.Value) -> None:
            own = of_block(i)
            self._store(memory, self._added(self._loaded(memory, kinds), own))

        def of_few_blocks(i: ir.Value, *_: ir.Value) -> list[ir.Value]:
            own, before = of_block(i), partial(self._loaded, memory, kinds)
            totals = either(
                compare("eq", i, zero), lambda: self._added(sums, own), lambda: self._added(before(), own), kinds
            )
            when(compare("lt", Value(i) + self.index(block), end), lambda: self._store(memory, totals))
            return totals

        if len(sums) <= MOST_SUMS_HELD:
            return for_loop(zero, end, self.index(block), in_registers, sums, rolled=True)
        elements = sum(each.type.shape[0] for each in sums)
        own = object()  # loops that threads divide have memory of their own, for each thread
        memory = self.constants.scratch(own, elements, sums[0].type.element_type)
        kinds = [each.type for each in sums]
        if not is_known:  # there may be one block, of few products
            return for_loop(zero, end, self.index(block), of_few_blocks, sums, rolled=True)
        if (
            elements < self.tile.height * self.tile.width
        ):  # code of a rest of rows takes longer to compile than it saves
            self._store(memory, sums)
            for_loop(zero, end, self.index(block), in_memory, rolled=True)
            return self._loaded(memory, kinds)
        last = (-(-count // block) - 1) * block
        if last == block:
            self._store(memory, self._added(sums, of_block(zero)))
        else:
            self._store(memory, sums)
            for_loop(zero, self.index(last), self.index(block), in_memory, rolled=True)
        own_last = loop(self.index(last), end, self._new_sums(sums))
        return self._added(self._loaded(memory, kinds), own_last)

    def _places(self, kinds: Sequence[ir.Type]) -> list[ir.Value]:
        """Return where vectors are in memory, one after the other."""
        lanes = [kind.shape[0] for kind in kinds]
        return [self.index(last - count) for last, count in zip(accumulate(lanes), lanes, strict=True)]

    def _store(self, memory: ir.Value, sums: Sequence[ir.Value]) -> None:
        for total, place in zip(sums, self._places([each.type for each in sums]), strict=True):
            ir.Operation.create("vector.store", operands=[total, memory, place])

    def _loaded(self, memory: ir.Value, kinds: Sequence[ir.Type]) -> list[ir.Value]:
        return [
            create("vector.load", kind, memory, place) for kind, place in zip(kinds, self._places(kinds), strict=True)
        ]

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
                for r, p in tile_points(rows, len(pieces)):
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


def _is_within(value: Dim, bound: Dim) -> bool:
    return D.is_certain(lambda: value <= bound)
