"""Pass `schedule`: lower prim functions from tensor form to loops over buffers, by the rules of the target."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import dim_attributes
from mirlo.dialects.tir.extents import add_extents
from mirlo.dialects.tir.view import PrimView, is_tensor_form, prim_functions
from mirlo.passes.made_by import check_emitted
from mirlo.passes.memory.inplace import annotate_inplace
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.passes.rules import DEFAULT, SCHEDULE, Attempt, Rule, try_rules
from mirlo.passes.targets import chain, check_rule_targets, rules_target
from mirlo.runtime.nearest import nearest

if TYPE_CHECKING:
    from mirlo.passes.session import Session

SCHEDULES = "schedules"
"""Session option: schedules given by the user, by the name of the prim function."""
FLOPS = "tir.flops"
"""Attribute of a scheduled prim function: arithmetic operations of one call; an integer, or a dim as text."""
_INTEGER = ("arith.muli", "arith.addi", "arith.subi")
_CASTS = ("arith.extf", "arith.truncf")
ANY = "any"
"""The subject of rules that apply to all prim functions."""


@dataclass(frozen=True)
class Kernel:
    """The argument of a schedule rule: a prim function in tensor form."""

    view: PrimView


@dataclass(frozen=True)
class ScheduleRecord:
    """How one prim function was scheduled."""

    function: str
    rule: Rule
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True)
class ScheduleContext:
    """The environment of a schedule rule."""

    target: str
    options: dict[str, Any]


def _user_schedule(kernel: Kernel, context: ScheduleContext) -> None:
    """Stand for the schedule that the user gave for this function."""


USER_SCHEDULE = Rule("schedule", ANY, DEFAULT, _user_schedule, name="given")
"""The rule that records name for a schedule given by the user."""


def check_given(session: Session) -> None:
    """Reject schedules of the caller for prim functions that were never scheduled: their names are wrong."""
    records = [note for note in session.notes if isinstance(note, ScheduleRecord)]
    by_hand = {record.function for record in records if record.rule is USER_SCHEDULE}
    _reject_unused(set(session.options.get(SCHEDULES) or {}) - by_hand, [record.function for record in records])


def _reject_unused(unused: Collection[str], functions: Collection[str]) -> None:
    for name in sorted(unused):
        hint = nearest(name, functions)
        there = "" if hint else f"; there are: {', '.join(f'@{f}' for f in sorted(functions)) or 'none'}"
        raise PassError(
            f"a schedule is given for '{name}', but no prim function of that name is scheduled{hint}{there}"
        )


@register_pass
@dataclass(frozen=True)
class SchedulePrims(Pass):
    """Lower prim functions over tensors to loops over buffers.

    Rules of the target are tried in order; the rule that applied and its parameters are recorded on the function as
    `tir.schedule`.
    """

    name = "schedule"
    contained = True
    target: str = option(
        "", "target whose rules come first (default: that of the external module where it runs, else llvm)"
    )
    machine: str = option("", "machine that the rules plan for, of those that the target knows; default: the target's")
    given: str = option("", "schedules by hand: NAME=FILE of a prim function and a saved schedule, several with ';'")
    threads: int = option(1, "threads that a kernel may use")
    explain: bool = option(False, "tell which rule took each function, and why others declined")

    def is_contained(self) -> bool:
        return not self.given  # schedule files

    def is_trusted(self, session: Session) -> bool:
        return not self.given and not session.options.get(SCHEDULES) and SCHEDULE.foreign() is None

    def run(self, op: ir.OpView, session: Session) -> None:
        importlib.import_module("mirlo.passes.schedule.nest")
        target = rules_target(self.target, op)
        targets = chain(target)
        check_rule_targets(SCHEDULE)
        for registered in SCHEDULE:
            if registered.subject != ANY:
                where = f"rule '{registered}' at {registered.place}"
                raise PassError(f"{where} is for '{registered.subject}': expected '{ANY}'")
        options = {**session.options, "threads": self.threads, **({"machine": self.machine} if self.machine else {})}
        context = ScheduleContext(target, options)
        first = len(session.notes)
        for function in prim_functions(op):
            if not is_tensor_form(function):
                continue
            kernel = Kernel(PrimView(function))
            _annotate_work(kernel.view)
            annotate_inplace(kernel.view)
            name, location = kernel.view.name, kernel.view.op.location
            if self._by_hand(function, name, session):
                continue
            rules = SCHEDULE.candidates(ANY, targets)
            made, rule, attempts = try_rules(rules, kernel, context)
            if rule is None:
                reasons = "\n".join(f"  {attempt}" for attempt in attempts)
                raise PassError(f"no schedule rule takes prim function '@{name}':\n{reasons}", location)
            del made
            if rule.is_foreign:
                check_emitted(rule, [kernel.view.op.operation])
            session.notes.append(ScheduleRecord(name, rule, tuple(attempts)))
            if self.explain:
                declined = "".join(f"\n  {attempt}" for attempt in attempts)
                session.remark(f"'@{name}' is scheduled by {rule.name}{declined}", location)
        functions = {note.function for note in session.notes[first:]}
        _reject_unused(set(self._files()) - functions, functions)

    def _files(self) -> dict[str, str]:
        return dict(entry.split("=", 1) for entry in self.given.split(";") if "=" in entry)

    def _by_hand(self, function: ir.OpView, name: str, session: Session) -> bool:
        """Apply the schedule that the user gave for this function, if there is one."""
        given = self._files().get(name) or session.options.get(SCHEDULES, {}).get(name)
        if given is None:
            return False
        from mirlo.passes.schedule.words.schedule import Schedule as Words
        from mirlo.passes.schedule.words.tree import ScheduleError

        location = function.operation.location
        try:
            Words(function).replay(given).emit()
        except ScheduleError as error:
            raise PassError(f"the schedule given for '@{name}': {error}", location) from error
        session.notes.append(ScheduleRecord(name, USER_SCHEDULE, ()))
        return True


def _annotate_work(view: PrimView) -> None:
    """Annotate the function with the operations of its body, for profiles, and its iterations, for callers."""
    work: Dim = 0
    for block in view.blocks:
        work = work + D.product(block.domain) * sum(_counts(op) for op in block.body_ops)
    view.op.attributes[FLOPS] = dim_attributes((work,))[0]
    add_extents(view.op, (block.domain for block in view.blocks))


def _counts(op: ir.Operation) -> bool:
    """Return whether a scalar operation is arithmetic on floats, a product or sum of integers, or a math function."""
    if op.name in _INTEGER:
        return isinstance(op.results[0].type, ir.IntegerType)  # index computations are no arithmetic
    is_float = op.name.startswith("arith.") and op.name.endswith("f") and op.name not in _CASTS
    return op.name.startswith("tir.") or is_float
