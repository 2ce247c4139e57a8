"""Rewriting of relax operators by rules, to a fixed point with a bound, and the pass `simplify`, which does that."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.installed import ModuleIndex
from mirlo.dialects.core.op import DialectOp, class_of
from mirlo.dialects.core.surgery import blocks, erase_dead, erase_op, is_dead
from mirlo.dialects.core.types import TensorType
from mirlo.passes.apply_rules import RULE_WATCH, AppliedRule, NoRule, RuleCall, apply_rules
from mirlo.passes.byoc.graph import BlockGraph, BlockValue, OperandGraph
from mirlo.passes.graph.constants import constant_name, constant_value, emit_constant, is_constant
from mirlo.passes.graph.dce import is_pure_relax
from mirlo.passes.registry import Pass, option, register_pass
from mirlo.passes.rules import COMBINE, DEFAULT, LAYOUT, RECOGNIZE, SIMPLIFY, Decline, NoMatch, Rule, RuleBook
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.byoc.search import Match
    from mirlo.passes.graph.requested_layouts import RequestedLayouts
    from mirlo.passes.session import Session


MAX_SWEEPS = 32
_RULES = ModuleIndex("mirlo.passes.graph.rules")
for _book in (RECOGNIZE, SIMPLIFY, COMBINE, LAYOUT):
    _book.defer(_RULES)


Operand = ir.Value | BlockValue | Sequence[ir.Value | BlockValue] | None
"""An operand of an operator that a rule emits: a value, one of a match, or a list for a variadic one."""


class Rewriter:
    """The builder of rules: it inserts operators and constants, by default before the operator that a rule rewrites."""

    def __init__(
        self,
        op: ir.Operation | ir.OpView,
        session: Session,
        layouts: RequestedLayouts | None = None,
        at: ir.InsertionPoint | None = None,
    ):
        self.op = op
        self.session = session
        self.given = layouts
        """Data that the pass provides to its rules."""
        self.at = at if at is not None else ir.InsertionPoint(op)
        self.emitted: list[ir.Operation] = []
        """The operators emitted so far: they may read the value that they replace."""
        self.has_emitted = False
        """Whether an operator or a constant was emitted, also by a rule that declined then."""
        self.explains = False
        """Whether patterns report why they do not match."""

    def emit(self, operator: type[DialectOp], *values: Operand, **attributes: object) -> ir.Value:
        """Emit an operator and return its result value."""
        return self._emit(operator, values, attributes)[0]

    def emit_all(self, operator: type[DialectOp], *values: Operand, **attributes: object) -> list[ir.Value]:
        """Emit an operator of several results and return them."""
        return self._emit(operator, values, attributes)

    def _emit(self, operator: type[DialectOp], values: Iterable[Operand], attributes: dict[str, Any]) -> list[ir.Value]:
        with self.at, self.op.location:
            emitted = operator.build(*map(plain_value, values), **attributes).operation
        self.has_emitted = True
        self.emitted.append(emitted)
        return list(emitted.results)

    def constant(self, array: np.ndarray, kind: TensorType, name: str = "constant") -> ir.Value:
        """Emit a constant."""
        self.has_emitted = True
        with self.at, self.op.location:
            return emit_constant(array, kind, self.session, name)

    @cached_property
    def operand_graph(self) -> OperandGraph:
        """Return the operator and what it is computed from as a graph, for patterns."""
        return OperandGraph(self.op.operation.block, self.session)

    def block_graph(self) -> BlockGraph:
        """Return the block of the operator as a graph, for patterns of several outputs."""
        return BlockGraph(self.op.operation.block, self.session)

    def forget_block_graph(self) -> None:
        """Drop a stored graph of the block, which has changed; nothing is stored by default."""

    def gather(self, match: Match) -> None:
        """Prepare the replacement of several outputs of a match: their readers come after all of its operators."""
        raise NotImplementedError("patterns of several outputs are rewritten by the pass 'rewrite'")

    def array(self, value: ir.Value) -> np.ndarray | None:
        """Return the array of a value that is a constant, else None."""
        return constant_value(value, self.session)

    def splat(self, value: ir.Value) -> float | None:
        """Return the value of a small splat constant, else None."""
        if not is_constant(value):
            return None
        constant = value.owner.opview
        if constant.param is not None:
            return None
        known = _SPLATS.setdefault(value.context, {})
        address = hash(constant.value)
        if address not in known:
            known[address] = _splat_of(self.array(value))
        return known[address]

    def name_of(self, value: ir.Value) -> str:
        return constant_name(value) if is_constant(value) else "constant"


_SPLATS: WeakKeyDictionary[ir.Context, dict[int, float | None]] = WeakKeyDictionary()
"""What all elements of the constants of each context equal, by the addresses of their attributes (`core/types.py`).

