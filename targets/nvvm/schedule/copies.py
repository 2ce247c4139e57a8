"""Asynchronous copies from global to shared memory by single threads (`cp.async`), several k-steps ahead."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import Value, index
from mirlo.targets.gpu.schedule.contraction.tiled import Multiply, Operands
from mirlo.targets.gpu.schedule.launch import barrier


def async_copy(source: ir.Value, at: ir.Value, target: ir.Value, to: ir.Value, count: ir.Value, vector: int) -> None:
    """Start the copy of a vector to shared memory; `count` elements are read, the others are zero."""
    ir.Operation.create(
        "nvgpu.device_async_copy",
        results=[ir.Type.parse("!nvgpu.device.async.token")],
        operands=[target, to, source, at, count],
        attributes={
            "dstElements": ir.IntegerAttr.get(ir.IndexType.get(), vector), "bypassL1": ir.UnitAttr.get(),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1, 1, 1, 1]),
        },
    )  # fmt: skip


def commit() -> None:
    """Commit the copies started so far as a group."""
    ir.Operation.create("nvvm.cp.async.commit.group")


def wait(under_way: int = 0) -> None:
    """Wait until at most this many groups of copies are in flight."""
    count = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), under_way)
    ir.Operation.create("nvvm.cp.async.wait.group", attributes={"n": count})


def asynchronously(operands: Operands, multiply: Multiply, sums: list[ir.Value], stages: int) -> list[ir.Value]:
    """Copy k-steps to pipeline stages while those that have arrived are multiplied."""
    operands.grow(stages)

    def copy(first: Value, stage: Value) -> None:
        for load in operands.loads:
            assert load.copy is not None
            load.copy(first, stage)
        commit()

    def one(first: Value, *held: ir.Value) -> list[ir.Value]:
        wait(stages - 2)
        # From here on all threads see this stage, and none reads the previous one.
        barrier()
        copy(first + (stages - 1) * operands.steps, operands.stage(first, stages, later=stages - 1))
        return operands.multiplied(multiply, operands.stage(first, stages), held)

    for stage in range(stages - 1):
        copy(index(stage * operands.steps), index(stage))
    sums = operands.each_round(one, sums)
    wait(0)
    return sums
