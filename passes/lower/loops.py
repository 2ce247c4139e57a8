"""The pass `lower-loops`: lowers tir's loops, blocks over buffers and external calls to upstream operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir, scf
from mirlo.dialects.core.surgery import enclosing, erase_op
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.value import index, integer_of
from mirlo.dialects.tir.view import BlockView
from mirlo.passes.lower.calls import CALL, find, find_all, lower_found_calls
from mirlo.passes.registry import Pass, PassError, register_pass
from mirlo.passes.schedule.loops import PARALLEL
from mirlo.passes.schedule.primitives.emit import emit_buffer_block
from mirlo.passes.schedule.primitives.loops import MAX_UNROLL
from mirlo.passes.upstream import run_unverified
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session

ALLOCA = "memref.alloca"


@register_pass
@dataclass(frozen=True)
class LowerLoops(Pass):
    """Lower `tir.for` to `scf.for`, `tir.block` over buffers to loops, `tir.call_extern` to calls.

    A parallel loop keeps the attribute `tir.parallel`; an unrolled one is repeated; a vectorized one is left to
    LLVM's vectorizer. A loop bound to a hardware axis is an error, and so is shared memory of a thread block: this
    pass is for targets that have neither.
    """

    name = "lower-loops"
    contained = True
    trusted = True

    def run(self, op: ir.OpView, session: Session) -> None:
        unrolled = False
        by_name = find_all(op, "tir.block", "tir.for", CALL, ALLOCA)
        blocks = [block for block in by_name["tir.block"] if not len(block.results)]
        for block in blocks:
            _lower_block(block)
        if blocks or by_name["tir.for"]:
            # Inner loops first: an outer one that is unrolled repeats what they have become.
            for loop in reversed(find(op, "tir.for")):
                unrolled |= _lower_for(loop)
            by_name = find_all(op, CALL, ALLOCA)
        lower_found_calls(op, by_name[CALL])
        for buffer in by_name[ALLOCA]:
            space = buffer.results[0].type.memory_space
            if space is not None:
                function = symbol_name(enclosing(buffer, "func.func"))
                raise PassError(
                    f"'@{function}': the buffer is in memory {space}, which the code around it does not have: 'shared' "
                    "needs loops that are bound to threads of a GPU; elsewhere the scopes are 'local', the stack, and "
                    "'' for main memory",
                    buffer.location,
                )
        if unrolled:
            run_unverified("builtin.module(canonicalize)", op.operation)


def _lower_block(op: ir.Operation) -> None:
    with ir.InsertionPoint(op), op.location:
        emit_buffer_block(BlockView(op))
    erase_op(op)


def _lower_for(op: ir.Operation) -> bool:
    """Replace one loop; return whether it was unrolled."""
    view = op.opview
    if view.kind == "bound":
        raise PassError(f"the loop is bound to '{view.thread}', which this target does not have", op.location)
    with ir.InsertionPoint(op), op.location:
        loop = scf.ForOp(view.lower, view.upper, index(1))
        body = op.regions[0].blocks[0]
        body.arguments[0].replace_all_uses_with(loop.induction_variable)
        for inner in [o.operation for o in body.operations]:
            if inner.name == "tir.yield":
                inner.erase()
            else:
                loop.body.append(inner)
        with ir.InsertionPoint(loop.body):
            scf.YieldOp([])
    if view.kind == "parallel":
        loop.operation.attributes[PARALLEL] = ir.UnitAttr.get()
    unroll = view.kind == "unrolled"
    if unroll:
        _unroll(loop, view)
    erase_op(op)
    return bool(unroll)


def _unroll(loop: ir.OpView, view: ir.OpView) -> None:
    """Copy the loop once per iteration, with a trip count of one; folding leaves the bodies."""
    low, high = integer_of(view.lower), integer_of(view.upper)
    if low is None or high is None:
        raise PassError("an unrolled loop needs bounds that are constants", loop.operation.location)
    if high - low > MAX_UNROLL:
        raise PassError(
            f"unrolling {high - low} iterations would explode: at most {MAX_UNROLL}", loop.operation.location
        )
    for i in range(low, high):
        with ir.InsertionPoint(loop), loop.operation.location:
            copy = loop.operation.clone()
            copy.operands[0] = index(i)
            copy.operands[1] = index(i + 1)
    loop.operation.erase()
