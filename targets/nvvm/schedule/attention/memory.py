"""Fragments of attention operands, read from shared memory."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import Value, inline_asm
from mirlo.dialects.tir.compute.emit import create
from mirlo.targets.gpu.schedule.contraction.staging import SharedMatrix
from mirlo.targets.gpu.schedule.launch import split
from mirlo.targets.nvvm.schedule.fragments import Lane, Registers, format_of_matrix, registers


class RhsReader:
    """Reads the rhs operand from shared memory: pairs of fragments at given distances."""

    def __init__(self, lane: Lane, matrix: SharedMatrix, lines: int, steps: int):
        self.matrix = matrix
        other, along, own = split(lane.number, [2, 2, 8])
        line, step = other * lines, along * 8
        step = step + other * steps if steps else step
        # All fragment addresses differ from this one by constants, which should not take registers.
        self.base = rematerialize(matrix.place(line + own, step) if matrix.along_k else matrix.place(line, step + own))

    def read(self, line: int, step: int, pair: bool) -> list[Registers]:
        """Return the fragments at a position, two or only the first."""
        matrix = self.matrix
        outer, inner = (line, step) if matrix.along_k else (step, line)
        place = self.base + (outer * matrix.pitch + inner)
        tiles = 4 if pair else 2
        kind = ir.VectorType.get([tiles, 2], matrix.memory.type.element_type)
        count = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), tiles)
        transposed = ir.BoolAttr.get(not matrix.along_k)
        op = create("nvgpu.ldmatrix", kind, matrix.memory, place, numTiles=count, transpose=transposed)
        form = format_of_matrix(matrix)
        values = registers(form, op).values
        return [Registers(form, values[at : at + 2]) for at in range(0, tiles, 2)]


def rematerialize(value: ir.Value) -> Value:
    """Return an index that the back end treats as new each time, so that derived values are not kept in registers."""
    i64 = ir.IntegerType.get_signless(64)
    integer = create("arith.index_cast", i64, value)
    moved = inline_asm("mov.b64 $0, $1;", "=l,l", i64, integer, has_side_effects=True)
    return create("arith.index_cast", ir.IndexType.get(), moved)
