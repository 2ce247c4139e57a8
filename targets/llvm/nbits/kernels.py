"""Kernels of products with packed weights: few rows, which read them once, and many rows, two panels at a time.

Activations are in sub-blocks of K: the elements [sub-blocks, rows, rows of K] of float rows, or the results of
`relax.quantize_rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.value import compare, create
from mirlo.passes.schedule.buffers import ScheduleFacts
from mirlo.passes.schedule.loops import either, when
from mirlo.passes.schedule.primitives.tile_instruction import FMA, TileInstruction
from mirlo.passes.schedule.primitives.tile_points import TileSizes, each_size
from mirlo.passes.schedule.primitives.vector_memory import FunctionConstants, Piece
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.nbits import code as C
from mirlo.targets.llvm.nbits.layout import COLUMNS, LINE
from mirlo.targets.llvm.nbits.product import Product

ROWS = 64
"""Rows of a tile: its accumulators, and the activations of a sub-block, fit the L1 cache."""
LEADS = {1: 4096, 2: 8192}
"""Prefetch distance in bytes, by the cache that weights are prefetched to: hardware prefetching does not run far enough
ahead of kernels that compute much."""
PAIR = 2
"""Panels that kernels for many rows read at a time."""
FEW_ROWS = (1, 2, 4, 6, 8)
"""Rows for which there are kernels that read weights once; between two sizes a row is computed again."""


def few_rows(machine: Machine) -> tuple[int, ...]:
    """Return the numbers of rows whose accumulators take half of the registers of a machine at most."""
    registers = max(1, 4 * COLUMNS // machine.vector_bytes)
    return tuple(size for size in FEW_ROWS if size == 1 or size * registers <= machine.vector_registers // 2)


@dataclass(frozen=True)
class SubBlock:
    """A sub-block of K in a panel that is being read."""

    weights: ir.Value
    """Position of its first byte."""
    scale: ir.Value
    zero: ir.Value
    number: ir.Value
    """Its number along K."""


@dataclass(frozen=True)
class ProductBuffers:
    """The memory of a kernel: its parameters."""

    activations: Sequence[ir.Value]
    panels: ir.Value
    out: ir.Value


class ProductKernel(C.ProductCode):
    """The shared code of kernels: the loop over a panel, stores of results."""

    def __init__(self, product: Product, machine: Machine, buffers: ProductBuffers, constants: FunctionConstants):
        super().__init__(constants)
        self.product, self.machine, self.layout = product, machine, product.layout
        self.activations, self.panels, self.out = buffers.activations, buffers.panels, buffers.out
        self.rows = self.index(product.count)
        self.registers = max(1, 4 * COLUMNS // self.machine.vector_bytes)
        """Vector registers of the columns of a panel."""
        self.sizes = self.few_sizes()
        """Rows for which there are kernels that read weights once."""

    def few_sizes(self) -> tuple[int, ...]:
        """Return the numbers of rows for which there are kernels that read weights once."""
        return few_rows(self.machine)

    # The walk over a panel

    def walk(
        self, panel: ir.Value, visit: Callable[..., Sequence[ir.Value]], carried: Sequence[ir.Value], ahead: int
    ) -> list[ir.Value]:
        """Visit the sub-blocks of a panel: `visit(sub_block, *carried)`; prefetch those of `ahead` adjacent panels."""
        layout = self.layout
        per_group = layout.group * layout.subs_per_block
        whole, rest = divmod(layout.sub_blocks, per_group)
        start = C.times(panel, self.index(layout.panel_bytes))

        def group(i: ir.Value, *held: ir.Value, count: int = per_group) -> Sequence[ir.Value]:
            at = C.add(start, C.times(i, self.index(layout.group_bytes)))
            first = C.times(i, self.index(per_group))
            return self._group(at, first, count, visit, list(held), ahead)

        held = list(carried)
        if whole:
            held = C.loop(self.index(0), self.index(whole), group, held)
        return list(group(self.index(whole), *held, count=rest)) if rest else held

    def _group(
        self,
        at: ir.Value,
        first: ir.Value,
        count: int,
        visit: Callable[..., Sequence[ir.Value]],
        held: list[ir.Value],
        ahead: int,
    ) -> list[ir.Value]:
        """Visit this many sub-blocks of a group at a position; `first` is the number of the first of them."""
        layout = self.layout
        per_block, sub_bytes = layout.subs_per_block, layout.vectors * LINE
        scales = layout.group * layout.block_bytes
        zeros = scales + layout.group * layout.scale_bytes
        for begin in range(0, count, per_block):
            block = begin // per_block
            scale, zero = (
                self.offset(at, scales + block * layout.scale_bytes),
                self.offset(at, zeros + block * layout.zero_bytes),
            )

            def sub_block(
                i: ir.Value, *held: ir.Value, begin: int = begin, scale: ir.Value = scale, zero: ir.Value = zero
            ) -> Sequence[ir.Value]:
                number = self.offset(i, begin)
                weights = C.add(at, C.times(number, self.index(sub_bytes)))
                self._prefetch(weights, range(layout.vectors), ahead)
                return visit(SubBlock(weights, scale, zero, C.add(first, number)), *held)

            subs = min(per_block, count - begin)
            held = (
                C.loop(self.index(0), self.index(subs), sub_block, held)
                if subs > 1
                else list(sub_block(self.index(0), *held))
            )
        self._prefetch(at, range(scales // LINE, layout.group_bytes // LINE), ahead)
        return held

    def _prefetch(self, position: ir.Value, lines: range, panels: int) -> None:
        """Prefetch some cache lines after a position, this many bytes ahead, of adjacent panels."""
        last, level = self.layout.bytes - self.layout.group_bytes, self.machine.prefetch_level
        for panel in range(panels):
            ahead = self.offset(position, LEADS[level] + panel * self.layout.panel_bytes)
            inside = C.smaller(ahead, self.index(max(0, last)))
            for line in lines:
                self.touch(self.panels, self.offset(inside, line * LINE), 4 - level)

    def each_vector(
        self, rows: int, visit: Callable[..., Sequence[ir.Value]], carried: Sequence[ir.Value] = ()
    ) -> list[ir.Value]:
        """Visit the vectors of a sub-block for this many rows: `visit(vector, *carried)`, which has its number.

        For several rows they are visited in a loop: one vector is work enough, and code for all takes time to compile.
        """
        vectors = self.layout.vectors
        if rows > 1:
            return C.loop(self.index(0), self.index(vectors), visit, carried)
        held = list(carried)
        for vector in range(vectors):
            held = list(visit(self.index(vector), *held))
        return held

    def position(self, sub: SubBlock, vector: ir.Value, panel: int = 0) -> ir.Value:
        """Return the position of a vector of weights."""
        return self.offset(C.add(sub.weights, C.times(vector, self.index(LINE))), panel * self.layout.panel_bytes)

    def words(self, sub: SubBlock, vector: ir.Value, panel: int = 0) -> ir.Value:
        """Load a vector of weights as <16 x i32>."""
        return C.bitcast(C.load_vector(self.panels, self.position(sub, vector, panel), LINE), C.integer(32))

    def scale(self, sub: SubBlock, panel: int = 0) -> ir.Value:
        return self.load_floats(self.panels, self.offset(sub.scale, panel * self.layout.panel_bytes), self.layout.scale)

    def zero(self, sub: SubBlock, panel: int = 0) -> ir.Value:
        return self.load_floats(self.panels, self.offset(sub.zero, panel * self.layout.panel_bytes), self.layout.zero)

    # Results

    def store_columns(self, value: ir.Value, row: ir.Value, panel: ir.Value, shift: int = 0) -> None:
        """Store the columns of a panel, or those that exist."""
        columns = self.layout.columns
        first = self.offset(C.times(panel, self.index(COLUMNS)), shift * COLUMNS)
        at = C.add(C.times(row, self.index(columns)), first)
        whole, rest = columns // COLUMNS * COLUMNS, columns % COLUMNS
        sizes = TileSizes(COLUMNS)
        if columns % (PAIR * COLUMNS):
            is_inside = compare("lt", first, self.index(columns)) if whole % (PAIR * COLUMNS) == 0 or not rest else None
            sizes = TileSizes(COLUMNS, rest, compare("lt", first, self.index(whole)) if rest else None, is_inside)

        def store(count: Dim) -> None:
            self.store(value, self.out, at, Piece(0, COLUMNS, count))

        each_size(sizes, store)

    # Kernels

    def schedule(self) -> ScheduleFacts:
        """Return what describes the kernel: its instruction, and the rows of those that read weights once."""
        return {"rule": "packed_product", "instruction": self.instruction.name, "few_rows": self.sizes}

    @property
    def instruction(self) -> TileInstruction:
        """Return the row of the table that adds products."""
        return FMA

    def emit(self) -> None:
        """Emit the kernel for the number of rows, or a choice between kernels."""
        count, sizes = self.product.count, self.sizes
        if not isinstance(count, int):
            when(compare("gt", self.rows, self.index(0)), lambda: self._choose(sizes))
        elif 0 < count <= sizes[-1]:
            self.few_rows(count)
        else:
            self.many_rows()

    def _choose(self, sizes: Sequence[int]) -> None:
        """Emit the selection at run time: the first size that has enough rows, or the kernel for many."""
        if not sizes:
            self.many_rows()
            return
        size, *larger = sizes
        holds = compare("le", self.rows, self.index(size))
        either(holds, lambda: self.few_rows(size), lambda: self._choose(larger))

    def few_rows(self, size: int) -> None:
        """Emit the kernel for up to this many rows: each panel is read from memory once, accumulators are in registers.

        Rows beyond the last one are the last one again.
        """
        rows = [self.index(i) for i in range(size)]
        if not isinstance(self.product.count, int):
            last = create("arith.subi", self.rows.type, self.rows, self.index(1))
            certain = max((each for each in self.sizes if each < size), default=0)
            rows[certain + 1 :] = [C.smaller(row, last) for row in rows[certain + 1 :]]

        instructions = size * self.registers * self.instructions_per_line()
        ahead = 0 if instructions <= self.machine.streaming_instructions else 1

        def panel(p: ir.Value) -> None:
            start = self.constant(0.0, C.f32())
            totals = self.walk(p, lambda sub, *held: self.add_few_rows(sub, rows, held), [start] * size, ahead)
            for row, total in zip(rows, totals, strict=True):
                self.store_columns(total, row, p)

        used = -(-self.layout.columns // COLUMNS)
        C.loop(self.index(0), self.index(used), panel, parallel=True)

    def many_rows(self) -> None:
        """Emit the kernel for more rows: tiles of rows times two panels, accumulators in memory."""
        accumulators = self.constants.scratch("accumulators", ROWS * PAIR * COLUMNS, C.f32())
        scratch = self.scratch()

        def pair(p: ir.Value) -> None:
            def tile(top: ir.Value) -> None:
                left = create("arith.subi", top.type, self.rows, top)
                count = C.smaller(left, self.index(ROWS))
                zero = self.constant(0.0, C.f32())
                self.each_row(count, lambda row: self.put(accumulators, row, [zero] * PAIR))

                def visit(sub: SubBlock) -> Sequence[ir.Value]:
                    self.add_rows(sub, top, count, accumulators, scratch)
                    return ()

                self.walk(p, visit, [], PAIR)

                def finish(row: ir.Value) -> None:
                    for i, value in enumerate(self.get(accumulators, row)):
                        self.store_columns(value, C.add(top, row), p, i)

                self.each_row(count, finish)

            C.loop(self.index(0), self.rows, tile, step=ROWS)

        used = -(-self.layout.columns // (PAIR * COLUMNS)) * PAIR
        C.loop(self.index(0), self.index(used), pair, step=PAIR, parallel=True)

    def scratch(self) -> ir.Value | None:
        """Return scratch memory of a tile."""
        return None

    def each_row(self, count: ir.Value, body: Callable[[ir.Value], None]) -> None:
        def one(row: ir.Value) -> None:
            body(row)

        C.loop(self.index(0), count, one)

    def get(self, accumulators: ir.Value, row: ir.Value) -> list[ir.Value]:
        at = C.times(row, self.index(PAIR * COLUMNS))
        return [C.load_vector(accumulators, self.offset(at, i * COLUMNS), COLUMNS) for i in range(PAIR)]

    def put(self, accumulators: ir.Value, row: ir.Value, values: Sequence[ir.Value]) -> None:
        at = C.times(row, self.index(PAIR * COLUMNS))
        for i, value in enumerate(values):
            C.store_vector(value, accumulators, self.offset(at, i * COLUMNS))

    def row_of(self, sub: SubBlock, row: ir.Value) -> ir.Value:
        """Return the number of a row among those of all sub-blocks."""
        return C.add(C.times(sub.number, self.rows), row)

    def instructions_per_line(self) -> int:
        """Return about how many instructions on 16 lanes a row and 64 bytes of weights take."""
        raise NotImplementedError

    def add_few_rows(self, sub: SubBlock, rows: Sequence[ir.Value], totals: Sequence[ir.Value]) -> Sequence[ir.Value]:
        """Add the products of some rows with a sub-block of a panel to their totals."""
        raise NotImplementedError

    def add_rows(
        self, sub: SubBlock, top: ir.Value, count: ir.Value, accumulators: ir.Value, scratch: ir.Value | None
    ) -> None:
        raise NotImplementedError
