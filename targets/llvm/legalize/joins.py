"""Concatenation and stacking of many operands on CPUs: contiguous ranges of elements, copied as vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.value import Value, index
from mirlo.dialects.relax.slice import Concat, Stack
from mirlo.dialects.tir.buffers import ALIGNMENT, element_bytes
from mirlo.dialects.tir.compute import INDEX, Expr, LoopBuilder, constant
from mirlo.dialects.tir.compute.emit import create
from mirlo.dialects.tir.compute.loops import Buffer
from mirlo.dialects.tir.compute.narrow import emit
from mirlo.passes.legalize.helpers import shape_of
from mirlo.passes.legalize.rules.slice import MAX_SELECT_OPERANDS
from mirlo.passes.rules import Decline, decline, legalize
from mirlo.passes.schedule.loops import for_loop, if_any
from mirlo.passes.schedule.vectors import flat
from mirlo.targets.llvm.schedule.vector_loops import VectorPart, cut_into_vectors

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder

MAX_OPERANDS = 64
"""Most operands that a kernel joins with a parallel loop for each: LLVM's time is quadratic, 20 s for 400."""
UNROLL = 4
"""Vectors that are loaded before the first of them is stored."""


@legalize("relax.concat", target="llvm", name="runs")
def concat(op: ir.OpView, b: LegalizeBuilder) -> ir.Value | Decline:
    """Copy the contiguous range of each operand, for one position before the axis after the other.

    Loops over scalars, which LLVM vectorizes, take it seconds where there are 20 operands of dynamic size.
    """
    output = shape_of(op.output)
    axis = op.axis % len(output)
    xs = [x for x in op.xs if shape_of(x)[axis] != 0]
    if len(xs) <= MAX_SELECT_OPERANDS or 0 in output:
        return decline("few operands are joined in a block that fuses", operands=len(xs))
    if len(xs) > MAX_OPERANDS and D.product(output[:axis]) == 1:
        return b.emit(Concat, [b.emit(Concat, group, axis=axis) for group in _groups(xs)], axis=axis)
    return _joined(b, xs, axis, output)


@legalize("relax.stack", target="llvm", name="runs")
def stack(op: ir.OpView, b: LegalizeBuilder) -> Decline | ir.Value:
    """Copy the contiguous range of each operand, as concatenation does."""
    output = shape_of(op.output)
    if len(op.xs) <= MAX_SELECT_OPERANDS or 0 in output:
        return decline("few operands are joined in a block that fuses", operands=len(op.xs))
    axis = op.axis % len(output)
    if len(op.xs) > MAX_OPERANDS and D.product(output[:axis]) == 1:
        return b.emit(Concat, [b.emit(Stack, group, axis=axis) for group in _groups(list(op.xs))], axis=axis)
    return _joined(b, list(op.xs), axis, output)


def _groups(xs: Sequence[ir.Value]) -> Iterator[Sequence[ir.Value]]:
    """Yield the operands of each kernel: kernels of the same number are shared."""
    for start in range(0, len(xs), MAX_OPERANDS):
        yield xs[start : start + MAX_OPERANDS]


def _joined(b: LegalizeBuilder, xs: Sequence[ir.Value], axis: int, output: tuple[Dim, ...]) -> ir.Value:
    rows, row = D.product(output[:axis]), D.product(output[axis:])
    runs = [D.product(shape_of(x)[axis:]) for x in xs]

    def body(loops: LoopBuilder, *buffers: Buffer) -> None:
        *sources, target = buffers
        into = flat(target.value)
        values = [flat(source.value) for source in sources]
        for (i,) in loops.nest((rows,), parallel=rows != 1):
            start: Dim = 0
            for value, run in zip(values, runs, strict=True):
                _copy(value, _position(i, run, 0), into, _position(i, row, start), run, parallel=rows == 1)
                start = start + run

    return b.call_loops(body, *xs)


def _position(row: Expr, stride: Dim, start: Dim) -> ir.Value:
    return emit(row * constant(stride, INDEX) + constant(start, INDEX))


def _copy(source: ir.Value, read: ir.Value, target: ir.Value, written: ir.Value, count: Dim, parallel: bool) -> None:
    """Copy contiguous elements, as many as vectors have that fill a cache line at a time."""
    element = source.type.element_type
    lanes = ALIGNMENT // element_bytes(element)
    for part in cut_into_vectors(count, lanes, UNROLL, masked=False):

        def copy(first: ir.Value, part: VectorPart = part) -> None:
            kind = ir.VectorType.get([part.lanes], element)
            starts = [Value(first) + u * part.lanes for u in range(part.unroll)]
            loaded = [create("vector.load", kind, source, at + read) for at in starts]
            for at, value in zip(starts, loaded, strict=True):
                ir.Operation.create("vector.store", operands=[value, target, at + written])

        if part.stop - part.start == part.step:
            copy(index(part.start))
        elif part.lanes < lanes:
            if_any(part.start, part.stop, copy)
        else:
            several, is_dynamic = part.unroll > 1, not isinstance(count, int)
            for_loop(part.start, part.stop, part.step, copy, parallel=parallel and several, rolled=is_dynamic)
