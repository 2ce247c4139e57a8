"""The pass `hoist-layouts`: move permutes from the edges of composites and regions outwards, where they cancel."""

from __future__ import annotations

from collections.abc import Callable

from mirlo.dialects.bindings import ir
from mirlo.passes.byoc.boundary import count_permutes, force, hoist, marked_permute, sink
from mirlo.passes.byoc.inline import all_operations
from mirlo.passes.byoc.outline import COMPOSITE, EXTERNAL, TARGET, callee_of, functions_of, require_target, string_fact
from mirlo.passes.byoc.outline_external import external_modules
from mirlo.passes.graph.layout import simplify_moves
from mirlo.passes.graph.requested_layouts import NOTHING
from mirlo.passes.graph.rewrite import rewrite
from mirlo.passes.registry import Pass, option, register_pass
from mirlo.passes.rules import LAYOUT
from mirlo.passes.session import Session
from mirlo.runtime.records import dataclass

MAX_ROUNDS = 512
"""Upper bound of iterations; permutes move one call further in each."""


@dataclass(frozen=True)
class LayoutRecord:
    """What became of the permutes that the layouts of a target's regions needed."""

    target: str
    at_start: int
    """Permutes in regions and their callers at the start."""
    hoisted: int
    """Permutes that moved from a function to its callers."""
    cancelled: int
    """Permutes that cancelled with their inverses."""
    left: int
    at_boundary: int
    """Remaining permutes between the model and a region: the copies that an inference makes for the target."""


@register_pass
@dataclass(frozen=True)
class HoistLayouts(Pass):
    """Move permutes of layouts from the edges of composites and regions to their callers, where they cancel.

    After `convert-layout` on an external module, a composite may start with a permute of its input, or have one after
    a pad of that input, and end with one of its result. They move to where it is called, cancel with those of its
    neighbours, move on to the callers of the region, and cancel with those of other regions. Permutes of constants are
    folded. Run on the model, it changes the types of regions; run on an
    external module alone, those of composites only. What was moved and what is left is appended to the session's notes.
    """

    name = "hoist-layouts"
    contained = True
    target: str = option("", "target whose regions are concerned; all when none is named")
    explain: bool = option(False, "print the number of permutes before and after")

    def run(self, op: ir.OpView, session: Session) -> None:
        module = op.operation
        require_target(module, self.target)
        nested = {n: m for n, m in external_modules(module).items() if self._concerns(string_fact(m, EXTERNAL))}
        before = _permutes([module, *nested.values()])
        hoister = _Hoister(module, nested, session, self._concerns)
        hoister.run()
        left = _permutes([module, *nested.values()])
        boundary = _count_boundary_permutes(module, nested)
        record = LayoutRecord(self.target, before, hoister.hoisted, max(0, before - left), left, boundary)
        if string_fact(module, EXTERNAL) is None:
            for function in functions_of(module).values():
                simplify_moves(function, session)
        session.notes.append(record)
        if self.explain:
            session.remark(
                f"{record.at_start} permutes of layouts: {record.cancelled} cancelled, {record.left} left, "
                f"{record.at_boundary} of them at the boundary of regions",
                module.location,
            )

    def _concerns(self, target: str | None) -> bool:
        return target is not None and self.target in ("", target)


@dataclass
class _Hoister:
    module: ir.Operation
    nested: dict[str, ir.Operation]
    session: Session
    concerns: Callable[[str | None], bool]
    hoisted: int = 0

    def run(self) -> None:
        for _ in range(MAX_ROUNDS):
            if not any([self._round(owner, name) for name, owner in (*self.nested.items(), ("", self.module))]):
                return

    def _round(self, owner: ir.Operation, name: str) -> bool:
        """Move permutes by one call in one module; returns whether any moved."""
        changed = False
        functions = functions_of(owner)
        calls = self._calls(owner, name)
        for symbol, function in functions.items():
            callers = calls.get(symbol, [])
            if callers and self._is_movable(function, name):
                edge = hoist(function, callers, self.session)
                self.hoisted += len(edge)
                changed |= bool(edge)
        for function in functions.values():
            self._cancel(function)
        if name:
            self._cancel_callers()
        calls = self._calls(owner, name)
        for symbol, function in functions.items():
            callers = calls.get(symbol, [])
            if len(callers) == 1 and COMPOSITE in function.attributes and self._is_movable(function, name):
                changed |= sink(function, callers[0], self.session)
        return changed or self._force(owner, name, functions)

    def _force(self, owner: ir.Operation, name: str, functions: dict[str, ir.Operation]) -> bool:
        """Move permutes whose cost is saved elsewhere; used when no other moves."""
        calls = self._calls(owner, name)
        for symbol, function in functions.items():
            callers = calls.get(symbol, [])
            fits = len(callers) == 1 and COMPOSITE in function.attributes and self._is_movable(function, name)
            if fits and force(function, callers[0], self.session):
                return True
        return False

    def _is_movable(self, function: ir.Operation, name: str) -> bool:
        if name:
            return True
        return self.concerns(string_fact(function, EXTERNAL) or string_fact(function, TARGET))

    def _calls(self, owner: ir.Operation, name: str) -> dict[str, list[ir.Operation]]:
        """Return the calls of a module's functions, from inside it and, for a nested one, from the model."""
        calls: dict[str, list[ir.Operation]] = {}
        for function in functions_of(owner).values():
            for op in all_operations(function):
                callee = callee_of(op)
                if callee is not None:
                    calls.setdefault(callee, []).append(op)
        for function in functions_of(self.module).values() if name else ():
            for op in all_operations(function):
                if op.name == "relax.call_external":
                    owner_name, _, callee = op.opview.callee.partition("::")
                    if owner_name == name:
                        calls.setdefault(callee, []).append(op)
        return calls

    def _cancel(self, function: ir.Operation) -> None:
        rewrite(function, LAYOUT, self.session, layouts=NOTHING)

    def _cancel_callers(self) -> None:
        for function in functions_of(self.module).values():
            if any(op.name == "relax.call_external" for op in all_operations(function)):
                self._cancel(function)


def _permutes(modules: list[ir.Operation]) -> int:
    return sum(count_permutes(function) for module in modules for function in functions_of(module).values())


def _count_boundary_permutes(module: ir.Operation, nested: dict[str, ir.Operation]) -> int:
    """Count the permutes in the model that a region reads, or that read a region's result."""
    permutes: set[ir.Value] = set()
    for function in functions_of(module).values():
        for op in all_operations(function):
            if op.name == "relax.call_external" and op.opview.callee.partition("::")[0] in nested:
                permutes.update(v for v in op.operands if marked_permute(v) is not None)
                readers = (use.owner for value in op.results for use in value.uses)
                permutes.update(r.results[0] for r in readers if r.results and marked_permute(r.results[0]) is not None)
    return len(permutes)
