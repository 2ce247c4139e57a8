"""Kernels of products with packed weights: one row, which reads them once, and many rows, two panels at a time.

Activations are in sub-blocks of K: the elements [sub-blocks, rows, rows of K] of float rows, or the results of
`relax.quantize_rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DTYPES
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.core.value import Value
from mirlo.dialects.tir.compute import Buffer, LoopBuilder, LoopFunction
from mirlo.dialects.tir.scalars import compare, create
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.nbits import code as C
from mirlo.targets.llvm.nbits.layout import COLUMNS, LINE, PanelLayout

ROWS = 64
"""Rows of a tile: its accumulators, and the activations of a sub-block, fit the L1 cache."""
TILE_ROWS = 8
"""Rows whose f32 accumulators are in registers at the same time."""
LEAD = 4096
"""Prefetch distance in bytes: hardware prefetching does not run far enough ahead of a panel."""
PAIR = 2
"""Panels that kernels for many rows read at a time."""
BASE = 256.0
"""Base of the digits of activations."""


@dataclass(frozen=True)
class Product:
    """A product of rows and packed weights."""

    layout: PanelLayout
    count: Dim
    """Number of rows."""
    digits: int
    """Digits of quantized rows; 0 for rows of f32."""

    @property
    def activations(self) -> list[TensorType]:
        """Return the types of the activations, flattened: codes, scales, sums; or floats, sums."""
        blocks, rows = self.layout.sub_blocks, self.count
        elements = blocks * rows * self.layout.sub
        if self.digits:
            return [
                TensorType((self.digits * elements,), DTYPES["i8"]),
                TensorType((blocks * rows,), DTYPES["f32"]),
                TensorType((self.digits * blocks * rows,), DTYPES["i32"]),
            ]
        sums = [TensorType((blocks * rows,), DTYPES["f32"])] if self.layout.zero else []
        return [TensorType((elements,), DTYPES["f32"]), *sums]

    @property
    def panels(self) -> TensorType:
        return TensorType((self.layout.bytes,), DTYPES["u8"])

    @property
    def result(self) -> TensorType:
        return TensorType((self.count * self.layout.columns,), DTYPES["f32"])


def product_function(product: Product, machine: Machine, loc: ir.Location) -> ir.OpView:
    """Build the kernel, in buffer form."""
    layout = product.layout
    name = f"matmul_u{layout.bits}_{f'i8x{product.digits}' if product.digits else 'f32'}"
    function = LoopFunction(name, [*product.activations, product.panels], [product.result], loc)

    def body(loops: LoopBuilder, *buffers: Buffer) -> None:
        *activations, panels, out = [buffer.value for buffer in buffers]
        make = QuantizedKernel if product.digits else FloatKernel
        kernel = make(product, machine, activations, panels, out, loops)
        if product.count == 1:
            kernel.one_row()
        elif isinstance(product.count, int):
            kernel.many_rows()
        else:
            C.branch(C.equals(C.index(product.count), C.index(1)), kernel.one_row, kernel.many_rows)

    return function.build(body)


@dataclass(frozen=True)
class SubBlock:
    """A sub-block of K in a panel that is being read."""

    weights: ir.Value
    """Position of its first byte."""
    scale: ir.Value
    zero: ir.Value
    number: ir.Value
    """Its number along K."""
    is_last: bool
    """Whether no other sub-block of its scale block follows."""


class ProductKernel:
    """What kernels share: the walk over a panel, stores of results."""

    def __init__(
        self,
        product: Product,
        machine: Machine,
        activations: Sequence[ir.Value],
        panels: ir.Value,
        out: ir.Value,
        loops: LoopBuilder,
    ):
        self.product, self.layout, self.machine = product, product.layout, machine
        self.activations, self.panels, self.out, self.loops = list(activations), panels, out, loops
        self.rows = C.index(product.count)

    # The walk over a panel

    def walk(
        self, panel: ir.Value, visit: Callable[..., Sequence[ir.Value]], carried: Sequence[ir.Value], ahead: int = 1
    ) -> list[ir.Value]:
        """Visit the sub-blocks of a panel: `visit(sub_block, *carried)`; prefetch those of `ahead` adjacent panels."""
        layout = self.layout
        per_group = layout.group * layout.subs_per_block
        whole, rest = divmod(layout.sub_blocks, per_group)
        start = C.times(panel, C.index(layout.panel_bytes))

        def group(i: ir.Value, *held: ir.Value, count: int = per_group) -> Sequence[ir.Value]:
            at = C.add(start, C.times(i, C.index(layout.group_bytes)))
            first = C.times(i, C.index(per_group))
            return self._group(at, first, count, visit, list(held), ahead)

        held = list(carried)
        if whole:
            held = C.loop(C.index(0), C.index(whole), group, held)
        return list(group(C.index(whole), *held, count=rest)) if rest else held

    def _group(
        self,
        at: ir.Value,
        first: ir.Value,
        count: int,
        visit: Callable[..., Sequence[ir.Value]],
        held: list[ir.Value],
        ahead: int,
    ) -> list[ir.Value]:
        layout = self.layout
        per_block, lines = layout.subs_per_block, layout.group_bytes // LINE
        scales = layout.group * layout.block_bytes
        zeros = scales + layout.group * layout.scale_bytes
        for sub in range(count):
            part = range(sub * lines // count, (sub + 1) * lines // count)
            for panel in range(ahead):
                position = C.offset(at, LEAD + panel * layout.panel_bytes)
                C.prefetch(self.panels, position, part, layout.bytes - layout.group_bytes)
            block = sub // per_block
            held = list(
                visit(
                    SubBlock(
                        C.offset(at, sub * layout.vectors * 64),
                        C.offset(at, scales + block * layout.scale_bytes),
                        C.offset(at, zeros + block * layout.zero_bytes),
                        C.offset(first, sub),
                        sub % per_block == per_block - 1,
                    ),
                    *held,
                )
            )
        return held

    def words(self, sub: SubBlock, vector: int, panel: int = 0) -> ir.Value:
        """Load a vector of weights as <16 x i32>."""
        at = C.offset(sub.weights, vector * 64 + panel * self.layout.panel_bytes)
        return C.bitcast(C.load_vector(self.panels, at, 64), C.integer(32))

    def scale(self, sub: SubBlock, panel: int = 0) -> ir.Value:
        return C.load_floats(self.panels, C.offset(sub.scale, panel * self.layout.panel_bytes), self.layout.scale)

    def zero(self, sub: SubBlock, panel: int = 0) -> Value:
        return C.load_floats(self.panels, C.offset(sub.zero, panel * self.layout.panel_bytes), self.layout.zero)

    # Results

    def store(self, value: ir.Value, row: ir.Value, panel: ir.Value, shift: int = 0) -> None:
        """Store the columns of a panel, or those that exist."""
        columns = self.layout.columns
        first = C.offset(C.times(panel, C.index(COLUMNS)), shift * COLUMNS)
        at = C.add(C.times(row, C.index(columns)), first)
        if columns % (PAIR * COLUMNS) == 0:
            C.store_vector(value, self.out, at)
            return
        left = create("arith.subi", first.type, C.index(columns), first)
        is_whole = compare("ge", left, C.index(COLUMNS))

        def some() -> None:
            count = create("arith.maxsi", left.type, left, C.index(0))
            mask = create("vector.create_mask", C.vector(C.integer(1)), count)
            ir.Operation.create("vector.maskedstore", operands=[self.out, at, mask, value])

        C.branch(is_whole, lambda: C.store_vector(value, self.out, at), some)

    # Kernels

    def one_row(self) -> None:
        """Emit the kernel for one row: each panel is read once, from memory."""

        def panel(p: ir.Value) -> None:
            start = C.constant(0.0, C.f32())
            total = self.walk(p, self.add_one_row, [start])[0]
            self.store(total, C.index(0), p)

        used = -(-self.layout.columns // COLUMNS)
        C.loop(C.index(0), C.index(used), panel, parallel=True)

    def many_rows(self) -> None:
        """Emit the kernel for several rows: tiles of rows times two panels, accumulators in memory."""
        accumulators = self.loops.alloca((ROWS * PAIR * COLUMNS,), DTYPES["f32"], "local").value
        scratch = self.scratch()

        def pair(p: ir.Value) -> None:
            def tile(top: ir.Value) -> None:
                left = create("arith.subi", top.type, self.rows, top)
                count = C.smaller(left, C.index(ROWS))
                zero = C.constant(0.0, C.f32())
                self.each_row(count, lambda row: self.put(accumulators, row, [zero] * PAIR))

                def visit(sub: SubBlock) -> Sequence[ir.Value]:
                    self.add_rows(sub, top, count, accumulators, scratch)
                    return ()

                self.walk(p, visit, [], PAIR)

                def finish(row: ir.Value) -> None:
                    for i, value in enumerate(self.get(accumulators, row)):
                        self.store(value, C.add(top, row), p, i)

                self.each_row(count, finish)

            C.loop(C.index(0), self.rows, tile, step=ROWS)

        used = -(-self.layout.columns // (PAIR * COLUMNS)) * PAIR
        C.loop(C.index(0), C.index(used), pair, step=PAIR, parallel=True)

    def scratch(self) -> ir.Value | None:
        """Return scratch memory of a tile."""
        return None

    def each_row(self, count: ir.Value, body: Callable[[ir.Value], None]) -> None:
        def one(row: ir.Value) -> None:
            body(row)

        C.loop(C.index(0), count, one)

    def get(self, accumulators: ir.Value, row: ir.Value) -> list[ir.Value]:
        at = C.times(row, C.index(PAIR * COLUMNS))
        return [C.load_vector(accumulators, C.offset(at, i * COLUMNS), COLUMNS) for i in range(PAIR)]

    def put(self, accumulators: ir.Value, row: ir.Value, values: Sequence[ir.Value]) -> None:
        at = C.times(row, C.index(PAIR * COLUMNS))
        for i, value in enumerate(values):
            C.store_vector(value, accumulators, C.offset(at, i * COLUMNS))

    def row_of(self, sub: SubBlock, row: ir.Value) -> ir.Value:
        """Return the number of a row among those of all sub-blocks."""
        return C.add(C.times(sub.number, self.rows), row)

    def add_one_row(self, sub: SubBlock, total: ir.Value) -> Sequence[ir.Value]:
        raise NotImplementedError

    def add_rows(
        self, sub: SubBlock, top: ir.Value, count: ir.Value, accumulators: ir.Value, scratch: ir.Value | None
    ) -> None:
        raise NotImplementedError


class QuantizedKernel(ProductKernel):
    """Rows of int8, whose products with a sub-block are summed as integers."""

    def __init__(
        self,
        product: Product,
        machine: Machine,
        activations: Sequence[ir.Value],
        panels: ir.Value,
        out: ir.Value,
        loops: LoopBuilder,
    ):
        super().__init__(product, machine, activations, panels, out, loops)
        self.codes, self.scales, self.sums = self.activations
        self.dots = C.Dots(self.machine)

    def add_one_row(self, sub: SubBlock, total: ir.Value) -> Sequence[ir.Value]:
        layout, digits = self.layout, range(self.product.digits)
        vectors, fields = layout.vectors, layout.fields
        row = self.row_of(sub, C.index(0))
        at = C.times(row, C.index(layout.sub))
        zero = C.constant(0, C.integer(32))
        sums = [[self.start(d, row)] + [zero] * (fields - 1) for d in digits]
        for j in range(vectors):
            words = self.words(sub, j)
            for field in range(fields):
                weights = self.field(words, field, in_place=self.dots.accumulates)
                for d in digits:
                    code = C.load_word(self.codes, self.digit(d, C.offset(at, 4 * (field * vectors + j)), layout.sub))
                    sums[d][field] = self.dots.add(sums[d][field], weights, code)
        whole = []
        for parts in sums:
            value = parts[0]
            for field, part in enumerate(parts[1:], 1):
                # Fields were multiplied in place: each sum is a multiple of a power of two.
                shift = C.constant(field * layout.bits, C.integer(32))
                value = C.add(value, C.both("shrsi", part, shift) if self.dots.accumulates else part)
            whole.append(value)
        scale = C.both("mulf", self.scale(sub), C.splat(C.load(self.scales, row)))
        zeros = self.zero(sub) if layout.zero else None
        return [C.fused(self.combined(whole, zeros, row), scale, total)]

    def add_rows(
        self, sub: SubBlock, top: ir.Value, count: ir.Value, accumulators: ir.Value, scratch: ir.Value | None
    ) -> None:
        layout, digits = self.layout, range(self.product.digits)
        weights: list[list[ir.Value]] = [[] for _ in range(PAIR)]
        for panel in range(PAIR):
            words = [self.words(sub, j, panel) for j in range(layout.vectors)]
            weights[panel] = [self.field(word, f, in_place=False) for f in range(layout.fields) for word in words]
        scales = [self.scale(sub, panel) for panel in range(PAIR)]
        zeros = [self.zero(sub, panel) if layout.zero else None for panel in range(PAIR)]

        def one(i: ir.Value) -> None:
            row = self.row_of(sub, C.add(top, i))
            at = C.times(row, C.index(layout.sub))
            sums = [[self.start(d, row) for d in digits] for _ in range(PAIR)]
            for w in range(len(weights[0])):
                for d in digits:
                    code = C.load_word(self.codes, self.digit(d, C.offset(at, 4 * w), layout.sub))
                    for panel in range(PAIR):
                        sums[panel][d] = self.dots.add(sums[panel][d], weights[panel][w], code)
            own = C.splat(C.load(self.scales, row))
            totals = self.get(accumulators, i)
            for panel in range(PAIR):
                value = self.combined(sums[panel], zeros[panel], row)
                totals[panel] = C.fused(value, C.both("mulf", scales[panel], own), totals[panel])
            self.put(accumulators, i, totals)

        self.each_row(count, one)

    def digit(self, digit: int, position: ir.Value, each: int) -> ir.Value:
        """Return the position of a digit: those of all rows are together."""
        if not digit:
            return position
        plane = C.times(self.rows, C.index(digit * self.layout.sub_blocks * each))
        return C.add(position, plane)

    def start(self, digit: int, row: ir.Value) -> ir.Value:
        """Return what the middle of the range takes off, in all lanes."""
        return C.splat(C.load(self.sums, self.digit(digit, row, 1)))

    def field(self, words: ir.Value, field: int, in_place: bool) -> ir.Value:
        """Return a field of each byte as <64 x i8>, shifted to the lowest bits unless it stays in place."""
        bits = self.layout.bits
        if bits == 8:
            return C.bitcast(words, C.integer(8))
        mask = (1 << bits) - 1
        if in_place:
            mask <<= field * bits
        elif field:
            words = C.both("shrui", words, C.constant(field * bits, C.integer(32)))
        signed = mask - 256 if mask > 127 else mask
        return C.both("andi", C.bitcast(words, C.integer(8)), C.constant(signed, C.integer(8), 64))

    def combined(self, sums: Sequence[ir.Value], zeros: ir.Value | None, row: ir.Value) -> ir.Value:
        """Return the sum of the products of all digits as floats, less those with the zero points."""
        value = C.to_float(sums[-1])
        for part in reversed(sums[:-1]):
            value = C.fused(value, C.constant(BASE, C.f32()), C.to_float(part))
        if zeros is None:
            return value
        # `start` is the sum of the codes times the middle, negative.
        own = C.to_float(self.start(len(sums) - 1, row))
        for digit in reversed(range(len(sums) - 1)):
            own = C.fused(own, C.constant(BASE, C.f32()), C.to_float(self.start(digit, row)))
        return C.fused(zeros, C.both("mulf", own, C.constant(1 / self.layout.middle, C.f32())), value)


class FloatKernel(ProductKernel):
    """Rows of f32; weights are converted in registers, or for many rows to scratch memory."""

    def __init__(
        self,
        product: Product,
        machine: Machine,
        activations: Sequence[ir.Value],
        panels: ir.Value,
        out: ir.Value,
        loops: LoopBuilder,
    ):
        super().__init__(product, machine, activations, panels, out, loops)
        self.floats = self.activations[0]
        self.sums = self.activations[1] if self.layout.zero else None
        self.decoder = C.Decoder(self.machine, self.layout.bits)

    def values(self, sub: SubBlock, panel: int = 0) -> list[tuple[int, ir.Value]]:
        """Return the rows of K of a sub-block and the weights of each, as floats relative to the middle."""
        layout, found = self.layout, []
        for j in range(layout.vectors):
            words = self.words(sub, j, panel)
            for i in range(4):
                for field in range(layout.fields):
                    row = 4 * (field * layout.vectors + j) + i
                    found.append((row, self.decoder.value(words, 8 * i + layout.bits * field)))
        return found

    def add_one_row(self, sub: SubBlock, total: ir.Value) -> Sequence[ir.Value]:
        row = self.row_of(sub, C.index(0))
        at = C.times(row, C.index(self.layout.sub))
        zero = C.constant(0.0, C.f32())
        sums = [zero] * 4
        for number, (k, weights) in enumerate(self.values(sub)):
            own = C.splat(C.load(self.floats, C.offset(at, k)))
            sums[number % 4] = C.fused(weights, own, sums[number % 4])
        value = C.both("addf", C.both("addf", sums[0], sums[1]), C.both("addf", sums[2], sums[3]))
        if self.sums is not None:
            own = C.splat(C.load(self.sums, row))
            value = C.both("subf", value, C.both("mulf", self.zero(sub), own))
        return [C.fused(value, self.scale(sub), total)]

    def scratch(self) -> ir.Value:
        elements = self.layout.sub * PAIR * COLUMNS
        return self.loops.alloca((elements,), DTYPES["f32"], "local").value

    def add_rows(
        self, sub: SubBlock, top: ir.Value, count: ir.Value, accumulators: ir.Value, scratch: ir.Value | None
    ) -> None:
        layout, width = self.layout, PAIR * COLUMNS
        assert scratch is not None
        for panel in range(PAIR):
            scale = self.scale(sub, panel)
            zeros = self.zero(sub, panel) if layout.zero else None
            for k, weights in self.values(sub, panel):
                value = weights if zeros is None else C.both("subf", weights, zeros)
                at = C.index(k * width + panel * COLUMNS)
                C.store_vector(C.both("mulf", value, scale), scratch, at)

        def rows(first: ir.Value, size: int) -> None:
            totals = [total for i in range(size) for total in self.get(accumulators, C.offset(first, i))]
            own = [C.times(self.row_of(sub, C.add(top, C.offset(first, i))), C.index(layout.sub)) for i in range(size)]

            def step(k: ir.Value, *held: ir.Value) -> Sequence[ir.Value]:
                sums = list(held)
                for unrolled in range(4):
                    at = C.offset(C.times(k, C.index(width)), unrolled * width)
                    columns = [C.load_vector(scratch, C.offset(at, i * COLUMNS), COLUMNS) for i in range(PAIR)]
                    for i in range(size):
                        x = C.splat(C.load(self.floats, C.offset(C.add(own[i], k), unrolled)))
                        for p in range(PAIR):
                            sums[i * PAIR + p] = C.fused(x, columns[p], sums[i * PAIR + p])
                return sums

            made = C.loop(C.index(0), C.index(layout.sub), step, totals, step=4)
            for i in range(size):
                self.put(accumulators, C.offset(first, i), made[i * PAIR : (i + 1) * PAIR])

        done = C.index(0)
        for size in (TILE_ROWS, 4, 2, 1):
            stop = C.times(create("arith.divui", count.type, count, C.index(size)), C.index(size))
            C.loop(done, stop, lambda i, size=size: rows(i, size), step=size)
            done = stop
