"""Fragments: the part of a matrix unit's operands and results that each thread of a warp has in registers."""

from __future__ import annotations

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core.value import Value, index
from mirlo.dialects.tir.compute.emit import create
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.contraction.staging import SharedMatrix
from mirlo.targets.gpu.schedule.launch import WARP, split
from mirlo.targets.gpu.schedule.vectors import element_at
from mirlo.targets.nvvm.schedule.units import BF16, COLUMNS, EDGE, F16, ROWS, TF32, Format

PAIR = 2
"""Adjacent elements of the result that a thread holds."""


@dataclass(frozen=True)
class Registers:
    """A thread's fragment of an operand."""

    form: Format
    values: tuple[ir.Value, ...]


@dataclass(frozen=True)
class Lane:
    """A thread of a warp, and its part of fragments: four threads share a row of the result."""

    number: Value
    group: Value
    member: Value

    @staticmethod
    def of(number: Value) -> Lane:
        """Return the thread with this number in its warp."""
        group, member = split(number, [WARP // 4, 4])
        return Lane(number, group, member)

    def load_lhs(self, matrix: SharedMatrix, row: Value, step: Value) -> Value:
        """Load its part of 16 rows of the lhs for one product: four quarters, the lower one first."""
        if matrix.form.bytes == 4 and not matrix.along_k:
            return self._singly(matrix, row, step, [(0, 0), (EDGE, 0), (0, 4), (EDGE, 4)])
        along, down, line = split(self.number, [2, 2, EDGE])
        return self._read(matrix, row, step, down * EDGE, along, line, tiles=4)

    def load_rhs(self, matrix: SharedMatrix, column: Value, step: Value) -> Value:
        """Load its part of 8 columns of the rhs for one product: two halves."""
        if matrix.form.bytes == 4 and not matrix.along_k:
            return self._singly(matrix, column, step, [(0, 0), (0, 4)])
        # Only the addresses of the first 16 threads are used.
        _, along, line = split(self.number, [2, 2, EDGE])
        return self._read(matrix, column, step, index(0), along, line, tiles=2)

    @staticmethod
    def _read(
        matrix: SharedMatrix, line: Value, step: Value, down: Value, along: Value, own: Value, tiles: int
    ) -> Value:
        """Load 8 x 16-byte squares; each of 8 threads passes the address of one contiguous row."""
        line, step = line + down, step + along * matrix.form.vector
        place = matrix.place(line + own, step) if matrix.along_k else matrix.place(line, step + own)
        kind = ir.VectorType.get([tiles, format_of_matrix(matrix).pair], matrix.memory.type.element_type)
        count = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), tiles)
        transposed = ir.BoolAttr.get(not matrix.along_k)
        return create("nvgpu.ldmatrix", kind, matrix.memory, place, numTiles=count, transpose=transposed)

    def _singly(self, matrix: SharedMatrix, line: Value, step: Value, corners: list[tuple[int, int]]) -> Value:
        """Load 4-byte elements that are contiguous along lines: squares of 8 lines by 4 K elements."""
        line, step = line + self.group, step + self.member
        places = [matrix.place(line + down, step + along) for down, along in corners]
        numbers = [memref.LoadOp(matrix.memory, [place]).result for place in places]
        return create("vector.from_elements", ir.VectorType.get([len(corners), 1], numbers[0].type), *numbers)

    def result_positions(self) -> list[tuple[Value, Value, tuple[int, int]]]:
        """Return row, column and fragment position of its four result elements, relative to the tile."""
        positions: list[tuple[Value, Value, tuple[int, int]]] = []
        for i in range(2):
            row = self.group + i * (ROWS // 2)
            for j in range(PAIR):
                positions.append((row, self.member * PAIR + j, (i, j)))
        return positions


def registers(form: Format, fragment: Value) -> Registers:
    """Convert a fragment from shared memory to operand registers; f32 is rounded to tf32."""
    i32 = ir.IntegerType.get_signless(32)
    count, _ = fragment.type.shape
    if form is TF32:
        rounding = ir.Attribute.parse("#nvvm.fp_rnd_mode<rna>")
        numbers = [element_at(fragment, i, 0) for i in range(count)]
        return Registers(form, tuple(create("nvvm.convert.float.to.tf32", i32, n, rnd=rounding) for n in numbers))
    if form is F16:
        return Registers(form, tuple(element_at(fragment, i) for i in range(count)))
    words = create("vector.bitcast", ir.VectorType.get([count, 1], i32), fragment)
    return Registers(form, tuple(element_at(words, i, 0) for i in range(count)))


def multiply_add(left: Registers, right: Registers, total: ir.Value) -> Value:
    """Compute lhs * rhs + total on the matrix unit."""
    kind = total.type.element_type
    sums = [element_at(total, i, j) for i in range(2) for j in range(PAIR)]
    attributes = {
        "layoutA": ir.Attribute.parse("#nvvm.mma_layout<row>"),
        "layoutB": ir.Attribute.parse("#nvvm.mma_layout<col>"),
        "multiplicandAPtxType": ir.Attribute.parse(f"#nvvm.mma_type<{left.form.name}>"),
        "multiplicandBPtxType": ir.Attribute.parse(f"#nvvm.mma_type<{right.form.name}>"),
        "shape": ir.Attribute.parse(f"#nvvm.shape<m = {ROWS}, n = {COLUMNS}, k = {left.form.depth}>"),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(left.values), len(right.values), len(sums)]),
    }
    if left.form.sums == "i32":
        attributes["intOverflowBehavior"] = ir.Attribute.parse("#nvvm.mma_int_overflow<wrapped>")
    struct = ir.Type.parse(f"!llvm.struct<({', '.join([str(kind)] * len(sums))})>")
    op = create("nvvm.mma.sync", struct, *left.values, *right.values, *sums, **attributes)
    numbers = [create("llvm.extractvalue", kind, op, position=ir.DenseI64ArrayAttr.get([i])) for i in range(len(sums))]
    return create("vector.from_elements", total.type, *numbers)


def product(left: Value, right: Value, total: ir.Value) -> Value:
    """Compute lhs * rhs + total of f16 or bf16 fragments."""
    form = F16 if isinstance(left.type.element_type, ir.F16Type) else BF16
    return multiply_add(registers(form, left), registers(form, right), total)


def format_of_matrix(matrix: SharedMatrix) -> Format:
    """Return the format of a matrix unit in which an operand is kept."""
    assert isinstance(matrix.form, Format)
    return matrix.form
