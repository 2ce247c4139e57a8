"""Asynchronous copies from global to shared memory by single threads (`cp.async`)."""

from __future__ import annotations

from typing import Any

from mirlo.dialects.bindings import ir


def async_copy(source: ir.Value, at: ir.Value, target: Any, to: ir.Value, count: ir.Value, vector: int) -> None:
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
