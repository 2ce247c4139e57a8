"""Verification of the accesses of one kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr, number
from mirlo.passes.bounds.accesses import ACCESSES, HARMLESS, Access
from mirlo.passes.bounds.prover import Facts, Prover
from mirlo.passes.bounds.values import ValueReader
from mirlo.passes.bounds.views import View, ViewReader


@dataclass(frozen=True)
class UnprovenAccess:
    """An access that is not proven to be in bounds: what it is, why, and the facts that were known."""

    access: str
    """The operation, as in `vector.store`, and its buffer."""
    why: str
    facts: tuple[tuple[str, str], ...] = ()
    from_data: bool = False
    """Whether its index depends on elements of a buffer."""
    location: ir.Location | None = field(default=None, compare=False)

    def __str__(self) -> str:
        facts = ", ".join(f"{name}={value}" for name, value in self.facts)
        return f"{self.access}: {self.why}" + (f" ({facts})" if facts else "")


@dataclass
class Scope:
    """What holds in a block besides what holds around it: conditions of branches, and loops that have iterations."""

    parent: Scope | None
    conditions: list[tuple[ir.Value, bool]] = field(default_factory=list)
    expressions: list[IndexExpr] = field(default_factory=list)
    facts: Facts | None = None


class KernelBounds:
    """The accesses of a kernel, and those of them that could not be proven."""

    def __init__(
        self, function: ir.Operation, symbols: Mapping[int, Dim], sizes: Mapping[int, Dim], dims: Sequence[Dim]
    ) -> None:
        self.function = function
        self.prover = Prover()
        self.values = ValueReader(self.prover, symbols)
        self.views = ViewReader(self.values, sizes)
        self.accesses = 0
        self.unproven: list[UnprovenAccess] = []
        # Dims of tensors are not negative: the caller checks those that could be.
        self._root = Scope(None, expressions=[number(dim) for dim in dict.fromkeys(dims)])
        self._proven: dict[tuple[int, IndexExpr], bool] = {}

    def verify(self) -> None:
        """Find all accesses, and try to prove each."""
        self._visit(self.function.regions[0].blocks[0], self._root)

    def _visit(self, block: ir.Block, scope: Scope) -> None:
        for member in block.operations:
            op = member.operation
            name = op.name
            find = ACCESSES.get(name)
            if find is not None:
                for access in find(op):
                    self.accesses += 1
                    self._verify(access, scope)
            elif len(op.regions):
                self._visit_regions(op, scope)
            elif name.startswith("memref.") and name not in HARMLESS:
                self._verify_other(op, scope)

    def _visit_regions(self, op: ir.Operation, scope: Scope) -> None:
        if op.name == "scf.for" and self._is_empty(op):
            return
        for position, region in enumerate(op.regions):
            for block in region.blocks:
                self._visit(block, self._scope_of(op, position, scope))

    def _scope_of(self, op: ir.Operation, region: int, scope: Scope) -> Scope:
        if op.name == "scf.if":
            return Scope(scope, [(op.operands[0], region == 0)])
        if op.name == "scf.for":
            lower, upper = self.values.read(op.operands[0]), self.values.read(op.operands[1])
            length = upper - lower - 1
            # A loop without iterations has no accesses.
            return scope if length.is_constant and isinstance(length.constant, int) else Scope(scope, [], [length])
        return scope

    def _is_empty(self, op: ir.Operation) -> bool:
        """Return whether a loop has no iteration, ever."""
        _, longest = self.prover.interval(self.values.read(op.operands[1]) - self.values.read(op.operands[0]))
        return longest is not None and longest <= 0

    def _facts(self, scope: Scope) -> Facts:
        if scope.facts is None:
            known = self._facts(scope.parent) if scope.parent is not None else ()
            found = [*scope.expressions]
            for condition, holds in scope.conditions:
                found += self.values.facts(condition, holds)
            scope.facts = self.prover.refine(found, known)
        return scope.facts

    # --------------------------------------------------------------------------------------------------------- accesses

    def _verify_other(self, op: ir.Operation, scope: Scope) -> None:
        """Verify an operation on whole buffers: a copy between buffers of one static size."""
        buffers = [value for value in op.operands if isinstance(value.type, ir.MemRefType)]
        if not buffers:
            return
        self.accesses += 1
        views = [self.views.read(value) for value in buffers]
        if op.name == "memref.copy" and all(view.is_static and not view.starts for view in views):
            return
        self._fail(op, buffers[0], f"'{op.name}' is not known", (), False)

    def _verify(self, access: Access, scope: Scope) -> None:
        view = self.views.read(access.buffer)
        if view.bytes is None:
            self._fail(access.op, access.buffer, view.why, (), False)
            return
        indices = [self.values.read(value) for value in access.indices]
        if access.offsets is not None:
            indices[-1] = indices[-1] + self.values.read(access.offsets)
        last = [number(lanes - 1) for lanes in access.lanes]
        first = indices
        if access.mask is not None and access.offsets is None:
            lane = self.values.lane(access.lanes[-1])
            first = [*indices[:-1], indices[-1] + lane]
            last = last[:-1] + [number(0)]
        ends = list(first)
        for position, extra in enumerate(last):
            at = len(ends) - len(last) + position
            ends[at] = ends[at] + extra.constant
        self._verify_range(access, view, first, ends, scope)

    def _verify_range(
        self, access: Access, view: View, first: Sequence[IndexExpr], last: Sequence[IndexExpr], scope: Scope
    ) -> None:
        goals = [goal for goal, _ in view.starts]
        if view.is_static:
            goals += [index for index in first]
            goals += [number(size - 1) - index for size, index in zip(view.shape, last, strict=True)]
        else:
            assert view.bytes is not None, "buffers of unknown size are reported before"
            goals += [first[0], view.bytes - (last[0] + 1) * view.element_bytes]
        if all(self._holds(goal, access, scope) for goal in goals):
            return
        if view.is_static and len(view.shape) > 1:
            position, end = (_linear(view.shape, index) for index in (first, last))
            total = _linear(view.shape, [number(size - 1) for size in view.shape])
            if self._holds(position, access, scope) and self._holds(total - end, access, scope):
                return
        self._fail_range(access, view, first, last, scope)

    def _holds(self, goal: IndexExpr, access: Access, scope: Scope) -> bool:
        low, _ = self.prover.interval(goal)
        if low is not None and low >= 0:
            return True
        facts = self._facts(scope)
        if access.mask is not None:
            facts = self.prover.refine(self.values.facts(access.mask, True), facts)
        return self.prover.is_nonnegative(goal, facts) or self._holds_by_lane(goal, facts)

    def _holds_by_lane(self, goal: IndexExpr, facts: Facts) -> bool:
        """Return whether a goal is proven for each lane of vectors of constants that a mask leaves."""
        sizes = {len(table) for name, table in self.values.tables.items() if name in goal.variables()}
        if len(sizes) != 1:
            return False
        for lane in range(sizes.pop()):
            here = [self.values.in_lane(fact, lane) for fact in facts]
            is_masked = any(_is_negative(fact) for fact in here)
            if not is_masked and not self.prover.is_nonnegative(self.values.in_lane(goal, lane), tuple(here)):
                return False
        return True

    # --------------------------------------------------------------------------------------------------------- failures

    def _fail_range(
        self, access: Access, view: View, first: Sequence[IndexExpr], last: Sequence[IndexExpr], scope: Scope
    ) -> None:
        from_data = any(map(self.prover.is_from_data, first))
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
            name = f"parameter {ir.BlockArgument(buffer).arg_number}"
        else:
            name = f"the result of '{owner.operation.name}'"
        self.unproven.append(UnprovenAccess(f"'{op.name}' to {name}", why, facts, from_data, op.location))


def _linear(shape: Sequence[int], indices: Sequence[IndexExpr]) -> IndexExpr:
    """Return the position of an element."""
    result = number(0)
    for size, index in zip(shape, indices, strict=True):
        result = result * size + index
    return result


def _is_negative(fact: IndexExpr) -> bool:
    return fact.is_constant and D.is_certain(lambda: fact.constant < 0)
