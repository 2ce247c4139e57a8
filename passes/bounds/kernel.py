"""Verification of the accesses of one kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr, number
from mirlo.dialects.tir.buffers import FOREIGN
from mirlo.passes.bounds.accesses import ACCESSES, Access, UnprovenAccess, is_unknown_access
from mirlo.passes.bounds.calls import KnownOperands
from mirlo.passes.bounds.data import KernelAccesses
from mirlo.passes.bounds.limits import Limits
from mirlo.passes.bounds.prover import Facts, Prover
from mirlo.passes.bounds.values import ValueReader
from mirlo.passes.bounds.views import View, ViewReader
from mirlo.passes.locations import names_of
from mirlo.runtime.names import terminal
from mirlo.runtime.records import dataclass

GoalKey = tuple[object, ...]
"""A goal without its constant."""


@dataclass
class ProofScope:
    """The facts that hold in a block in addition to those around it: conditions of branches, non-empty loops."""

    parent: ProofScope | None
    block: ir.Block | None = None
    facts_of_caller: Sequence[IndexExpr] = ()
    facts: Facts | None = None
    of_masks: dict[ir.Value, Facts] = field(default_factory=dict)
    """The facts of the lanes that a mask leaves."""
    least: dict[GoalKey, int] = field(default_factory=dict)
    """The least constant with which a goal is proven: it holds with larger ones too."""


class Goal(NamedTuple):
    """An expression that must not be negative."""

    expression: IndexExpr
    key: GoalKey
    constant: int


@dataclass(frozen=True)
class Obligation:
    """An access whose range must be proven: the expressions that must not be negative."""

    access: Access
    view: View
    first: tuple[IndexExpr, ...]
    """The smallest index in each dim."""
    last: tuple[IndexExpr, ...]
    goals: tuple[Goal, ...]


class KernelBounds:
    """The accesses of a kernel, and those of them that could not be proven."""

    def __init__(
        self,
        function: ir.Operation,
        accesses: KernelAccesses,
        symbols: Mapping[int, Dim],
        known: KnownOperands,
    ) -> None:
        self.function = function
        self.found = accesses
        self._selected: Mapping[ir.Block, Sequence[ir.Operation]] | None = None
        """The operations to visit, by block; None for all."""
        self._verified: frozenset[ir.Operation] = frozenset()
        self.prover = Prover()
        self.values = ValueReader(self.prover, symbols, known.tables, accesses.data)
        self.clamped = Limits(self.prover, only_clamped=True)
        self.views = ViewReader(self.values, known.sizes)
        self.unproven: list[tuple[ir.Operation, UnprovenAccess]] = []
        self.guardable: set[ir.Operation] = set()
        """Accesses that are not proven, and may be tested: in functions of users, something must limit the data."""
        self.is_foreign = FOREIGN in function.attributes
        # The caller checks the dims of tensors that could be negative.
        self._root = ProofScope(None, facts_of_caller=[number(dim) for dim in dict.fromkeys(known.facts)])

    def verify_by_data(self, steps: int) -> int:
        """Try to prove the accesses by data within this many steps; return how many are left."""
        return self._verify(self.found.operations_by_data(), frozenset(), steps) if self.found.by_data else steps

    def verify_others(self, steps: int) -> int:
        """Try to prove the accesses that depend on loops and sizes only."""
        return self._verify(None, frozenset(self.found.by_data), steps)

    def _verify(
        self, selected: Mapping[ir.Block, Sequence[ir.Operation]] | None, verified: frozenset[ir.Operation], steps: int
    ) -> int:
        self._selected, self._verified, self.prover.budget = selected, verified, steps
        self._visit(self.function.regions[0].blocks[0], self._root)
        return max(self.prover.budget, 0)

    def _visit(self, block: ir.Block, scope: ProofScope) -> None:
        obligations: list[Obligation] = []
        members = [m.operation for m in block.operations] if self._selected is None else self._selected.get(block, [])
        for op in members:
            if self._verified and op in self._verified:
                continue
            name = op.name
            find = ACCESSES.get(name)
            if find is not None:
                obligations += self._obligations(find(op))
            elif len(op.regions):
                self._visit_regions(op, scope)
            elif is_unknown_access(op):
                self._verify_other(op)
        if obligations:
            self._settle(obligations, scope)

    def _visit_regions(self, op: ir.Operation, scope: ProofScope) -> None:
        if op.name == "scf.for" and self._is_empty(op):
            return
        for region in op.regions:
            for block in region.blocks:
                self._visit(block, ProofScope(scope, block))

    def _is_empty(self, op: ir.Operation) -> bool:
        """Return whether a loop has no iteration, ever."""
        _, longest = self.prover.interval(self.values.read(op.operands[1]) - self.values.read(op.operands[0]))
        return longest is not None and longest <= 0

    def _facts(self, scope: ProofScope) -> Facts:
        if scope.facts is None:
            known = self._facts(scope.parent) if scope.parent is not None else ()
            conditions = scope.facts_of_caller if scope.block is None else self.values.facts_of_block(scope.block)
            scope.facts = self.prover.refine(conditions, known)
        return scope.facts

    # --------------------------------------------------------------------------------------------------------- accesses

    def _verify_other(self, op: ir.Operation) -> None:
        """Verify an operation on whole buffers: a copy between buffers of one static size."""
        buffers = [value for value in op.operands if isinstance(value.type, ir.MemRefType)]
        if not buffers:
            return
        views = [self.views.read(value) for value in buffers]
        if op.name == "memref.copy" and all(view.is_static and not view.starts for view in views):
            return
        by_data = self.found.data.is_unknown_access_by_data(op)
        self._fail(op, buffers[0], f"'{op.name}' is not known", (), by_data)

    def _obligations(self, access: Access) -> Iterator[Obligation]:
        """Yield the obligations of an access, without those that hold trivially."""
        view = self.views.read(access.buffer)
        if view.bytes is None or not (view.is_static or len(view.shape) == 1):
            why = view.why or "its dims have no static sizes"
            self._fail(access.op, access.buffer, why, (), self.found.data.is_access_by_data(access))
            return
        first, last = self._ends(access)
        goals = [goal for goal, _ in view.starts]
        if view.is_static:
            goals += first
            goals += [number(size - 1) - index for size, index in zip(view.shape, last, strict=True)]
        else:
            goals += [first[0], view.bytes - (last[0] + 1) * view.element_bytes]
        open_goals = tuple(_goal_of(goal, access) for goal in goals if not self.prover.is_certain(goal))
        if open_goals:
            yield Obligation(access, view, first, last, open_goals)

    def _ends(self, access: Access) -> tuple[tuple[IndexExpr, ...], tuple[IndexExpr, ...]]:
        """Return the first and the last index of an access, of any lane if it has a mask or offsets."""
        first = [self.values.read(value) for value in access.indices]
        if access.offsets is not None:
            first[-1] = first[-1] + self.values.read(access.offsets)
            return tuple(first), tuple(first)
        lengths = list(access.lanes)
        if access.mask is not None:
            first[-1] = first[-1] + self.values.lane(lengths[-1])
            lengths[-1] = 1
        outer = len(first) - len(lengths)
        last = first[:outer] + [index + (length - 1) for index, length in zip(first[outer:], lengths, strict=True)]
        return tuple(first), tuple(last)

    def _settle(self, obligations: Sequence[Obligation], scope: ProofScope) -> None:
        """Prove the obligations of a block; of those that differ in a constant, the hardest first."""
        hardest: dict[GoalKey, tuple[Goal, Access]] = {}
        for each in obligations:
            for goal in each.goals:
                known = hardest.get(goal.key)
                if known is None or goal.constant < known[0].constant:
                    hardest[goal.key] = goal, each.access
        for goal, access in hardest.values():
            self._holds(goal, access, scope)
        for each in obligations:
            if not all(self._holds(goal, each.access, scope) for goal in each.goals):
                self._retry_as_position(each, scope)

    def _retry_as_position(self, each: Obligation, scope: ProofScope) -> None:
        """Prove the position in memory where single indices cannot be proven."""
        shape = each.view.shape
        if each.view.is_static and len(shape) > 1:
            position, end = _linear(shape, each.first), _linear(shape, each.last)
            total = _linear(shape, [number(size - 1) for size in shape])
            goals = [goal for goal, _ in each.view.starts] + [position, total - end]
            if self._hold(goals, each.access, scope):
                return
        readable = each.view.readable if each.access.kind == "load" else None
        if readable is not None:
            end = (each.last[0] + 1) * each.view.element_bytes
            goals = [goal for goal, _ in each.view.starts] + [each.first[0], readable - end]
            if self._hold(goals, each.access, scope):
                return
        self._fail_range(each, scope)

    def _hold(self, goals: Iterable[IndexExpr], access: Access, scope: ProofScope) -> bool:
        return all(self.prover.is_certain(goal) or self._holds(_goal_of(goal, access), access, scope) for goal in goals)

    def _holds(self, goal: Goal, access: Access, scope: ProofScope) -> bool:
        proven = scope.least.get(goal.key)
        if proven is not None and goal.constant >= proven:
            return True
        facts = self._facts_of_access(access, scope)
        expression = self.values.unwrap(goal.expression, facts)
        if not self.prover.is_nonnegative(expression, facts) and not self._holds_by_lane(expression, facts):
            return any(_is_negative(fact) for fact in facts)  # where the access is, the program never is
        scope.least[goal.key] = goal.constant
        return True

    def _facts_of_access(self, access: Access, scope: ProofScope) -> Facts:
        facts = self._facts(scope)
        if access.mask is None:
            return facts
        known = scope.of_masks.get(access.mask)
        if known is None:
            known = self.prover.refine(self.values.facts(access.mask, True), facts)
            scope.of_masks[access.mask] = known
        return known

    def _holds_by_lane(self, goal: IndexExpr, facts: Facts) -> bool:
        """Return whether a goal is proven for each lane of vectors of constants that a mask leaves."""
        sizes = {len(table) for name, table in self.values.tables.items() if name in goal.variables()}
        if len(sizes) != 1:
            return False
        for lane in range(sizes.pop()):
            # Refined again: goals are rounded to integers, and so must be what a mask says of this lane.
            here = self.prover.refine(self.values.in_lane(fact, lane) for fact in facts)
            is_masked = any(_is_negative(fact) for fact in here)
            if not is_masked and not self.prover.is_nonnegative(self.values.in_lane(goal, lane), here):
                return False
        return True

    # --------------------------------------------------------------------------------------------------------- failures

    def _fail_range(self, each: Obligation, scope: ProofScope) -> None:
        access, view, first, last = each.access, each.view, each.first, each.last
        from_data = self.found.data.is_access_by_data(access)
        if from_data and (not self.is_foreign or self._is_clamped(each, scope)):
            self.guardable.add(access.op)
        why = (
            "its index depends on data that is not clamped" if from_data else "its index is not proven to be in bounds"
        )
        size = " x ".join(map(str, view.shape)) if view.is_static else f"{view.bytes} bytes"
        shown = ", ".join(self._text(index) for index in first)
        end = ", ".join(self._text(index) for index in last)
        facts = [("index", shown), ("size", size)]
        if end != shown:
            facts.insert(1, ("to", end))
        known = [self._text(fact) for fact in self._facts(scope)]
        if known:
            facts.append(("not negative", "; ".join(known[:6])))
        self._fail(access.op, access.buffer, why, tuple(facts), from_data)

    def _is_clamped(self, each: Obligation, scope: ProofScope) -> bool:
        """Return whether data in an index, and in the start of a view, have any limits at all."""
        # Without steps that are left, nothing is known of what the last values are clamped to.
        facts = self._facts_of_access(each.access, scope)
        limited = [*each.first, *(goal for goal, _ in each.view.starts)]
        return self.prover.budget <= 0 or all(self.clamped.holds(value, facts) for value in limited)

    def bytes_behind(self, access: Access) -> Dim | None:
        """Return the bytes of the memory of an access's buffer, or of the buffer it is a view of; None if unknown."""
        return self.views.memory(access.buffer)

    def _text(self, expression: IndexExpr) -> str:
        """Return an expression with the intervals of its variables."""
        parts = []
        for name in sorted(expression.variables()):
            known = self.prover.variables[name]
            parts.append(
                f"v{name} in [{'?' if known.low is None else known.low}, {'?' if known.high is None else known.high}]"
            )
        text = str(expression.substitute(lambda name: IndexExpr({f"v{name}": 1})))
        return f"{text} where {' and '.join(parts)}" if parts else text

    def _fail(
        self, op: ir.Operation, buffer: ir.Value, why: str, facts: tuple[tuple[str, str], ...], from_data: bool
    ) -> None:
        owner = buffer.owner
        if isinstance(owner, ir.Block):
            argument = ir.BlockArgument(buffer)
            own = names_of(argument.location)
            name = f"parameter {argument.arg_number}" + (f" '{terminal(own[0])}'" if own else "")
        else:
            name = f"the result of '{owner.operation.name}'"
        access = UnprovenAccess(f"'{op.name}' to {name}", why, facts, from_data, op.location)
        self.unproven.append((op, access))


def _goal_of(goal: IndexExpr, access: Access) -> Goal:
    """Return a goal, and its terms without the constant, which goals of other accesses may share."""
    constant, rest = goal.constant, 0
    if not isinstance(constant, int):
        rest = constant
        constant = dict(constant.terms).get((), 0)
        rest = rest - constant
    return Goal(goal, (frozenset(goal.terms.items()), rest, access.mask), constant)


def _linear(shape: Sequence[int], indices: Sequence[IndexExpr]) -> IndexExpr:
    """Return the position of an element."""
    result = number(0)
    for size, index in zip(shape, indices, strict=True):
        result = result * size + index
    return result


def _is_negative(fact: IndexExpr) -> bool:
    return fact.is_constant and D.is_certain(lambda: fact.constant < 0)
