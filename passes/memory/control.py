"""`scf.if`, `scf.for` and `scf.while` over buffers: tensors keep their memory, scalars are carried as before."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import attributes_of
from mirlo.passes.memory.function_builder import FunctionBuilder
from mirlo.passes.memory.timeline import TimelineBlock, TimelineStep, is_tensor


def emit(planned: FunctionBuilder, step: TimelineStep) -> None:
    """Emit the operation over buffers at the insertion point."""
    op = step.op
    if op.name != "scf.if":
        planned.emit_moves(step.start)
    results = [value for value in op.results if not is_tensor(value)]
    new_op = ir.Operation.create(
        op.name,
        results=[value.type for value in results],
        operands=[planned.scalars[value] for value in op.operands if not is_tensor(value)],
        attributes=attributes_of(op),
        regions=len(op.regions),
    )
    for region, body in zip(new_op.regions, step.bodies, strict=False):
        _emit_region(planned, region, body)
    planned.scalars.update(zip(results, new_op.results, strict=True))


def _emit_region(planned: FunctionBuilder, region: ir.Region, body: TimelineBlock) -> None:
    arguments = [value for value in body.arguments if not is_tensor(value)]
    block = region.blocks.append(*(value.type for value in arguments), arg_locs=None)
    planned.scalars.update(zip(arguments, block.arguments, strict=True))
    end = body.terminator
    with planned.inside(), ir.InsertionPoint(block):
        planned.emit_body(body)
        with end.location:
            planned.emit_moves(body.end)
            # The condition of a loop is the first operand of its terminator.
            scalars = [planned.scalars[value] for value in end.operands if not is_tensor(value)]
            ir.Operation.create(end.name, operands=scalars)
