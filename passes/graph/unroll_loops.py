"""The pass `unroll-loops`: loops over numbers that are known become their iterations.

    %2 = scf.for %i = 0 to 2 iter_args(%x = %0) { %w = relax.gather(%weights, %i), ... scf.yield %y }
becomes the operations of the iteration 0, on the slice 0 of the weights, then those of the iteration 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirlo.dialects.bindings import arith, ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.surgery import blocks, replace_op
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.core.value import integer_of
from mirlo.dialects.tir.specialize import rename_dims
from mirlo.passes.graph.constants import constant_value, emit_constant, is_available, is_constant, slice_reader
from mirlo.passes.locations import names_of
from mirlo.passes.registry import Pass, register_pass
from mirlo.passes.rules import Decline, decline
from mirlo.passes.session import PassDecision
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session

_BINDS = ("relax.bind_dims", "relax.match_dims")


@register_pass
@dataclass(frozen=True)
class UnrollLoops(Pass):
    """Replace counted loops of a graph by their iterations, in which slices of weights are constants of their own.

    Passes that divide a model by its weights, such as `shard`, see those of each iteration.
    """

    name = "unroll-loops"
    contained = True
    trusted = True

    def run(self, op: ir.OpView, session: Session) -> None:
        names = _SymbolNames(op)
        for block in blocks(op):
            for loop in [each.operation for each in block.operations if each.operation.name == "scf.for"]:
                reason = _unroll(loop, names, session)
                if reason is not None:
                    session.notes.append(PassDecision(self.name, reason, tuple(names_of(loop.location))))


class _SymbolNames:
    """The names of the sizes of a module, of which each stands for one size."""

    def __init__(self, module: ir.OpView) -> None:
        self._taken = set[str]()
        for block in blocks(module):
            values = [*block.arguments, *(result for op in block.operations for result in op.operation.results)]
            for value in values:
                kind = TensorType.from_mlir(value.type) if isinstance(value.type, ir.RankedTensorType) else None
                self._taken |= set() if kind is None else {name for dim in kind.shape for name in D.symbols_of(dim)}
            for op in block.operations:
                self._taken |= set(op.operation.opview.symbols) if op.operation.name in _BINDS else set()

    def new(self, name: str) -> str:
        """Return a name like another one that no size has."""
        base, number = name.rstrip("0123456789"), 0
        while f"{base}{number}" in self._taken:
            number += 1
        self._taken.add(f"{base}{number}")
        return f"{base}{number}"


def _unroll(loop: ir.Operation, names: _SymbolNames, session: Session) -> Decline | None:
    """Replace a loop by its iterations, or decline."""
    limits = [integer_of(value) for value in list(loop.operands)[:3]]
    body = loop.regions[0].blocks[0]
    *operations, last = [op.operation for op in body.operations]
    if any(limit is None for limit in limits):
        return decline("the number of iterations is known at run time only")
    inner = next((op.name for op in operations if len(op.regions)), None)
    if inner is not None:
        return decline("an operation with a body is in the body", operation=inner)
    values = list(loop.operands)[3:]
    counter, *carried = body.arguments
    for number in range(*(limit for limit in limits if limit is not None)):
        copies: dict[ir.Value, ir.Value] = dict(zip(carried, values, strict=True))
        renamed = {name: names.new(name) for op in operations if op.name in _BINDS for name in op.opview.symbols}
        with ir.InsertionPoint(loop):
            for op in operations:
                with op.location:
                    results = _iteration(op, counter, number, copies, renamed, session)
                copies.update(zip(op.results, results, strict=True))
        values = [copies.get(value, value) for value in last.operands]
    replace_op(loop, values)
    return None


def _iteration(
    op: ir.Operation, counter: ir.Value, number: int, copies: dict[ir.Value, ir.Value], renamed: dict[str, str],
    session: Session,
) -> list[ir.Value]:  # fmt: skip
    """Emit an operation of the body for one iteration; return its results."""
    if _is_number_of(op, counter):
        return [emit_constant(np.array(number), TensorType.of((), "i64"), session, "iteration")]
    operands = [copies.get(value, value) for value in op.operands]
    constant = _slice_of_constant(op, operands, session)
    if constant is not None:
        return [constant]
    if counter in operands:
        known = arith.ConstantOp(ir.IndexType.get(), number).result
        operands = [known if value == counter else value for value in operands]
    copy = op.clone().operation
    for i, value in enumerate(operands):
        copy.operands[i] = value
    rename_dims(copy, renamed)
    return list(copy.results)


def _is_number_of(op: ir.Operation, counter: ir.Value) -> bool:
    """Return whether an operation makes a tensor of the number of the iteration."""
    if op.name != "tensor.from_elements" or len(op.operands) != 1 or op.results[0].type.shape:
        return False
    source = op.operands[0]
    is_cast = isinstance(source, ir.OpResult) and source.owner.name == "arith.index_cast"
    return is_cast and source.owner.operands[0] == counter and op.results[0].type.element_type.width == 64


def _slice_of_constant(op: ir.Operation, operands: list[ir.Value], session: Session) -> ir.Value | None:
    """Emit the slice of a constant at a known position as a constant of its own; None for other operations."""
    if op.name != "relax.gather" or not all(map(is_constant, operands)) or not is_available(operands[0], session):
        return None
    source, position = operands
    param, at = source.owner.opview.param, constant_value(position, session)
    if param is None or at is None or at.ndim or op.opview.axis % len(source.type.shape):
        return None
    count, kind = source.type.shape[0], TensorType.from_mlir(op.results[0].type)
    assert kind is not None
    index = min(max(int(at) + count if at < 0 else int(at), 0), count - 1)
    return emit_constant(slice_reader(source, session)(index), kind, session, f"{param}.{index}")
