"""Rewriting of relax operators by rules, to a fixed point with a bound."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.op import DialectOp, class_of
from mirlo.dialects.core.surgery import blocks, erase_dead, replace_op
from mirlo.dialects.core.types import TensorType
from mirlo.passes.apply_rules import AppliedRule, NoRule, RuleCall, apply_rules
from mirlo.passes.graph.constants import constant_name, constant_value, emit_constant, is_constant
from mirlo.passes.graph.dce import is_pure_relax
from mirlo.passes.rules import DEFAULT, RuleBook

if TYPE_CHECKING:
    from mirlo.passes.graph.requested_layouts import RequestedLayouts
    from mirlo.passes.session import Session

MAX_SWEEPS = 32


class Rewriter:
    """What a rule builds with: operators and constants, inserted before the operator that it rewrites."""

    def __init__(self, op: ir.Operation | ir.OpView, session: Session, given: RequestedLayouts | None = None):
        self.op = op
        self.session = session
        self.given = given
        """Data that the pass provides to its rules."""

    def emit(
        self, operator: type[DialectOp], *values: ir.Value | list[ir.Value] | None, **attributes: object
    ) -> ir.Value:
        """Emit an operator and return its result value."""
        with ir.InsertionPoint(self.op), self.op.location:
            result: ir.Value = operator.make(*values, **attributes)
            return result

    def emit_all(
        self, operator: type[DialectOp], *values: ir.Value | list[ir.Value] | None, **attributes: object
    ) -> list[ir.Value]:
        """Emit an operator of several results and return them."""
        with ir.InsertionPoint(self.op), self.op.location:
            return list(operator.make(*values, **attributes))

    def constant(self, array: np.ndarray, kind: TensorType, name: str = "constant") -> ir.Value:
        """Emit a constant."""
        with ir.InsertionPoint(self.op), self.op.location:
            return emit_constant(array, kind, self.session, name)

    def array(self, value: ir.Value) -> np.ndarray | None:
        """Return the array of a value that is a constant, else None."""
        return constant_value(value, self.session)

    def splat(self, value: ir.Value) -> float | None:
        """Return the value of a small splat constant, else None."""
        if not is_constant(value) or value.owner.opview.param is not None:
            return None
        array = self.array(value)
        if array is None or array.size == 0:
            return None
        first = array.reshape(-1)[0]
        return float(first) if (array == first).all() else None

    def name_of(self, value: ir.Value) -> str:
        return constant_name(value) if is_constant(value) else "constant"


def remade(op: ir.OpView, values: Iterable[ir.Value], b: Rewriter, **changed: object) -> ir.Value:
    """Emit an operator of one result again, with other operands in the order of the operation, and attributes."""
    cls = class_of(op)
    fields = cls._operand_layout
    flat = list(values)
    given = [fields.pick(field, op.operation, flat) for field in fields.fields]
    return b.emit(cls, *given, **{**op.attribute_values(), **changed})


def defining(value: ir.Value, name: str) -> ir.OpView | None:
    """Return the defining operation of a value if it is of this kind."""
    if isinstance(value, ir.OpResult) and value.owner.name == name:
        return value.owner.opview
    return None


def without_unit_dims(value: ir.Value) -> ir.Value:
    """Return the value behind reshapes that only insert or remove dims of 1."""
    while True:
        shaped = defining(value, "relax.reshape")
        if shaped is None or _larger(shaped.x) != _larger(value):
            return value
        value = shaped.x


def _larger(value: ir.Value) -> list[Dim]:
    return [dim for dim in kind_of(value).shape if dim != 1]


def beside(value: ir.Value, b: Rewriter) -> bool:
    """Return whether a value is defined in the block of the rewritten operator: work must not move into a loop."""
    return isinstance(value, ir.OpResult) and bool(value.owner.operation.block == b.op.operation.block)


def only_use(value: ir.Value) -> bool:
    """Return whether a value has exactly one use."""
    uses = iter(value.uses)
    return next(uses, None) is not None and next(uses, None) is None


def kind_of(value: ir.Value) -> TensorType:
    """Return the tensor type of a value."""
    result = TensorType.from_mlir(value.type)
    if result is None:
        raise TypeError(f"{value.type} is not a relax tensor")
    return result


def rewrite(
    function: ir.OpView | ir.Operation,
    book: RuleBook,
    session: Session,
    only: Iterable[str] | None = None,
    given: RequestedLayouts | None = None,
) -> int:
    """Apply the rules of a book to a function to a fixed point; return the number of rewrites."""
    covers = cache(book.covers if only is None else set(only).__contains__)
    total = 0
    for _ in range(MAX_SWEEPS):
        count = 0
        for block in reversed(blocks(function)):
            candidates = [op.operation for op in block.operations if covers(op.operation.name)]
            count += sum(_rewrite_op(op, book, session, given) for op in candidates)
            erase_dead(block, is_pure_relax)
        total += count
        if not count:
            break
    return total


def explain(function: ir.OpView, book: RuleBook, session: Session) -> None:
    """Record for each operator with rules in a book why none of them accepts."""
    for block in blocks(function):
        for op in [op.operation for op in block.operations if book.covers(op.operation.name)]:
            applied = _apply(op, book, session)
            if isinstance(applied, NoRule):
                reasons = "".join(f"\n  {attempt.rule.name}: {attempt.decline}" for attempt in applied.attempts)
                session.remark(f"'{op.name}' stays as it is{reasons}", op.location)
        erase_dead(block, is_pure_relax)


def _rewrite_op(op: ir.Operation, book: RuleBook, session: Session, given: RequestedLayouts | None) -> bool:
    if all(next(iter(r.uses), None) is None for r in op.results):
        return False
    applied = _apply(op, book, session, given)
    if isinstance(applied, NoRule):
        return False
    replace_op(op, applied.values)
    return True


def _apply(
    op: ir.Operation, book: RuleBook, session: Session, given: RequestedLayouts | None = None
) -> AppliedRule | NoRule:
    call = RuleCall((op.opview, Rewriter(op, session, given)))
    return apply_rules(op, book.candidates(op.name, (DEFAULT,)), lambda rule: call)
