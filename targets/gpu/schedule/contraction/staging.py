"""Operand tiles in shared memory, and their copies from global memory by the threads of a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.value import Value, index
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.passes.schedule.blocks.contraction.forms import BlockAxis
from mirlo.passes.schedule.loops import attribute_constant
from mirlo.passes.schedule.vectors import elements_of
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.launch import clamp_index, shared, split
from mirlo.targets.gpu.schedule.product_leaves import OperandLine, ProductLeaves
from mirlo.targets.gpu.schedule.roles import Indices, ProductOperand, Roles, tested, values_of
from mirlo.targets.gpu.schedule.vectors import is_aligned, load_vector, spread, store_vector

ACCESS = 16
"""Bytes that a thread moves at once."""
QUAD = 4
"""Bytes transposed together: as many lines as K elements."""


class ElementFormat(Protocol):
    """The format of elements in shared memory."""

    @property
    def bytes(self) -> int:
        """Return the bytes of an element."""

    @property
    def vector(self) -> int:
        """Return the elements that a thread moves at once."""

    def padding(self, along_k: bool) -> int:
        """Return the elements between lines, or k-steps, that avoid bank conflicts."""


def pitch_of_tile(lines: int, depth: int, along_k: bool, form: ElementFormat) -> int:
    """Return the elements of shared memory from one line, or k-step, of a tile to the next."""
    return (depth if along_k else lines) + form.padding(along_k)


def elements_of_tile(lines: int, depth: int, along_k: bool, form: ElementFormat) -> int:
    """Return the elements of shared memory that a tile takes."""
    return (lines if along_k else depth) * pitch_of_tile(lines, depth, along_k, form)


@dataclass(frozen=True)
class SharedMatrix:
    """An operand in shared memory: lines (rows of the lhs, columns of the rhs) by K."""

    memory: Value
    lines: int
    depth: int
    along_k: bool
    """Whether it is contiguous along K, or along lines."""
    form: ElementFormat
    start: Value | None = None
    """Its first element in the memory; None for zero."""

    @property
    def size(self) -> int:
        """Return the elements of memory that it takes."""
        return elements_of_tile(self.lines, self.depth, self.along_k, self.form)

    @property
    def pitch(self) -> int:
        """Return the elements from one line, or k-step, to the next."""
        return pitch_of_tile(self.lines, self.depth, self.along_k, self.form)

    @classmethod
    def allocate(cls, lines: int, depth: int, along_k: bool, form: ElementFormat, element: ir.Type) -> SharedMatrix:
        """Return a matrix in memory of its own, at the insertion point."""
        memory = shared(elements_of_tile(lines, depth, along_k, form), element)
        return SharedMatrix(memory, lines, depth, along_k, form)

    def place(self, line: Value, step: Value) -> Value:
        """Return the position of an element."""
        outer, inner = (line, step) if self.along_k else (step, line)
        position = outer * self.pitch + inner
        return position if self.start is None else self.start + position

    def vector(self, line: Value, step: Value, count: int, beyond: int = 0) -> ir.Value:
        """Return consecutive lines, or K elements, from an aligned position, or from `beyond` elements after it."""
        place = self.place(line, step)
        place = place + beyond if beyond else place
        return memref.LoadOp(self.memory, [place]).result if count == 1 else load_vector(self.memory, place, count)

    def grow(self, stages: int) -> None:
        """Make room for this many pipeline stages."""
        kind = self.memory.type
        larger = ir.MemRefType.get([stages * self.size], kind.element_type, memory_space=kind.memory_space)
        self.memory.set_type(larger)

    def stage(self, number: Value | None) -> SharedMatrix:
        """Return the matrix of a pipeline stage; None if there is only one."""
        return self if number is None else replace(self, start=number * self.size)


AsyncCopy = Callable[[ir.Value, ir.Value, ir.Value, ir.Value, ir.Value, int], None]
"""Starts the copy of a vector: source and position, target and position, elements to read, elements to write."""


@dataclass(frozen=True)
class Load:
    """A thread's part of copying an operand to shared memory."""

    read: Callable[[Value], list[ir.Value]]
    """Load from global memory to registers, given the first k-step of an iteration."""
    write: Callable[[Sequence[ir.Value], Value | None], None]
    """Store to a stage of shared memory; None if there is only one."""
    copy: Callable[[Value, Value], None] | None
    """Copy from global memory to a stage asynchronously; None if it cannot."""


