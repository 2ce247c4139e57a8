"""Vectorized accesses of consecutive points of a thread.

LLVM combines adjacent accesses too, but its address arithmetic sometimes hides that they are adjacent.
"""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.tir.compute.emit import create
from mirlo.dialects.tir.view import OperandView
from mirlo.passes.schedule.blocks.evaluate import Iteration
from mirlo.passes.schedule.blocks.space import BlockInstance
from mirlo.passes.schedule.vectors import elements_of
from mirlo.targets.gpu.schedule.vectors import is_aligned, load_vector, store_vector


def load_vectors(points: Sequence[Iteration], instances: Sequence[BlockInstance], axis: int) -> None:
    """Load what bodies read for consecutive points along a loop, the first at a multiple of their number."""
    for instance in instances:
        for argument, operand in instance.argument_operands.items():
            if argument in instance.needed and _is_read(points, instance, argument, operand):
                _load(points, instance, argument, operand, axis)


def store_vectors(
    points: Sequence[Iteration], instance: BlockInstance, output: OperandView, value: ir.Value, axis: int
) -> None:
    """Store an output of such points, of which `value` is the body's value."""
    slot = points[0].frame.slot(output.value)
    where = instance.flat(output, slot.strides)
    values = [point.find(value) for point in points]
    if len(points) == 1 or not is_aligned(where, axis, len(points)):
        for point, result in zip(points, values, strict=True):
            point.store(instance, output, result)
        return
    vector = create("vector.from_elements", ir.VectorType.get([len(points)], values[0].type), *values)
    store_vector(vector, slot.buffer, points[0].first(where))


def _is_read(points: Sequence[Iteration], instance: BlockInstance, argument: ir.Value, operand: OperandView) -> bool:
    """Return whether each of the points reads an existing element of memory."""
    frame = points[0].frame
    if operand.map is None or operand.value in frame.held or operand.value in frame.made:
        return False
    if operand.value in frame.reduced or any(point.find(argument) is not None for point in points):
        return False
    return not instance.outside_tests(operand) and not instance.always_outside(operand)


def _load(
    points: Sequence[Iteration], instance: BlockInstance, argument: ir.Value, operand: OperandView, axis: int
) -> None:
    slot = points[0].frame.slot(operand.value)
    where = instance.flat(operand, slot.strides)
    count = len(points)
    if count > 1 and is_aligned(where, axis, count):
        vector = load_vector(slot.buffer, points[0].first(where), count)
        for point, value in zip(points, elements_of(vector), strict=True):
            point.values[argument] = value
        return
    for point in points:
        point.values[argument] = memref.LoadOp(slot.buffer, [point.first(where)]).result
