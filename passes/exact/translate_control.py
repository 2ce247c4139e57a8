"""Translations of `scf`: loops and branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.buffers import PARALLEL
from mirlo.passes.exact.operations import operations_in
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.translate_sums import emit_sums
from mirlo.passes.exact.translator import KernelTranslator, translates
from mirlo.passes.exact.values import INDEX_BITS, FloatValue, IntValue, Number

LONG = 1 << 22
"""The operations that a loop of a kernel executes from which its sums are no calls."""


@translates("scf.for")
def loop(t: KernelTranslator, op: ir.Operation) -> None:
    lower, upper, step = (t.ints(value) for value in list(op.operands)[:3])
    start = [t.number(value) for value in list(op.operands)[3:]]
    if lower.bits != INDEX_BITS:
        raise OutsideError("a loop over integers that are no indices")
    if PARALLEL not in op.attributes:
        sums = emit_sums(t, op, lower, upper, step, [value for value in start if isinstance(value, FloatValue)])
        if sums is not None:
            t.set(op, *sums)
            return
    block = op.regions[0].blocks[0]

    def body(index: IntValue, carried: list[Number]) -> Sequence[Number]:
        for argument, value in zip(block.arguments, [index, *carried], strict=True):
            t.values[argument] = value
        return t.emit_block(block)

    is_inline = t.f.is_inline
    if start and _is_long(t, op, t.iterations(lower, upper, step)):
        t.f.is_inline = t.f.module.has_inline_loops = True
    t.set(op, *t.loop(lower, upper, step, start, body, PARALLEL in op.attributes))
    t.f.is_inline = is_inline


def _is_long(t: KernelTranslator, op: ir.Operation, iterations: IntValue) -> bool:
    """Return whether an innermost loop runs for longer than its fast code takes to compile."""
    operations = list(operations_in(op))
    if iterations.constant is None or any(each.name in ("scf.for", "scf.while") for each in operations):
        return False
    return t.runs * iterations.constant * len(operations) >= LONG


@translates("scf.while")
def while_loop(t: KernelTranslator, op: ir.Operation) -> None:
    if len(op.operands) or len(op.results):
        raise OutsideError("a loop with a condition that carries values")
    before, after = (region.blocks[0] for region in op.regions)

    def condition() -> IntValue:
        *operations, terminator = before.operations
        for each in operations:
            t.emit(each.operation)
        return t.ints(terminator.operation.operands[0])

    t.loop_while(condition, lambda: t.emit_block(after))


@translates("scf.if")
def branch(t: KernelTranslator, op: ir.Operation) -> None:
    def emitter(region: ir.Region) -> Callable[[], Sequence[Number]]:
        return lambda: t.emit_block(region.blocks[0]) if len(region.blocks) else []

    then, otherwise = op.regions
    t.set(op, *t.branch(t.ints(op.operands[0]), emitter(then), emitter(otherwise)))
