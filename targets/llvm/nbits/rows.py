"""Rows as int8 codes with a scale for each block: a vector at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import compare, create
from mirlo.dialects.tir.compute import Buffer, LoopBuilder
from mirlo.passes.legalize.helpers import tensor_type
from mirlo.passes.rules import Decline, decline, legalize
from mirlo.passes.schedule.vectors import flat as flatten
from mirlo.targets.llvm.nbits import code as C
from mirlo.targets.llvm.nbits.layout import COLUMNS

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder

INFINITY = float("inf")


@legalize("relax.quantize_rows", target="llvm", name="vectors")
def quantize_rows(op: ir.OpView, b: LegalizeBuilder) -> ir.Value | Decline:
    """Quantize whole blocks, each of them in registers."""
    kind, block = tensor_type(op.x), op.block
    rows, depth = kind.shape
    if kind.dtype.name != "f32" or not isinstance(depth, int) or depth % block or block % COLUMNS:
        return decline("the rows are not whole blocks of vectors of f32", operand=str(kind), block=block)
    blocks = depth // block

    def body(loops: LoopBuilder, x: Buffer, codes: Buffer, scales: Buffer, sums: Buffer) -> None:
        flat = [flatten(buffer.value) for buffer in (x, codes, scales, sums)]
        count = C.index(rows)

        def one(row: ir.Value) -> None:
            C.loop(C.index(0), C.index(blocks), lambda k: _block(op, flat, row, k, count, depth, blocks))

        C.loop(C.index(0), count, one, parallel=True)

    return b.call_loops(body, op.x)


def _block(
    op: ir.OpView, flat: Sequence[ir.Value], row: ir.Value, k: ir.Value, count: ir.Value, depth: int, blocks: int
) -> None:
    x, codes, scales, sums = flat
    block, digits = op.block, op.digits
    at = C.add(C.times(row, C.index(depth)), C.times(k, C.index(block)))
    parts = [C.load_vector(x, C.offset(at, i), COLUMNS) for i in range(0, block, COLUMNS)]
    sizes = [create("math.absf", part.type, part) for part in parts]
    largest = sizes[0]
    for size in sizes[1:]:
        largest = C.both("maximumf", largest, size)
    top = create("vector.reduction", C.f32(), largest, kind=ir.Attribute.parse("#vector.kind<maximumf>"))
    unit = float(127 * 256 ** (digits - 1))
    place = C.add(C.times(k, count), row)
    _store(C.both("divf", top, _float(unit)), scales, place)
    is_finite = C.both("andi", compare("lt", top, INFINITY), compare("gt", top, 0.0))
    inverse = C.splat(C.both("divf", _float(unit), top))
    finite = create("vector.broadcast", C.vector(C.integer(1)), is_finite)
    zero = C.constant(0.0, C.f32())
    totals: list[ir.Value | None] = [None] * digits
    for i, part in enumerate(parts):
        whole = create("math.roundeven", part.type, C.both("mulf", part, inverse))
        rest = create("arith.fptosi", C.vector(C.integer(32)), create("arith.select", zero.type, finite, whole, zero))
        for digit in range(digits):
            low = rest
            if digit < digits - 1:
                shift = C.constant(24, C.integer(32))
                low = C.both("shrsi", C.both("shli", rest, shift), shift)
                rest = C.both("shrsi", C.both("subi", rest, low), C.constant(8, C.integer(32)))
            narrow = create("arith.trunci", C.vector(C.integer(8)), low)
            plane = C.times(count, C.index(digit * blocks * block))
            to = C.add(C.add(plane, C.times(place, C.index(block))), C.index(i * COLUMNS))
            C.store_vector(narrow, codes, to)
            before = totals[digit]
            totals[digit] = low if before is None else C.add(before, low)
    for digit, total in enumerate(totals):
        assert total is not None
        summed = create("vector.reduction", C.integer(32), total, kind=ir.Attribute.parse("#vector.kind<add>"))
        scaled = C.times(summed, C.number(op.offset))
        _store(scaled, sums, C.add(C.times(count, C.index(digit * blocks)), place))


def _float(value: float) -> ir.Value:
    return create("arith.constant", C.f32(), value=ir.FloatAttr.get(C.f32(), value))


def _store(value: ir.Value, buffer: ir.Value, position: ir.Value) -> None:
    ir.Operation.create("memref.store", operands=[value, buffer, position])