def contiguous(side: ProductOperand, axes: tuple[BlockAxis, ...], count: int) -> bool:
    """Return whether the last of these axes can be read in vectors: contiguous, aligned, never across an edge."""
    return side.access.outside is None and _is_vectorizable(side, axes, count)


def with_whole_vectors(roles: Roles, side: ProductOperand, axes: tuple[BlockAxis, ...], count: int) -> bool:
    """Return the same as `contiguous` if a whole vector may be out of bounds: images with contiguous channels."""
    if not axes or any(axes[-1].id in dim.terms for dim in tested(roles, side)):
        return False
    return _is_vectorizable(side, axes, count)


def _is_vectorizable(side: ProductOperand, axes: tuple[BlockAxis, ...], count: int) -> bool:
    return bool(axes) and is_aligned(side.position, axes[-1].id, count, axes[-1].extent)


@dataclass(frozen=True)
class Stager:
    """Copies tiles of one operand to shared memory."""

    leaves: ProductLeaves
    side: ProductOperand
    form: ElementFormat
    batch: Indices
    first: Value
    """The first line of the tile."""
    lines: int
    steps: int
    """K elements in shared memory at a time."""
    thread: Value
    threads: int
    async_copy: AsyncCopy | None = None
    ahead: bool = True
    """Whether k-steps beyond the last one are read."""
    stacked: int = 1
    """Tiles along the lines that are computed if any of them exists."""

    @property
    def roles(self) -> Roles:
        return self.leaves.roles

    def make(self) -> tuple[SharedMatrix, list[Load]]:
        """Return the memory of a tile, and this thread's loads."""
        side, sums, vector = self.side, self.roles.sums, self.form.vector
        along_k = with_whole_vectors(self.roles, side, sums, vector)
        along_lines = not along_k and with_whole_vectors(self.roles, side, side.axes, vector)
        # int8 is multiplied four K elements at a time, which must be contiguous: only 16-bit elements transpose on
        # load.
        keeps_sums = self.form.bytes == 1 or along_k or (not along_lines and side.stride(sums) == 1)
        matrix = self._matrix(keeps_sums, side.access.element_type)
        if keeps_sums and not along_k and with_whole_vectors(self.roles, side, side.axes, QUAD):
            return matrix, self._transposed_squares(matrix)
        return matrix, self.straight(matrix, vector if along_k or along_lines else 1, keeps_sums)

    def load_along_lines(self) -> tuple[SharedMatrix, list[Load]]:
        """Return the same for operands in the accumulator type, contiguous along lines."""
        side, sums = self.side, self.roles.sums
        kind, vector = self.roles.contraction.product.accumulate_type, self.form.vector
        matrix = self._matrix(False, kind)
        plain = side.access.element_type == kind and not side.factor.body_ops
        for along_k in (False, True):
            axes = sums if along_k else side.axes
            if plain and vector > 1 and with_whole_vectors(self.roles, side, axes, vector):
                return matrix, self.straight(matrix, vector, along_k)
        nearer = side.stride(sums) != 0 and (
            not side.axes or D.estimate_dim(side.stride(sums)) < D.estimate_dim(side.stride(side.axes))
        )
        return matrix, self.straight(matrix, 1, bool(nearer), computed=not plain)

    def _matrix(self, along_k: bool, element: ir.Type) -> SharedMatrix:
        return SharedMatrix.allocate(self.lines, self.steps, along_k, self.form, element)

    def _parts(self, numbers: int) -> list[Value]:
        """Return the numbers of this thread's vectors, given how many vectors the tile has."""
        count = -(-self.lines * self.steps // (numbers * self.threads))
        return [self.thread + part * self.threads for part in range(count)]

    def straight(self, matrix: SharedMatrix, width: int, along_k: bool, computed: bool = False) -> list[Load]:
        """Return loads in which adjacent threads read adjacent memory, along K or along the lines."""
        loads = []
        for number in self._parts(width):
            if along_k:
                line, step = split(number, [self.lines, self.steps // width])
                step = step * width
            else:
                step, line = split(number, [self.steps, self.lines // width])
                line = line * width
            loads.append(self._load(matrix, line, step, width, along_k, computed))
        return loads

    def _line(self, line: Value, width: int) -> OperandLine:
        """Return a line of the tile; those beyond the last one read unused data."""
        at = clamp_index(self.first + line, self.side.extent, self.lines * self.stacked, width)
        return self.leaves.line(self.side, {**self.batch, **values_of(self.side.axes, at)})

    def _held(self, position: Value, width: int) -> Indices:
        """Return the reduction axes at a position, clamped to their end."""
        if self.ahead or not D.is_multiple(self.roles.depth, self.steps):
            position = create("arith.minui", position.type, position, index(self.roles.depth - width))
        return values_of(self.roles.sums, position)

    def _or_zero(self, position: Value, value: ir.Value) -> ir.Value:
        """Return zero beyond the last k-step, if that is multiplied."""
        if D.is_multiple(self.roles.depth, self.steps):
            return value
        if isinstance(value.type, ir.VectorType):
            zero = spread(emit_constant(0, value.type.element_type), *value.type.shape)
        else:
            zero = emit_constant(0, value.type)
        return create("arith.select", value.type, position.below(self.roles.depth), value, zero)

    def _load(self, matrix: SharedMatrix, line: Value, step: Value, width: int, along_k: bool, computed: bool) -> Load:
        elements = self._line(line, 1 if along_k else width)
        along = width if along_k else 1

        def read(begin: Value) -> list[ir.Value]:
            position = begin + step
            sums = self._held(position, along)
            if width > 1:
                value: ir.Value = self._vector(elements, sums, width)
            else:
                value = elements.read(sums) if computed else elements.element(sums)
            return [self._or_zero(position, value)]

        def write(values: Sequence[ir.Value], stage: Value | None) -> None:
            (value,) = values
            place = matrix.stage(stage).place(line, step)
            if width == 1:
                memref.StoreOp(value, matrix.memory, [place])
            elif along_k == matrix.along_k:
                store_vector(value, matrix.memory, place)
            else:
                for i, number in enumerate(elements_of(value)):
                    memref.StoreOp(number, matrix.memory, [place + i * matrix.pitch])

        def copy(begin: Value, stage: Value) -> None:
            position = begin + step
            source, there = self._source(elements, self._held(position, along))
            target = matrix.stage(stage).place(line, step)
            # Elements beyond the last k-step or out of bounds are zero.
            inside = position.below(self.roles.depth)
            if there is not None:
                inside = inside & there
            count = create("arith.select", position.type, inside, index(width), index(0))
            assert self.async_copy is not None
            self.async_copy(elements.view, source, matrix.memory, target, count, width)

        outside = self.side.access.outside
        zero = outside is None or outside.value == 0
        able = self.async_copy is not None and zero and width * self.form.bytes == ACCESS and along_k == matrix.along_k
        return Load(read, write, copy if able else None)

    def _transposed_squares(self, matrix: SharedMatrix) -> list[Load]:
        """Return loads that transpose squares of int8 of adjacent lines in registers."""
        loads = []
        for number in self._parts(QUAD * QUAD):
            step, line = split(number, [self.steps // QUAD, self.lines // QUAD])
            loads.append(self._transposed_square(matrix, line * QUAD, step * QUAD))
        return loads

    def _transposed_square(self, matrix: SharedMatrix, line: Value, step: Value) -> Load:
        elements = self._line(line, QUAD)

        def read(begin: Value) -> list[ir.Value]:
            result = []
            for i in range(QUAD):
                position = begin + (step + i)
                result.append(self._or_zero(position, self._vector(elements, self._held(position, 1), QUAD)))
            return result

        def write(values: Sequence[ir.Value], stage: Value | None) -> None:
            for j, numbers in enumerate(zip(*map(elements_of, values), strict=True)):
                column = create("vector.from_elements", values[0].type, *numbers)
                place = matrix.stage(stage).place(line + j, step)
                store_vector(column, matrix.memory, place)

        return Load(read, write, None)

    def _source(self, line: OperandLine, sums: Indices) -> tuple[ir.Value, ir.Value | None]:
        """Return the position to read, and whether it is in bounds if that is not certain; else the first element's."""
        position, there = line.source(sums)
        if there is not None:
            position = create("arith.select", position.type, there, position, index(0))
        return position, there

    def _vector(self, line: OperandLine, sums: Indices, width: int) -> Value:
        position, there = self._source(line, sums)
        value = load_vector(line.view, position, width)
        if there is None:
            return value
        outside = spread(attribute_constant(self.side.access.outside), width)
        return create("arith.select", value.type, there, value, outside)
