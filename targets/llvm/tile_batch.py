"""Pass `tile-batch`: a batch row by row, where the tensors of a whole batch leave the caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.op import class_of
from mirlo.dialects.core.traits import Trait, traits_of
from mirlo.passes.entry import is_model
from mirlo.passes.graph.row_loop import RowwiseOperation, RowwisePrefix, find_rowwise, loop_over_rows
from mirlo.passes.registry import Pass, option, register_pass
from mirlo.passes.rules import Decline, decline
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.options import find_machine
from mirlo.targets.llvm.schedule.cost import (
    BATCH_OF_SYMBOLS,
    LOOP_CYCLES,
    MAX_THREADS_OF_A_ROW,
    MIN_GAIN_OF_ROWS,
)

if TYPE_CHECKING:
    from mirlo.passes.session import Session


@register_pass
@dataclass(frozen=True)
class TileBatch(Pass):
    """Compute the rows of a batch one after the other, as far as the machine model expects that to be faster.

    The tensors between convolutions of a whole batch are read from memory where they exceed the caches. Those of one
    row stay there, and the arena is smaller by as much, but weights are read for each row. The first operators of the
    model go into a loop over the rows, up to the one with which the gain is largest; later operators, such as a product
    of a row with large weights, compute the whole batch. An operator that computes with several rows at once ends the
    loop.
    """

    name = "tile-batch"
    keeps_layers = True
    contained = True
    trusted = True
    anchor = "func.func"
    machine: str = option("", "machine whose caches are used; default: the one that is scheduled for")
    threads: int = option(1, "the number of threads")
    operators: int = option(-1, "the number of operators in the loop, 0 for none; -1: by the machine model")
    explain: bool = option(False, "print which operators are computed row by row, and why others are not")

    def run(self, op: ir.OpView, session: Session) -> None:
        if not is_model(op):
            return
        machine = find_machine(self.machine or session.options.get("machine"))
        outcome = self._tile(op, machine)
        if self.explain:
            session.remark(f"the batch is computed {outcome}", op.location)

    def _tile(self, function: ir.OpView, machine: Machine) -> str:
        prefix = find_rowwise(function)
        if isinstance(prefix, Decline):
            return f"as a whole: {prefix}"
        choice = self._choice(prefix, machine)
        if isinstance(choice, Decline):
            return f"as a whole: {choice}"
        loop_over_rows(prefix, choice)
        return f"row by row by {choice} operators, of {len(prefix.operations)} before '{prefix.end}'"

    def _choice(self, prefix: RowwisePrefix, machine: Machine) -> int | Decline:
        if self.operators < 0:
            if self.threads > MAX_THREADS_OF_A_ROW:
                return decline("one row keeps fewer threads busy", most=MAX_THREADS_OF_A_ROW)
            return choose_count(prefix, machine)
        if not 0 < self.operators <= len(prefix.operations):
            return decline(
                "no such number of operators compute rows", wanted=self.operators, most=len(prefix.operations)
            )
        return prefix.refusal(prefix.leaving()[self.operators - 1]) or self.operators


def choose_count(prefix: RowwisePrefix, machine: Machine) -> int | Decline:
    """Return how many operators, from the first one, a loop over the rows should have."""
    cache = machine.private_cache_bytes
    rows = prefix.batch if isinstance(prefix.batch, int) else BATCH_OF_SYMBOLS
    weights, gain, computing, best = 0, 0.0, 0.0, (0.0, 0)
    row_bytes: dict[ir.Value, int] = {}
    for count, (each, leaving) in enumerate(zip(prefix.operations, prefix.leaving(), strict=True), start=1):
        if not all(prefix.row(value).is_static for value in (*each.op.operands, *each.op.results)):
            break
        work = _work(prefix, each, machine)
        weights += work.weights
        computing += work.cycles
        if work.tensors <= cache < rows * work.tensors:
            gain += work.between / machine.memory_bytes_per_cycle - work.between / machine.l3_bytes_per_cycle
        rate = machine.l3_bytes_per_cycle if weights <= cache else machine.memory_bytes_per_cycle
        gain -= max(0.0, work.weights / rate - work.cycles) * (1 - 1 / rows)
        for value in leaving:
            if value not in row_bytes:
                row_bytes[value] = prefix.row(value).bytes
        copied = sum(map(row_bytes.__getitem__, leaving))
        total = gain - LOOP_CYCLES - copied / machine.memory_bytes_per_cycle
        if total >= best[0] and prefix.refusal(leaving) is None:  # with what is fused into the last kernel
            best = total, count
    saved, count = best
    if saved <= MIN_GAIN_OF_ROWS * computing:
        return decline(
            "weights that are read for each row cost what it saves", cycles=round(saved), of=round(computing)
        )
    return count


@dataclass(frozen=True)
class _Work:
    """The work of an operator for one row."""

    cycles: float
    """Cycles of its multiply-adds."""
    tensors: int
    """Bytes of a row of tensors that it reads and writes."""
    between: int
    """Those of tensors that are no arguments of the model: the operators in front of it have written them."""
    weights: int
    """Bytes that it reads for each row again."""


def _work(prefix: RowwisePrefix, each: RowwiseOperation, machine: Machine) -> _Work:
    """Return the work of a contraction; other operators are fused into these, and cost nothing."""
    if Trait.CONTRACTION not in traits_of(each.op):
        return _Work(0.0, 0, 0, 0)
    operands, results = ([prefix.row(value) for value in values] for values in (each.op.operands, each.op.results))
    flops = class_of(each.op).flops(operands, results, **each.op.opview.attribute_values())
    weights = sum(prefix.row(value).bytes for value in each.op.operands if value not in prefix.axes)
    tensors = sum(kind.bytes for kind in (*operands, *results)) - weights
    arguments = [value for value in each.op.operands if value in prefix.axes and not isinstance(value, ir.OpResult)]
    between = tensors - sum(prefix.row(value).bytes for value in arguments)
    per_cycle = 2 * machine.fma_per_cycle * machine.lanes(results[0].dtype.bytes)
    return _Work(flops / per_cycle, tensors, between, weights)