Rules ask for those of one constant dozens of times, and a layer's constants are those of other layers."""


def _splat_of(array: np.ndarray | None) -> float | None:
    """Return what all elements of an array equal; None if they differ, or there are none."""
    if array is None or array.size == 0:
        return None
    first = array.reshape(-1)[0]
    return float(first) if (array == first).all() else None


def plain_value(value: object) -> Any:
    """Return the value in MLIR of a part of a match, also in lists; other operands as they are."""
    if isinstance(value, (list, tuple)):
        return [plain_value(each) for each in value]
    return value.mlir if isinstance(value, BlockValue) else value


def remade(op: ir.OpView, values: Iterable[ir.Value], b: Rewriter, **changed: object) -> ir.Value:
    """Emit a copy of an operator of one result, with other operands in the order of the operation, and attributes."""
    (result,) = remade_all(op, values, b, **changed)
    return result


def remade_all(op: ir.OpView, values: Iterable[ir.Value], b: Rewriter, **changed: object) -> list[ir.Value]:
    """Emit a copy of an operator, as `remade`, and return its results."""
    cls = class_of(op)
    fields = cls._operand_layout
    flat = list(values)
    operands = [fields.pick(field, op.operation, flat) for field in fields.fields]
    return b.emit_all(cls, *operands, **{**op.attribute_values(), **changed})


def defining(value: ir.Value, name: str) -> ir.OpView | None:
    """Return the defining operation of a value if it is of this kind."""
    if isinstance(value, ir.OpResult) and value.owner.name == name:
        return value.owner.opview
    return None


def without_unit_dims(value: ir.Value) -> ir.Value:
    """Return the value after reshapes that only insert or remove dims of 1."""
    while True:
        shaped = defining(value, "relax.reshape")
        if shaped is None or _larger(shaped.x) != _larger(value):
            return value
        value = shaped.x


def _larger(value: ir.Value) -> list[Dim]:
    return [dim for dim in kind_of(value).shape if dim != 1]


def beside(value: ir.Value, b: Rewriter) -> bool:
    """Return whether a value is defined in the block of the rewritten operator, so that no work moves into a loop."""
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


@dataclass
class Rewritten:
    """The result of rewriting a function."""

    count: int = 0
    rounds: int = 0
    converged: bool = True
    """Whether a fixed point was reached within the bound."""
    declined: list[tuple[str, Decline]] = field(default_factory=list)
    """The rules whose pattern matched, and that declined, in the last round, with their reasons."""
    has_emitted: bool = False
    """Whether rules emitted operators in the last round, also those that declined then."""


def rewrite(
    function: ir.OpView | ir.Operation,
    book: RuleBook,
    session: Session,
    only: Iterable[str] | None = None,
    layouts: RequestedLayouts | None = None,
) -> int:
    """Apply the rules of a book to a function to a fixed point; return the number of rewrites."""
    covers = book.covers if only is None else set(only).__contains__

    def rules_of(name: str) -> Sequence[Rule]:
        return book.candidates(name, (DEFAULT,)) if covers(name) else ()

    return rewrite_by(
        function, rules_of, lambda op, at: Rewriter(op, session, layouts, at), max_rounds=MAX_SWEEPS
    ).count


def rewrite_by(
    function: ir.OpView | ir.Operation,
    rules_of: Callable[[str], Sequence[Rule]],
    builder: Callable[[ir.Operation, ir.InsertionPoint], Rewriter],
    limit: int | None = None,
    max_rounds: int | None = None,
) -> Rewritten:
    """Apply rules, given by the names of operators, to the operators of a function to a fixed point within bounds.

    An operator that a rule emits is visited in the next round. An operator with effects is erased if a rule replaced
    all of its results, and stays if it only lost its users.
    """
    known_rules = cache(rules_of)

    @cache
    def rules_at(name: str, producers: frozenset[str]) -> list[Rule]:
        """Return the rules of an operator that do not decline it by what computes its operands."""
        rules = known_rules(name)
        return [rule for rule in rules if rule.producers is None or not rule.producers.isdisjoint(producers)]

    done = Rewritten(converged=False)
    while (limit is None or done.count < limit) and (max_rounds is None or done.rounds < max_rounds):
        done.rounds += 1
        done.declined.clear()
        done.has_emitted, before = False, done.count
        for block in reversed(blocks(function)):
            pending = deque(op.operation for op in block.operations if known_rules(op.operation.name))
            while pending and (limit is None or done.count < limit):
                op = pending.popleft()
                rules = rules_at(op.name, _producers(op))
                if rules and len(op.results) and not (is_dead(op) and is_pure_relax(op)):
                    done.count += _rewrite_op(op, rules, builder, done, pending)
            # After the first round operators are dead only if rules emitted some: here, or in a block inside, before.
            if done.rounds == 1 or done.has_emitted or done.count > before:
                erase_dead(block, is_pure_relax)
        if done.count == before:
            done.converged = True
            break
    return done


