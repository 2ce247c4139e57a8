"""The fallback schedule: scalar loop nests. It applies to every prim function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.affine import read_map
from mirlo.dialects.tir.view import BlockView, OperandView
from mirlo.passes.rules import schedule
from mirlo.passes.schedule.buffers import BufferFunction
from mirlo.passes.schedule.loops import (
    all_inside,
    apply_map,
    attribute_constant,
    clone_body,
    every,
    load,
    nest,
    read_inside,
    store,
)

if TYPE_CHECKING:
    from mirlo.passes.schedule.kernel import Kernel, ScheduleContext


@schedule()
def scalar_nest(kernel: Kernel, context: ScheduleContext) -> ir.OpView:
    """Schedule loops in the order of the axes, one element at a time."""
    buffers = BufferFunction(kernel.view)

    def body() -> None:
        for block in kernel.view.blocks:
            emit_block(block, buffers)

    return buffers.build(body, {"rule": "scalar_nest"})


def emit_block(block: BlockView, buffers: BufferFunction) -> None:
    """Emit a block in tensor form as a loop nest."""
    outputs = [buffers.buffer(output.value) for output in block.outputs]
    _emit(block, [buffers.buffer(operand.value) for operand in block.inputs], outputs)


def emit_buffer_block(block: BlockView) -> None:
    """Emit a block over buffers as a loop nest."""
    _emit(block, [operand.value for operand in block.inputs], [output.value for output in block.outputs])


def _emit(block: BlockView, inputs: list[ir.Value], outputs: list[ir.Value]) -> None:
    nest([block.domain[i] for i in block.spatial], lambda spatial: emit_point(block, spatial, inputs, outputs))


def emit_point(block: BlockView, spatial: Sequence[ir.Value], inputs: list[ir.Value], outputs: list[ir.Value]) -> None:
    """Emit one element of each output, at these values of the spatial axes."""
    if not block.is_reduction:
        results = clone_body(block, _environment(block, spatial, inputs, ()))
    else:
        results = _reduce(block, spatial, inputs, [attribute_constant(a) for a in block.init])
    for value, output, buffer in zip(results, block.outputs, outputs, strict=True):
        where = _scatter(block, spatial)
        store(value, buffer, output.shape, apply_map(output.map, where))


def _scatter(block: BlockView, spatial: Sequence[ir.Value]) -> list[ir.Value]:
    """Return index values by axis position; the reduction axes of an output's map are not read."""
    if not spatial:
        return []
    at = dict(zip(block.spatial, spatial, strict=True))
    return [at.get(position, spatial[0]) for position in range(block.rank)]


def _reduce(
    block: BlockView, spatial: Sequence[ir.Value], inputs: list[ir.Value], start: list[ir.Value]
) -> list[ir.Value]:
    extents = [block.domain[i] for i in block.reduce]

    def element(done: list[ir.Value], *carried: ir.Value) -> list[ir.Value]:
        at = dict(zip((*block.spatial, *block.reduce), (*spatial, *done), strict=True))
        indices = [at[position] for position in range(block.rank)]
        return clone_body(block, _environment(block, indices, inputs, carried))

    return every(extents, element, start)


def _environment(
    block: BlockView, indices: Sequence[ir.Value], inputs: list[ir.Value], carried: Sequence[ir.Value]
) -> dict[ir.Value, ir.Value]:
    values = dict(zip(block.index_arguments, indices, strict=True))
    for argument, operand, buffer in zip(block.input_arguments, block.inputs, inputs, strict=True):
        values[argument] = buffer if operand.is_opaque else read_operand(operand, buffer, indices, block.domain)
    values.update(zip(block.accumulators, carried, strict=True))
    return values


def read_operand(
    operand: OperandView, buffer: ir.Value, indices: Sequence[ir.Value], domain: Sequence[Dim]
) -> ir.Value:
    """Emit the element of an operand at these values of the axes, or its value beyond the edges."""
    where = apply_map(operand.map, indices)
    if operand.outside is None:
        return load(buffer, operand.shape, where)
    inside = all_inside(where, operand.shape, [value.range(domain) for value in read_map(operand.map, domain)])
    if inside is None:
        return load(buffer, operand.shape, where)
    return read_inside(inside, lambda: load(buffer, operand.shape, where), operand.outside)
