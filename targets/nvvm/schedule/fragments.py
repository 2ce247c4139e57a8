"""Fragments: what each thread of a warp holds of the matrices that a matrix unit multiplies, 16 x 8 x 16 in 16 bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.loops import index
from mirlo.targets.gpu.schedule.launch import add, multiply, split

ROWS, COLUMNS, DEPTH = 16, 8, 16
"""Of one product."""
WARP = 32
EDGE = 8
"""Of the squares that are read from shared memory together."""
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


def pitch_of(lines: int, depth: int, along_sums: bool) -> int:
    """See `SharedMatrix.pitch`."""
    return (depth if along_sums else lines) + 8


def size_of(lines: int, depth: int, along_sums: bool) -> int:
    """Numbers of shared memory that a matrix takes."""
    return (lines if along_sums else depth) * pitch_of(lines, depth, along_sums)


@dataclass(frozen=True)
class Lane:
    """A thread of a warp, and its part of fragments: four threads share a row of the result."""

    number: Any
    group: Any
    member: Any

    @staticmethod
    def of(number: Any) -> Lane:
        """The thread of this number in its warp."""
        group, member = split(number, [WARP // 4, 4])
        return Lane(number, group, member)

    def left(self, matrix: SharedMatrix, row: Any, step: Any) -> Any:
        """Its part of 16 rows and 16 steps of the first factor: four quarters, the lower one before the next steps."""
        along, down, line = split(self.number, [2, 2, EDGE])
        return self._read(matrix, row, step, multiply(down, EDGE), multiply(along, EDGE), line, tiles=4)

    def right(self, matrix: SharedMatrix, column: Any, step: Any) -> Any:
        """Its part of 16 steps and 8 columns of the second factor: two halves."""
        # Only the first 16 threads say where to read; what the others say is not looked at.
        _, along, line = split(self.number, [2, 2, EDGE])
        return self._read(matrix, column, step, index(0), multiply(along, EDGE), line, tiles=2)

    @staticmethod
    def _read(matrix: SharedMatrix, line: Any, step: Any, down: Any, along: Any, own: Any, tiles: int) -> Any:
        """Squares of 8 x 8: each of 8 threads names a row of one, that lies side by side in memory."""
        line, step = add(line, down), add(step, along)
        place = matrix.place(add(line, own), step) if matrix.along_sums else matrix.place(line, add(step, own))
        kind = ir.VectorType.get([tiles, PAIR], matrix.memory.type.element_type)
        count = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), tiles)
        turned = ir.BoolAttr.get(not matrix.along_sums)
        return create("nvgpu.ldmatrix", kind, matrix.memory, place, numTiles=count, transpose=turned)

    def places(self) -> list[tuple[Any, Any, tuple[int, int]]]:
        """Row, column and position in the fragment of its four numbers of the result, relative to the tile."""
        found = []
        for i in range(2):
            row = add(self.group, i * (ROWS // 2))
            for j in range(PAIR):
                found.append((row, add(multiply(self.member, PAIR), j), (i, j)))
        return found


def product(left: Any, right: Any, total: Any) -> Any:
    """left · right + total, by the matrix unit."""
    i64 = ir.IntegerType.get_signless(64)
    shape = ir.ArrayAttr.get([ir.IntegerAttr.get(i64, size) for size in (ROWS, COLUMNS, DEPTH)])
    return create("nvgpu.mma.sync", total.type, left, right, total, mmaShape=shape)


def number_of(fragment: Any, position: tuple[int, int]) -> Any:
    """One number of a fragment."""
    kind = fragment.type.element_type
    return create("vector.extract", kind, fragment, static_position=ir.DenseI64ArrayAttr.get(list(position)))