def _producers(op: ir.Operation) -> frozenset[str]:
    """Return the names of the operators that compute an operation's operands."""
    return frozenset([value.owner.name for value in op.operands if isinstance(value, ir.OpResult)])


def explain(function: ir.OpView, book: RuleBook, session: Session) -> None:
    """Record for each operator with rules in a book why none of them accepts."""
    for block in blocks(function):
        for op in [op.operation for op in block.operations if book.covers(op.operation.name)]:
            rewriter = Rewriter(op, session)
            rewriter.explains = True
            applied = _apply(op, book.candidates(op.name, (DEFAULT,)), rewriter)
            if isinstance(applied, NoRule):
                reasons = "".join(f"\n  {attempt.rule.name}: {attempt.decline}" for attempt in applied.attempts)
                session.remark(f"'{op.name}' stays as it is{reasons}", op.location)
        erase_dead(block, is_pure_relax)


def _rewrite_op(
    op: ir.Operation,
    rules: Sequence[Rule],
    builder: Callable[[ir.Operation, ir.InsertionPoint], Rewriter],
    done: Rewritten,
    pending: deque[ir.Operation],
) -> bool:
    """Apply rules to an operator; erase those, also pending ones, whose results they all replace."""
    rewriter = builder(op, ir.InsertionPoint.after(op))
    applied = _apply(op, rules, rewriter)
    done.declined += [
        (attempt.rule.name, attempt.decline) for attempt in applied.attempts if not isinstance(attempt.decline, NoMatch)
    ]
    done.has_emitted |= rewriter.has_emitted
    if isinstance(applied, NoRule):
        return False
    watch = rewriter.session.options.get(RULE_WATCH)
    if watch is not None:
        watch.see(op, applied, rewriter.emitted, rewriter.session)
    replaced = [*zip(op.results, applied.values, strict=True), *applied.others]
    for old, new in replaced:
        old.replace_all_uses_except(new, rewriter.emitted)
    rewriter.forget_block_graph()
    for owner in _owners([old for old, _ in replaced]):
        if is_dead(owner):
            if owner in pending:
                pending.remove(owner)
            erase_op(owner)
    return True


def _owners(values: Sequence[ir.Value]) -> list[ir.Operation]:
    """Return the operations all of whose results are among these values."""
    owners: list[ir.Operation] = []
    for value in values:
        if not isinstance(value, ir.OpResult):
            continue
        owner = value.owner.operation
        if owner not in owners and all(result in values for result in owner.results):
            owners.append(owner)
    return owners


def _apply(op: ir.Operation, rules: Sequence[Rule], rewriter: Rewriter) -> AppliedRule | NoRule:
    call = RuleCall((op.opview, rewriter))
    return apply_rules(op, rules, lambda rule: call, rewriter.at, plain_value)


@register_pass
@dataclass(frozen=True)
class Simplify(Pass):
    """Simplify the graph algebraically: remove operators, or replace them by cheaper ones with the same result.

    The rules are in `passes/graph/rules` and run to a fixed point. Rules that recognize a decomposed operator come
    first.
    """

    name = "simplify"
    keeps_layers = True
    contained = True
    trusted = True
    anchor = "func.func"
    combine: bool = option(True, "put operators into one that patterns of code generators name one by one")
    explain: bool = option(False, "print why pattern rules declined operators")

    def run(self, op: ir.OpView, session: Session) -> None:
        if not len(op.operation.regions[0].blocks):
            return
        for book in (RECOGNIZE, COMBINE) if self.combine else (RECOGNIZE,):
            rewrite(op, book, session)
            if self.explain:
                explain(op, book, session)
        rewrite(op, SIMPLIFY, session)
