"""Translations of `scf`: loops and branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.buffers import PARALLEL
from mirlo.passes.exact.operations import operations_in
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.translator import KernelTranslator, translates
from mirlo.passes.exact.values import INDEX_BITS, IntValue, Number


@translates("scf.for")
def loop(t: KernelTranslator, op: ir.Operation) -> None:
    lower, upper, step = (t.ints(value) for value in list(op.operands)[:3])
    start = [t.number(value) for value in list(op.operands)[3:]]
    if lower.bits != INDEX_BITS:
        raise OutsideError("a loop over integers that are no indices")
    block = op.regions[0].blocks[0]

    def body(index: IntValue, carried: list[Number]) -> Sequence[Number]:
        for argument, value in zip(block.arguments, [index, *carried], strict=True):
            t.values[argument] = value
        return t.emit_block(block)

    is_inline = t.f.is_inline
    t.f.is_inline = is_inline or (t.f.module.inlines_sums and bool(start) and _is_innermost(op))
    t.set(op, *t.loop(lower, upper, step, start, body, PARALLEL in op.attributes))
    t.f.is_inline = is_inline


def _is_innermost(op: ir.Operation) -> bool:
    return not any(each.name in ("scf.for", "scf.while") for each in operations_in(op))


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
