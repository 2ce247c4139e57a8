"""Pass `apply-tuning`: attach the best measured choices to prim functions.

A target declares the choices for a prim function as integers by name. The best measured ones are in a database,
whose key identifies the function by its content, the target and the machine. The pass attaches the integers to the
function as `tir.tuned`; the rules of the target use them instead of their own choices. If a target has choices for
operators, before they become functions, its pipeline contains the pass a second time, with the operators' names.
Values that no rule of the target allows, as a database of another version may hold, are ignored with a warning.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.walk import walk
from mirlo.dialects.tir.view import is_tensor_form, prim_functions
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.locations import describe, names_of
from mirlo.passes.registry import Pass, option, register_pass
from mirlo.passes.rule_choices import Choice, ChoiceValues, choices_of_type
from mirlo.passes.rules import ANY, SCHEDULE
from mirlo.passes.schedule.choices import choices_attribute, choices_of
from mirlo.passes.targets import chain, find_target, operator_choices
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session

TUNED = "tir.tuned"
"""Attribute: integers by name, which rules use instead of their own choices."""
TUNING = "tuning"
"""Session option: the tuning database."""

Values = Mapping[str, int]


class Lookup(Protocol):
    """The part of a tuning database that the pass uses."""

    def find(self, key: str) -> Values | None:
        """Return the best choices found for a prim function."""


@dataclass(frozen=True)
class TuningRecord:
    """A prim function that was tuned, or an operator of some nodes."""

    function: str
    values: dict[str, int]
    nodes: tuple[str, ...] = ()
    """For an operator: the nodes that it computes, or its location."""


@register_pass
@dataclass(frozen=True)
class ApplyTuning(Pass):
    """Attach the choices that measured best on this machine to prim functions or operators (see `mirlo tune`).

    Results for several threads apply to exactly that number of threads; without them, results for one thread are
    used.
    """

    name = "apply-tuning"
    keeps_layers = True
    contained = True
    trusted = True
    target: str = option("llvm", "the target that was measured")
    threads: int = option(1, "threads that it was measured with")
    operators: str = option("", "operators to print instead of prim functions, separated by spaces")
    target_options: str = option("", "options of the target, which name the machine that code is for")

    def run(self, op: ir.OpView, session: Session) -> None:
        database: Lookup | None = session.options.get(TUNING)
        if not database:  # the key of a function is its text: an empty database needs none
            return
        ignored: dict[str, None] = {}
        for subject in self._subjects(op):
            values = self._find(database, subject)
            if not values:
                continue
            rejected = rejected_values(values, self.target)
            ignored |= dict.fromkeys(rejected.values())
            values = {name: value for name, value in values.items() if name not in rejected}
            if values:
                set_tuned(subject, values)
                session.notes.append(_record_of(subject, values))
        if ignored:
            session.warning(
                f"the tuning database holds values that no rule of target '{self.target}' allows, which are "
                f"ignored: {'; '.join(ignored)}; run 'mirlo tune' to measure again"
            )

    def _subjects(self, module: ir.OpView) -> list[ir.Operation]:
        """Return what may be tuned: operators, or prim functions that are not scheduled yet."""
        if self.operators:
            return operations_named(module, self.operators.split())
        return [function.operation for function in prim_functions(module) if is_tensor_form(function)]

    def _find(self, database: Lookup, op: ir.Operation | ir.OpView) -> Values | None:
        for threads in sorted({1, self.threads}, reverse=True):
            result = database.find(tuning_key(op, self.target, threads, self.target_options))
            if result is not None:
                return result
        return None


def _record_of(op: ir.Operation, values: Values) -> TuningRecord:
    if op.name == "func.func":
        return TuningRecord(name_of(op), dict(values))
    return TuningRecord(op.name, dict(values), tuple(names_of(op.location)) or (describe(op.location),))


def declared_choices(target: str) -> dict[str, list[Choice]]:
    """Return the choices of a target's schedule rules, and those for operators, by name."""
    targets = chain(target)
    choices = [choice for rule in SCHEDULE.candidates(ANY, targets) for choice in rule.choices]
    for kind in operator_choices(target).values():
        choices += choices_of_type(kind)
    declared: dict[str, list[Choice]] = {}
    for choice in choices:
        declared.setdefault(choice.name, []).append(choice)
    return declared


def rejected_values(values: Values, target: str) -> dict[str, str]:
    """Return the values that no choice of this name of a target allows, with the reasons, by name."""
    declared = declared_choices(target)
    return {
        name: f"{name}={value}, expected {' or '.join(dict.fromkeys(c.range_text for c in declared[name]))}"
        for name, value in values.items()
        if name in declared and not any(choice.allows(value) for choice in declared[name])
    }


def operations_named(module: ir.Module | ir.OpView, names: Collection[str]) -> list[ir.Operation]:
    """Return the operations with these names in a module."""
    result: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name in names:
            result.append(op)
        return ir.WalkResult.ADVANCE

    walk(module, visit)
    return result


def name_of(function: ir.Operation | ir.OpView) -> str:
    name: str = symbol_name(function)
    return name


def set_tuned(function: ir.Operation | ir.OpView, values: ChoiceValues) -> None:
    function.operation.attributes[TUNED] = choices_attribute(values)


def tuned_values(function: ir.OpView | ir.Operation) -> dict[str, Any]:
    """Return the tuned choices of a prim function or operator; empty if there are none."""
    return choices_of(function, TUNED)


def pop_choices(op: ir.Operation) -> dict[str, int]:
    """Remove and return the tuned choices of an operator."""
    result = tuned_values(op)
    if result:
        del op.operation.attributes[TUNED]
    return result


def tuning_key(op: ir.Operation | ir.OpView, target: str, threads: int = 1, target_options: str = "") -> str:
    """Return a key of the computation of a prim function or operator, independent of its name and origin."""
    op = op.operation
    if op.name == "func.func":
        # Local scope: names and aliases of the module would make the key depend on the context.
        text = op.get_asm(enable_debug_info=False, print_generic_op_form=True, use_local_scope=True)
        text = re.sub(r'sym_name = "[^"]*"', "", text, count=1)
    else:
        text = _operator_text(op)
    text += f" {threads} threads" if threads > 1 else ""
    machine = find_target(target).fingerprint(target_options)
    return hashlib.sha256(f"{target}\n{machine}\n{text}".encode()).hexdigest()[:32]


def _operator_text(op: ir.Operation | ir.OpView) -> str:
    """Return the text of an operator without value names: attributes, types, which operands are constants."""
    attributes = sorted(
        f"{named.name} = {named.attr}" for named in map(op.attributes.__getitem__, range(len(op.attributes)))
    )
    operands = [f"{'constant ' * is_constant(value)}{value.type}" for value in op.operands]
    others = [text for text in attributes if not text.startswith(f"{TUNED} ")]
    return f"{op.name} {others} {operands} {[str(result.type) for result in op.results]}"
