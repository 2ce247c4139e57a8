"""Fragments: what each thread of a warp holds of the matrices that a matrix unit multiplies, 16 x 8 x 16 in 16 bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.targets.gpu.schedule.launch import add, multiply

ROWS, COLUMNS, DEPTH = 16, 8, 16
"""Of one product."""
WARP = 32
PAIR = 2
"""Neighbouring numbers that share a register."""


@dataclass(frozen=True)
class SharedMatrix:
    """A matrix in shared memory: lines (rows of the first factor, columns of the second) by steps of the sum."""

    memory: Any
    lines: int
    depth: int
    along_sums: bool
    """Whether neighbouring steps of the sum lie side by side, or neighbouring lines."""
    start: Any = None
    """Where it begins in the memory, if not at the first number."""

    @property
    def size(self) -> int:
        """Numbers of memory that it takes."""
        return size_of(self.lines, self.depth, self.along_sums)

    @property
    def pitch(self) -> int:
        """Numbers from one line to the next, or from one step to the next: not a multiple of the banks' width."""
        return pitch_of(self.lines, self.depth, self.along_sums)

    def place(self, line: Any, step: Any) -> Any:
        """The position of a number."""
        outer, inner = (line, step) if self.along_sums else (step, line)
        position = add(multiply(outer, self.pitch), inner)
        return position if self.start is None else add(self.start, position)

    def pair(self, line: Any, step: Any) -> Any:
        """The numbers of two steps, the first of which is even."""
        kind = ir.VectorType.get([PAIR], self.memory.type.element_type)
        if self.along_sums:
            alignment = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), PAIR * 2)
            return create("vector.load", kind, self.memory, self.place(line, step), alignment=alignment)
        parts = [memref.LoadOp(self.memory, [self.place(line, add(step, i))]).result for i in range(PAIR)]
        return create("vector.from_elements", kind, *parts)


def pitch_of(lines: int, depth: int, along_sums: bool) -> int:
    """See `SharedMatrix.pitch`."""
    return (depth if along_sums else lines) + 8


def size_of(lines: int, depth: int, along_sums: bool) -> int:
    """Numbers of shared memory that a matrix takes."""
    return (lines if along_sums else depth) * pitch_of(lines, depth, along_sums)


@dataclass(frozen=True)
class Lane:
    """A thread's part of fragments: four threads share a line of the factors, and a row of the result."""

    group: Any
    member: Any

    def left(self, matrix: SharedMatrix, row: Any, step: Any) -> Any:
        """Its part of 16 rows and 16 steps of the first factor."""
        first = add(step, multiply(self.member, PAIR))
        pairs = [
            matrix.pair(add(row, add(self.group, down)), add(first, along))
            for along in (0, DEPTH // 2) for down in (0, ROWS // 2)
        ]  # fmt: skip
        return joined(pairs)

    def right(self, matrix: SharedMatrix, column: Any, step: Any) -> Any:
        """Its part of 16 steps and 8 columns of the second factor."""
        first = add(step, multiply(self.member, PAIR))
        return joined([matrix.pair(add(column, self.group), add(first, along)) for along in (0, DEPTH // 2)])

    def places(self) -> list[tuple[Any, Any, tuple[int, int]]]:
        """Row, column and position in the fragment of its four numbers of the result, relative to the tile."""
        found = []
        for i in range(2):
            row = add(self.group, i * (ROWS // 2))
            for j in range(PAIR):
                found.append((row, add(multiply(self.member, PAIR), j), (i, j)))
        return found


def joined(pairs: Sequence[Any]) -> Any:
    """Pairs as the rows of a fragment."""
    kind = ir.VectorType.get([len(pairs), PAIR], pairs[0].type.element_type)
    zero = emit_constant(0, kind.element_type)
    made = create("vector.broadcast", kind, zero)
    for i, pair in enumerate(pairs):
        at = ir.DenseI64ArrayAttr.get([i])
        made = create("vector.insert", kind, pair, made, static_position=at)
    return made


def product(left: Any, right: Any, total: Any) -> Any:
    """left · right + total, by the matrix unit."""
    i64 = ir.IntegerType.get_signless(64)
    shape = ir.ArrayAttr.get([ir.IntegerAttr.get(i64, size) for size in (ROWS, COLUMNS, DEPTH)])
    return create("nvgpu.mma.sync", total.type, left, right, total, mmaShape=shape)


def number_of(fragment: Any, position: tuple[int, int]) -> Any:
    """One number of a fragment."""
    kind = fragment.type.element_type
    return create("vector.extract", kind, fragment, static_position=ir.DenseI64ArrayAttr.get(list(position)))
