"""Schedules of the transforms: a tile at a time in registers, vectorized along the channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.value import Value, compare, create
from mirlo.dialects.tir.view import BlockView
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.schedule.buffers import BufferFunction, TensorBuffers
from mirlo.passes.schedule.loops import either, loop_over_tiles, when
from mirlo.passes.schedule.primitives.group_plan import schedule_of
from mirlo.passes.schedule.primitives.index import LoopPosition, LoopValue
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.tree import PartRange, ScheduleError
from mirlo.passes.schedule.primitives.vector_memory import FunctionConstants, Piece, VectorMemory
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.part_rules import function_group
from mirlo.targets.llvm.winograd import GRADIENT_BLOCK, INPUT_BLOCK, OUTPUT_BLOCK
from mirlo.targets.llvm.winograd.functions import (
    Tiling,
    computes,
    gradient_function,
    input_function,
    output_function,
)
from mirlo.targets.llvm.winograd.matrices import INPUT, OUTPUT, Matrix, Operations, multiply, transposed

if TYPE_CHECKING:
    from mirlo.passes.schedule.kernel import Kernel, ScheduleContext

LoopIndex = Dim | ir.Value
"""An index: a dim, or a value that is computed at run time."""
PixelReader = Callable[[int, int], ir.Value]
"""Loads a vector of channels of a pixel of a tile, by its row and column there."""


def schedule_input(kernel: Kernel, context: ScheduleContext) -> Decline | ir.OpView:
    """Schedule the input transform: tiles of the image, a vector of channels at a time."""
    group = _group(kernel, context, INPUT_BLOCK)
    if isinstance(group, Decline):
        return group
    if len(group.blocks) != 1:
        return decline("other blocks follow the transform")
    block = group.blocks[0]
    alpha, _, batch, high, wide, channels = block.outputs[0].shape
    x = block.inputs[0]
    pads = [-_constant(expr) for expr in list(x.map.results)[1:3]]
    tiling = Tiling(
        alpha - 2, batch, x.shape[1:3], (pads[0], pads[1]), _out(alpha - 2, high, wide), channels, 1, _image(block)
    )  # fmt: skip
    lanes = group.machine.lanes(tiling.transformed_bytes)
    if channels % lanes != 0:
        return decline("the channels fill no whole vectors", channels=channels)
    if not computes(block, input_function(tiling, ir.Location.unknown()), alpha):
        return decline("the block is not Winograd's transform")
    buffers = BufferFunction(kernel.view)
    emitter = _TileEmitter(TensorBuffers(buffers), block, tiling, lanes, tiling.input_matrix)
    return buffers.build(emitter.emit, {"rule": "winograd_input", "tile": [tiling.m, tiling.m]})


def schedule_gradient(kernel: Kernel, context: ScheduleContext) -> Decline | ir.OpView:
    """Schedule the transposed output transform: tiles of a gradient, a vector of channels at a time."""
    group = function_group(kernel, context)
    if isinstance(group, Decline):
        return group
    block = group.blocks[0]
    if block.name != GRADIENT_BLOCK or len(group.blocks) != 1 or len(block.reduce) != 2:
        return decline("the kernel is not a Winograd transform of a gradient", block=block.name)
    alpha, _, batch, _, _, channels = block.outputs[0].shape
    size = block.inputs[0].shape[1:3]
    if alpha - 2 not in INPUT:
        return decline("there are no tiles of this size", tile=alpha - 2)
    tiling = Tiling(alpha - 2, batch, size, (0, 0), size, channels, channels)
    lanes = group.machine.lanes(4)
    if channels % lanes != 0:
        return decline("the channels fill no whole vectors", channels=channels)
    if not computes(block, gradient_function(tiling, ir.Location.unknown()), alpha):
        return decline("the block is not Winograd's transform")
    buffers = BufferFunction(kernel.view)
    emitter = _TileEmitter(TensorBuffers(buffers), block, tiling, lanes, transposed(OUTPUT[tiling.m]))
    return buffers.build(emitter.emit, {"rule": "winograd_gradient", "tile": [tiling.m, tiling.m]})


def schedule_output(kernel: Kernel, context: ScheduleContext) -> Decline | ir.OpView:
    """Schedule the output transform and its epilogue, tile by tile."""
    group = _group(kernel, context, OUTPUT_BLOCK)
    if isinstance(group, Decline):
        return group
    block = group.blocks[0]
    alpha = block.inputs[0].shape[0]
    batch, *out, channels = block.outputs[0].shape
    image = "f32" if isinstance(block.outputs[0].element_type, ir.F32Type) else "i8"
    tiling = Tiling(alpha - 2, batch, (1, 1), (0, 0), (out[0], out[1]), 1, channels, image)
    lanes = group.machine.lanes(4)
    if channels % lanes != 0:
        return decline("the channels fill no whole vectors", channels=channels)
    if not computes(block, output_function(tiling, ir.Location.unknown()), tiling.m):
        return decline("the block is not Winograd's transform")
    s = _arrange_pixels(group, lanes)
    if isinstance(s, Decline):
        return s
    buffers = BufferFunction(kernel.view)
    emitter = _OutputEmitter(TensorBuffers(buffers), block, s, tiling, lanes)
    return buffers.build(emitter.emit, {"rule": "winograd_output", "tile": [tiling.m, tiling.m]})


def _group(kernel: Kernel, context: ScheduleContext, name: str) -> BlockGroup[Machine] | Decline:
    group = function_group(kernel, context)
    if isinstance(group, Decline):
        return group
    block = group.blocks[0]
    if block.name != name or len(block.reduce) != 2 or block.domain[block.reduce[0]] - 2 not in INPUT:
        return decline("the first block is not a Winograd transform", block=block.name)
    return group


def _arrange_pixels(group: BlockGroup[Machine], lanes: int) -> Schedule | Decline:
    """Compute the epilogue of the transform, a vector of channels at a time."""
    s = schedule_of(group)
    block, *others = s.blocks()
    try:
        for other in others:
            s.reverse_compute_inline(other)
    except ScheduleError as error:
        return decline("a block is not computed on the results of the transform", found=str(error))
    *pixel, channels, rows, columns = s.loops(block)
    outer, lane = s.split(channels, (None, lanes))
    s.reorder(*pixel, outer, rows, columns, lane)
    s.vectorize(lane)
    s.accumulate(block, rows)
    return s


def _image(block: BlockView) -> str:
    """Return the element type of the image that the input transform reads: as it is extended."""
    casts = [op.name for op in block.body_ops if op.name in ("arith.extsi", "arith.extui")]
    return "f32" if not casts else "u8" if casts[0] == "arith.extui" else "i8"


def _out(m: int, high: Dim, wide: Dim) -> tuple[Dim, Dim]:
    return m * high, m * wide


def _constant(expr: ir.AffineExpr) -> int:
    """Return the value of an affine expression where all dims are 0."""
    if isinstance(expr, ir.AffineConstantExpr):
        return int(expr.value)
    if isinstance(expr, ir.AffineDimExpr):
        return 0
    left, right = _constant(expr.lhs), _constant(expr.rhs)
    return left + right if isinstance(expr, ir.AffineAddExpr) else left * right


def _operations(lanes: int, constants: FunctionConstants, element: ir.Type) -> Operations:
    kind = ir.VectorType.get([lanes], element)
    if isinstance(element, ir.IntegerType):
        return _integer_operations(lanes, constants, element)

    def number(value: float) -> ir.Value:
        return constants.splat(lanes, ir.FloatAttr.get(element, value))

    return Operations(
        add=lambda a, b: create("arith.addf", kind, a, b),
        subtract=lambda a, b: create("arith.subf", kind, a, b),
        scale=lambda a, n: create("arith.mulf", kind, a, number(n)),
        fused=lambda a, n, b: create("vector.fma", kind, a, number(n), b),
    )


def _integer_operations(lanes: int, constants: FunctionConstants, element: ir.Type) -> Operations:
    kind = ir.VectorType.get([lanes], element)

    def scale(a: ir.Value, n: float) -> ir.Value:
        return create("arith.muli", kind, a, constants.splat(lanes, ir.IntegerAttr.get(element, int(n))))

    return Operations(
        add=lambda a, b: create("arith.addi", kind, a, b),
        subtract=lambda a, b: create("arith.subi", kind, a, b),
        scale=scale,
        fused=lambda a, n, b: create("arith.addi", kind, scale(a, n), b),
    )


def _transform(matrix: Matrix, tile: list[list[ir.Value]], ops: Operations) -> list[list[ir.Value]]:
    """Emit matrix @ tile @ matrix^T."""
    columns = [multiply(matrix, list(column), ops) for column in zip(*tile, strict=True)]
    return [multiply(matrix, list(row), ops) for row in zip(*columns, strict=True)]


@dataclass
class _Arithmetic:
    """Index arithmetic on integers and values."""

    constants: FunctionConstants

    def value(self, a: LoopIndex) -> ir.Value:
        return a if isinstance(a, ir.Value) else self.constants.index(a)

    def add(self, a: LoopIndex, b: LoopIndex) -> LoopIndex:
        if not isinstance(a, ir.Value) and not isinstance(b, ir.Value):
            return a + b
        if (isinstance(a, int) and a == 0) or (isinstance(b, int) and b == 0):
            return b if isinstance(a, int) else a
        return create("arith.addi", ir.IndexType.get(), self.value(a), self.value(b))

    def times(self, a: LoopIndex, factor: Dim) -> LoopIndex:
        if not isinstance(a, ir.Value):
            return a * factor
        return a if factor == 1 else create("arith.muli", a.type, a, self.constants.index(factor))

    def divide(self, a: LoopIndex, divisor: Dim) -> tuple[LoopIndex, LoopIndex]:
        """Return quotient and remainder."""
        if not isinstance(a, ir.Value):
            return a // divisor, a % divisor
        quotient = Value(a).divide_unsigned(self.constants.index(divisor))
        return quotient, Value(a).remainder_unsigned(self.constants.index(divisor))

    def inside(self, a: LoopIndex, size: Dim) -> Value:
        """Return 0 <= a < size: one unsigned comparison."""
        return compare("ult", self.value(a), self.constants.index(size))

    def both(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return create("arith.andi", a.type, a, b)


class _Emitter:
    """The loops over tiles."""

    def __init__(self, memory: TensorBuffers, tiling: Tiling, lanes: int):
        self.memory = memory
        self.constants = FunctionConstants(memory.buffers.entry, memory.buffers.location, memory.buffers.scratch)
        self.vectors = VectorMemory(self.constants)
        self.tiling = tiling
        self.lanes = lanes
        self.index = _Arithmetic(self.constants)
        self.piece = Piece(0, lanes, lanes)

    def tiles(self, tile: Callable[[LoopIndex, LoopIndex, LoopIndex, LoopIndex], None]) -> None:
        """Emit `tile(number, n, th, tw)` for each tile."""
        batch, high, wide = self.tiling.tiles

        def row(at: ir.Value) -> None:
            n, th = self.index.divide(at, high)
            first = self.index.times(at, wide)
            loop_over_tiles(0, wide, 1, lambda tw: tile(self.index.add(first, tw), n, th, tw), parallel=True)

        loop_over_tiles(0, batch * high, 1, row, parallel=True)

    def channels(self, count: int, step: Callable[[LoopIndex], None]) -> None:
        loop_over_tiles(0, count, self.lanes, step)


class _TileEmitter(_Emitter):
    """The transform of tiles of an image by a matrix, whose columns are as many as the pixels of a side of each."""

    def __init__(self, memory: TensorBuffers, block: BlockView, tiling: Tiling, lanes: int, matrix: Matrix):
        super().__init__(memory, tiling, lanes)
        self.block = block
        self.matrix = matrix
        self.side = len(matrix[0])

    def emit(self) -> None:
        self.source = self.memory.slot(self.block.inputs[0].value).buffer
        self.target = self.memory.slot(self.block.outputs[0].value).buffer
        self.ops = _operations(self.lanes, self.constants, self.target.type.element_type)
        self.tiles(self._tile)

    def _tile(self, number: LoopIndex, n: LoopIndex, th: LoopIndex, tw: LoopIndex) -> None:
        tiling, index = self.tiling, self.index
        height, width = tiling.size
        top = index.add(index.times(th, tiling.m), -tiling.pad[0])
        left = index.add(index.times(tw, tiling.m), -tiling.pad[1])
        edges = index.both(
            index.inside(top, D.maximum(height - self.side + 1, 0)),
            index.inside(left, D.maximum(width - self.side + 1, 0)),
        )
        image, side = index.times(n, height), range(self.side)
        to_row, to_column = width * tiling.channels, tiling.channels

        def within() -> None:
            # One address and constants: the address of each element would be live in the loop over channels.
            first = index.times(index.add(index.times(index.add(image, top), width), left), tiling.channels)

            def pixels(c: LoopIndex) -> PixelReader:
                start = index.add(first, c)
                return lambda r, s: self._load(index.add(start, r * to_row + s * to_column))

            self._walk(number, pixels)

        def beyond() -> None:
            rows, columns = ([index.add(start, step) for step in side] for start in (top, left))
            row_is = [index.inside(row, height) for row in rows]
            column_is = [index.inside(column, width) for column in columns]
            there = {(r, s): index.both(row_is[r], column_is[s]) for r in side for s in side}
            zero = self.vectors.zeros(self.lanes, self.source.type.element_type)
            # Where there is no row or column, the first one is read.
            kind, start = ir.IndexType.get(), self.constants.index(0)
            rows = [
                create("arith.select", kind, is_in, index.value(at), start)
                for at, is_in in zip(rows, row_is, strict=True)
            ]
            columns = [
                create("arith.select", kind, is_in, index.value(at), start)
                for at, is_in in zip(columns, column_is, strict=True)
            ]
            in_rows = [index.times(index.add(image, row), to_row) for row in rows]
            in_columns = [index.times(column, to_column) for column in columns]

            def pixels(c: LoopIndex) -> PixelReader:
                starts = [index.add(row, c) for row in in_rows]

                def read(r: int, s: int) -> ir.Value:
                    loaded = self._load(index.add(starts[r], in_columns[s]))
                    return create("arith.select", loaded.type, there[r, s], loaded, zero)

                return read

            self._walk(number, pixels)

        either(edges, within, beyond)

    def _load(self, position: LoopIndex) -> ir.Value:
        return self.vectors.load(self.source, self.index.value(position), self.piece)

    def _extended(self, value: ir.Value) -> ir.Value:
        """Extend int8 to the type of transformed tiles."""
        if not self.tiling.is_integer:
            return value
        kind = ir.VectorType.get([self.lanes], self.target.type.element_type)
        return create("arith.extui" if self.tiling.image == "u8" else "arith.extsi", kind, value)

    def _walk(self, number: LoopIndex, pixels: Callable[[LoopIndex], PixelReader]) -> None:
        """Transform a tile, vector by vector; `pixels` loads the elements from a channel on."""
        tiling, index = self.tiling, self.index
        size, side = range(tiling.alpha), range(self.side)
        first = index.times(number, tiling.channels)
        plane = tiling.count * tiling.channels

        def step(c: LoopIndex) -> None:
            read = pixels(c)
            tile = [[self._extended(read(r, s)) for s in side] for r in side]
            result = _transform(self.matrix, tile, self.ops)
            base = index.add(first, c)
            for i in size:
                for j in size:
                    at = index.add(base, (i * tiling.alpha + j) * plane)
                    self.vectors.store(result[i][j], self.target, index.value(at), self.piece)

        self.channels(tiling.channels, step)


class _OutputEmitter(_Emitter):
    def __init__(self, memory: TensorBuffers, block: BlockView, s: Schedule, tiling: Tiling, lanes: int):
        super().__init__(memory, tiling, lanes)
        self.block = block
        self.name = s.blocks()[0]
        self.loops = s.loops(self.name)[:4]
        self.parts = s.part_emitter()

    def emit(self) -> None:
        self.source = self.memory.slot(self.block.inputs[0].value).buffer
        self.ops = _operations(self.lanes, self.constants, self.source.type.element_type)
        self.tiles(self._tile)

    def _tile(self, number: LoopIndex, n: LoopIndex, th: LoopIndex, tw: LoopIndex) -> None:
        tiling, index = self.tiling, self.index
        first = index.times(number, tiling.out_channels)
        plane = tiling.count * tiling.out_channels
        size = range(tiling.alpha)
        rows = [index.add(index.times(th, tiling.m), p) for p in range(tiling.m)]
        columns = [index.add(index.times(tw, tiling.m), q) for q in range(tiling.m)]
        ragged = [tiling.out[d] % tiling.m != 0 for d in (0, 1)]

        def step(c: LoopIndex) -> None:
            base = index.add(first, c)
            tile = [
                [
                    self.vectors.load(
                        self.source, index.value(index.add(base, (i * tiling.alpha + j) * plane)), self.piece
                    )
                    for j in size
                ]
                for i in size
            ]
            result = _transform(tiling.output_matrix, tile, self.ops)

            def pixel(p: int, q: int) -> None:
                self._finish([index.value(v) for v in (n, rows[p], columns[q])], index.value(c), result[p][q])

            def line(p: int) -> None:
                for q in range(tiling.m):
                    if ragged[1] and q:
                        when(index.inside(columns[q], tiling.out[1]), lambda q=q: pixel(p, q))  # type: ignore[misc]
                    else:
                        pixel(p, q)

            for p in range(tiling.m):
                if ragged[0] and p:
                    when(index.inside(rows[p], tiling.out[0]), lambda p=p: line(p))  # type: ignore[misc]
                else:
                    line(p)

        self.channels(tiling.out_channels, step)

    def _finish(self, pixel: list[ir.Value], channel: ir.Value, total: ir.Value) -> None:
        """Emit the epilogue on one vector of results, and its stores."""
        *outer, channels = self.loops
        vectors = LoopPosition(channels, channel, PartRange(0, self.lanes))
        indices: dict[str, LoopValue] = {**dict(zip(outer, pixel, strict=True)), channels: vectors}
        self.parts.finish(self.memory, self.name, [total], indices)
