"""Pass `schedule`: lower prim functions from tensor form to loops over buffers, by the rules of the target."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.locations import names_of
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.types import dim_attributes, dims_of
from mirlo.dialects.tir.affine import read_map
from mirlo.dialects.tir.sizes import add_extents
from mirlo.dialects.tir.view import BlockView, OperandView, PrimView, is_tensor_form, prim_functions
from mirlo.passes.graph.dce import erase_uncalled
from mirlo.passes.instrumentation import function_done
from mirlo.passes.made_by import check_emitted
from mirlo.passes.memory.inplace import annotate_inplace
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.passes.rule_choices import ChoiceError, ChoiceValues, tried_points
from mirlo.passes.rules import (
    ANY,
    DEFAULT,
    SCHEDULE,
    Attempt,
    Decline,
    Fault,
    Rule,
    RuleError,
    RuleFunction,
    run_rule,
    try_rules,
)
from mirlo.passes.schedule.buffers import SCHEDULE as SCHEDULED
from mirlo.passes.schedule.buffers import TARGET
from mirlo.passes.schedule.choices import (
    WANTED_PARTS,
    RulePart,
    check_choices,
    check_used,
    choices_of,
    parts_of,
    set_parts,
)
from mirlo.passes.schedule.kernel import Kernel, ScheduleContext
from mirlo.passes.schedule.parts import scalar_nest  # noqa: F401  (importing registers the rule of the last target)
from mirlo.passes.schedule.primitives.rule_parts import ANY_RULE, PRIMITIVES_RULE, ScheduleParts, inline_for_rules
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.trace import APPLIED, PrimitiveCallRecord, Trace
from mirlo.passes.schedule.primitives.tree import ScheduleError
from mirlo.passes.schedule.stored import PackedOrder, packed_orders
from mirlo.passes.schedule.tuned import set_tuned, tuned_values
from mirlo.passes.targets import chain, rules_target
from mirlo.runtime.callbacks import Expected, checked, each_is, is_integer, is_text, maps
from mirlo.runtime.errors import MirloError, nearest
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session

SCHEDULES = "schedules"
"""Session option: schedules given by the user, or rules in a list, by the name of the prim function."""
EVERY = "*"
"""Stands for the name of a prim function: rules given by the user for all of them."""
FLOPS = "tir.flops"
"""Attribute of a scheduled prim function: arithmetic operations of one call; an integer, or a dim as text."""
MOVED = "tir.moved"
"""Attribute of a scheduled prim function, dims: the elements of each argument that one call reads at most, and those of
each result."""
_INTEGER = ("arith.muli", "arith.addi", "arith.subi")
_CASTS = ("arith.extf", "arith.truncf")
STAGES = "stages"
"""The rule that schedules the parts of a function one after the other, on targets that have one."""
INLINE, INLINED = "compute_inline", "inlined"
GIVEN = "tir.given"
"""Attribute of a prim function: the primitives that the user gave, and the blocks that are inlined in it already."""


@dataclass(frozen=True)
class ScheduleRecord:
    """The schedule of one prim function."""

    function: str
    rule: Rule
    attempts: tuple[Attempt, ...]
    trace: Trace = field(default_factory=Trace)
    """The primitives with which it is scheduled again."""
    is_given: bool = False
    """Whether the user gave them."""
    names: tuple[str, ...] = ()
    """Names of the user's nodes that the function computes."""
    choices: ChoiceValues = field(default_factory=dict)
    """What the rule chose, with which it makes the same loops again."""

    @property
    def is_applied(self) -> bool:
        """Return whether the primitives are a rule with its choices, and not the primitives that it applied."""
        return any(call.primitive == "apply_rule" for call in self.trace)


def _user_schedule(kernel: Kernel, context: ScheduleContext) -> None:
    """Stand for the schedule that the user gave for this function."""


USER_SCHEDULE = Rule("schedule", ANY, DEFAULT, _user_schedule, name="given")
"""The rule that records name for a schedule given by the user."""


def check_given(session: Session) -> None:
    """Reject schedules of the caller for prim functions that were never scheduled: their names are wrong."""
    records = [note for note in session.notes if isinstance(note, ScheduleRecord)]
    by_hand = {record.function for record in records if record.is_given}
    functions = [record.function for record in records]
    unused = {*_requested_traces(session)} - by_hand | {*_given_rules(session)} - {*functions, EVERY}
    _reject_unused(unused, functions)


def _are_rules(entry: object) -> bool:
    """Return whether the user gave rules for a function, in a list, and not its schedule."""
    return isinstance(entry, (list, tuple)) and bool(entry)


def _requested_traces(session: Session) -> dict[str, RequestedTrace]:
    """Return the schedules that the user gave, by the names of functions."""
    return {name: entry for name, entry in _given(session).items() if not _are_rules(entry)}


def _given_rules(session: Session) -> dict[str, Sequence[RuleFunction]]:
    """Return the rules that the user gave, by the names of functions."""
    return {name: entry for name, entry in _given(session).items() if _are_rules(entry)}


def _given(session: Session) -> Mapping[str, Any]:
    return session.options.get(SCHEDULES) or {}


def _reject_unused(unused: Collection[str], functions: Collection[str]) -> None:
    for name in sorted(unused):
        hint = nearest(name, functions)
        there = "" if hint else f"; there are: {', '.join(f'@{f}' for f in sorted(functions)) or 'none'}"
        raise PassError(
            f"a schedule is given for '{name}', but no prim function of that name is scheduled{hint}{there}"
        )


def _require_no_primitives(function: ir.OpView, scheduled_names: Collection[str]) -> None:
    """Reject a schedule of a function that consists of loops already."""
    name = symbol_name(function)
    if name in scheduled_names and SCHEDULED not in function.operation.attributes:
        raise PassError(
            f"a schedule is given for '@{name}', which is not made of blocks: it consists of loops over "
            "buffers, in the order in which its rule or script wrote them",
            function.location,
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
        targets = chain(rules_target(self.target, op))
        erase_uncalled(op)
        for registered in SCHEDULE:
            if registered.subject != ANY:
                where = f"rule '{registered}' at {registered.place}"
                raise PassError(f"{where} is for '{registered.subject}': expected '{ANY}'")
        context = self._context(op, session)
        first = len(session.notes)
        rules, files = _rules_of(targets), self._files()
        for function in prim_functions(op):
            if is_tensor_form(function):
                result = self._schedule(function, rules, files, context, session)
                if result is not None:
                    function_done(self, result, session)
            else:
                _require_no_primitives(function, {*files, *_given(session)})
        functions = {note.function for note in session.notes[first:] if isinstance(note, ScheduleRecord)}
        _reject_unused(set(files) - functions, functions)

    def _context(self, module: ir.OpView, session: Session) -> ScheduleContext:
        """Return the context with which rules are called."""
        options = {**session.options, "threads": self.threads, **({"machine": self.machine} if self.machine else {})}
        return ScheduleContext(rules_target(self.target, module), options)

    def tuning_points(
        self, kernel: Kernel, duplicate: ir.OpView, module: ir.Module, session: Session, otherwise: Points
    ) -> list[dict[str, int]]:
        """Return the points to measure for a kernel, likeliest first: values by the names of choices.

        These are choices of the rule that takes the kernel, or of those among which it divides the kernel's blocks.
        `duplicate` is the kernel in a copy of its module, where it becomes loops. `otherwise` are the points that the
        target has for rules that declare none.
        """
        context = self._context(module.operation.opview, session)
        rules = _rules_of(chain(context.target))
        loops, record = _try_rules(Kernel(PrimView(duplicate)), rules, context)
        parts = {part.rule for part in parts_of(loops)}
        taking = [rule for rule in rules if rule.name in parts] or [record.rule]
        points: list[dict[str, int]] = []
        for rule in taking:
            points += [point for point in points_of(rule, kernel, context, otherwise) if point not in points]
        return points

    def _schedule(
        self,
        function: ir.OpView,
        rules: Sequence[Rule],
        files: Mapping[str, str],
        context: ScheduleContext,
        session: Session,
    ) -> ir.OpView | None:
        """Lower a function; return the result of a rule, or None for a schedule of the user."""
        function.operation.attributes[TARGET] = ir.StringAttr.get(context.target)
        kernel = Kernel(PrimView(function))
        _annotate_work(kernel.view)
        annotate_inplace(kernel.view)
        name, location = kernel.view.name, kernel.view.op.location
        user_schedule = files.get(name) or _requested_traces(session).get(name)
        custom = _given_rules(session)
        rules = [*(rule for key in (name, EVERY) for rule in SCHEDULE.candidates(key, (), custom)), *rules]
        if user_schedule is not None:
            session.notes.append(_schedule_as_given(kernel, user_schedule, rules, context))
            return None
        scheduled, record = _try_rules(kernel, rules, context)
        session.notes.append(record)
        if self.explain:
            declined = "".join(f"\n  {attempt}" for attempt in record.attempts)
            session.remark(f"'@{name}' is scheduled by {record.rule.name}{declined}", location)
        return scheduled

    def _files(self) -> dict[str, str]:
        return dict(entry.split("=", 1) for entry in self.given.split(";") if "=" in entry)


def _try_rules(kernel: Kernel, rules: Sequence[Rule], context: ScheduleContext) -> tuple[ir.OpView, ScheduleRecord]:
    """Return the result of the first rule that accepts a function, and its record."""
    function, name, location = kernel.view.op, kernel.view.name, kernel.view.op.location
    chosen = tuned_values(function)
    unchanged, packs = _FunctionIsUnchanged(function, rules), _pack_calls(function)
    scheduled, rule, attempts = try_rules(rules, kernel, context, chosen=chosen, declined=unchanged)
    if rule is None:
        reasons = "\n".join(f"  {attempt}" for attempt in attempts)
        raise PassError(f"no schedule rule takes prim function '@{name}':\n{reasons}", location)
    _check_made(rule, scheduled)
    trace, nodes = _trace_of(rule, scheduled, packs), tuple(names_of(location))
    return scheduled, ScheduleRecord(name, rule, tuple(attempts), trace, False, nodes, choices_of(scheduled))


class _FunctionIsUnchanged:
    """Require that rules that decline leave the function unchanged for the next rule.

    That it is not erased is checked after each rule; after one of a user also that its text is the same.
    """

    def __init__(self, function: ir.OpView | ir.Operation, rules: Sequence[Rule]) -> None:
        self._function = function
        self._name = symbol_name(function)
        self._text = self._print() if any(rule.is_foreign for rule in rules) else ""

    def __call__(self, rule: Rule, declined: Decline) -> None:
        if isinstance(declined, Fault):
            self._erase_unfinished()
        if self._print() != self._text if rule.is_foreign else self._is_erased():
            raise RuleError(
                f"rule '{rule}' at {rule.place} declines '@{self._name}' ({declined}), but has changed it: a rule "
                "declines before Schedule.emit(), or what else replaces the function"
            )

    def _erase_unfinished(self) -> None:
        """Erase what a rule was building in place of the function when it raised."""
        if self._is_erased():
            return
        function = self._function.operation
        for op in list(function.block.operations):
            if op.operation != function and op.operation.name == "func.func" and symbol_name(op) == self._name:
                op.operation.erase()

    def _is_erased(self) -> bool:
        try:
            return not self._function.operation.name
        except RuntimeError:
            return True

    def _print(self) -> str:
        """Return the function as text; empty if it is erased."""
        if self._is_erased():
            return ""
        return str(self._function.operation.get_asm(assume_verified=True, use_local_scope=True))


def _check_made(rule: Rule, function: object) -> None:
    """Require that a rule made a function, and verify that of a user: it replaces the one that the rule was given."""
    if not isinstance(function, (ir.OpView, ir.Operation)):
        raise RuleError(
            f"rule '{rule}' at {rule.place} returned {function!r}: return the scheduled function, as Schedule.emit() "
            "does"
        )
    if rule.is_foreign:
        check_emitted(rule, [function.operation])


def adopt_choices(function: ir.OpView, target: str, session: Session) -> bool:
    """Attach the choices that the user gave for the rule of a function; return whether a rule schedules it.

    Passes before `schedule` that prepare what a rule reads call this. Errors in the primitives are raised.
    """
    name = PrimView(function).name
    user_schedule = _requested_traces(session).get(name)
    if user_schedule is None:
        return True
    function.operation.attributes[TARGET] = ir.StringAttr.get(target)
    try:
        schedule = _replay(function, user_schedule)
        parts = _request(function, schedule, _rules_of(chain(target)))[1] if schedule.applied else None
    except MirloError:
        return False
    return bool(schedule.applied) and parts is None


def packed_parameters(function: ir.OpView, session: Session) -> list[PackedOrder]:
    """Return the orders in which the primitives that the user gave for a function store its parameters.

    Passes before `schedule` store constants so, after `adopt_choices`.
    """
    user_schedule = _requested_traces(session).get(PrimView(function).name)
    if user_schedule is None or GIVEN not in function.operation.attributes:
        return []
    return _replay(function, user_schedule).packed_parameters()


def _rules_of(targets: Sequence[str]) -> list[Rule]:
    """Return the rules of a target chain, in the order in which they are tried."""
    return SCHEDULE.candidates(ANY, targets)


Points = Sequence[Mapping[str, int]]
"""What is worth a measurement: values by the names of choices."""


def points_of(rule: Rule, kernel: Kernel, context: ScheduleContext, otherwise: Points) -> list[dict[str, int]]:
    """Return the tuning space of a rule for a kernel that it takes."""
    declared = tried_points(rule.choices)
    names = {choice.name for choice in rule.choices}
    if rule.space is None:
        return declared or [dict(point) for point in otherwise if names.issuperset(point)]
    space = checked(rule.space, _SPACE, f"rule '{rule}'", RuleError)
    points = [dict(point) for point in space(kernel, context)]
    for point in points:
        check_choices(rule.name, rule.choices, point)
    return points


_SPACE = Expected("a list of choices, each a dict of integers by name", each_is(maps(is_text, is_integer)))


def has_tuning_space(target: str) -> bool:
    """Return whether rules of a target have choices that are worth a measurement."""
    return bool(declared_points(target)) or any(rule.space is not None for rule in _rules_of(chain(target)))


def declared_points(target: str) -> list[dict[str, int]]:
    """Return the values that a target's rules declare to be worth a measurement, one at a time."""
    choices = {choice.name: choice for rule in _rules_of(chain(target)) for choice in rule.choices}
    return tried_points(choices.values())


RequestedTrace = Union["Trace", "Schedule", str, Path, Callable[["Schedule"], object]]
"""The schedule that a user gives: a trace, a file of them, or a function that applies them."""


def _replay(function: ir.OpView | ir.Operation, user_schedule: RequestedTrace) -> Schedule:
    """Return the schedule that the user gave for a function, with its primitives applied.

    The first pass calls the user's function, and others replay its primitives. Blocks that they inline for rules are
    inlined in the function itself, once.
    """
    attributes = function.operation.attributes
    if GIVEN not in attributes:
        schedule = Schedule(function)
        try:
            schedule.replay(user_schedule).claim_rest()
        finally:
            schedule.close()  # the function that it was given to may keep it
        inlined = schedule.inlined if schedule.applied else []
        if inlined:
            inline_for_rules(function, inlined)
        attributes[GIVEN] = ir.StringAttr.get(json.dumps({**schedule.trace.as_json(), INLINED: inlined}))
    content = json.loads(ir.StringAttr(attributes[GIVEN]).value)
    trace = Trace.from_json(content)
    left = [call for call in trace if call.primitive != INLINE or call.arguments[0] not in content[INLINED]]
    schedule = Schedule(function).replay(Trace(left))
    schedule.claim_rest()
    schedule.trace = trace
    return schedule


def _schedule_as_given(
    kernel: Kernel, user_schedule: RequestedTrace, rules: Sequence[Rule], context: ScheduleContext
) -> ScheduleRecord:
    """Apply the primitives that the user gave for a function."""
    function, name, location = kernel.view.op, kernel.view.name, kernel.view.op.location
    try:
        schedule = _replay(function, user_schedule)
        if not schedule.applied:
            del schedule.emit().attributes[GIVEN]
            return ScheduleRecord(name, USER_SCHEDULE, (), schedule.trace, True)
        rule, parts = _request(function, schedule, rules)
        wanted, choices = parts_of(function, WANTED_PARTS), tuned_values(function)
        result = run_rule(rule, Kernel(PrimView(function), parts), context, chosen=choices)
        if isinstance(result, Decline):
            raise ScheduleError(f"rule '{rule.name}' declines: {result}")
        _check_made(rule, result)
        if wanted and len(parts_of(result)) != len(wanted):
            raise ScheduleError(f"apply_rule: the rules of target '{context.target}' schedule whole functions only")
        if wanted:
            del result.operation.attributes[WANTED_PARTS]
        else:
            check_used(rule.name, rule.choices, choices, choices_of(result))
        if GIVEN in result.operation.attributes:
            del result.operation.attributes[GIVEN]
    except (ScheduleError, ChoiceError) as error:
        raise _given_error(name, location, error) from error
    except RuleError as error:
        if not isinstance(error.__cause__, ScheduleError):
            raise
        # The rule of the parts emits the loops of those that primitives arrange.
        raise _given_error(name, location, error.__cause__) from error.__cause__
    return ScheduleRecord(name, rule, (), _with_choices(schedule.trace, _applied_rules(rule, result)), True)


def _with_choices(requested: Trace, chosen: Trace) -> Trace:
    """Return the requested primitives with all choices of their rules, and the rules of the other blocks."""
    by_blocks = {call.arguments[1:]: call for call in chosen if call.arguments[0] != PRIMITIVES_RULE}
    calls = [by_blocks.pop(call.arguments[1:], call) if call.primitive == "apply_rule" else call for call in requested]
    return Trace([*calls, *by_blocks.values()])


def _given_error(name: str, location: ir.Location, error: MirloError) -> PassError:
    return PassError(f"the schedule given for '@{name}': {error}", location)


def _request(
    function: ir.OpView | ir.Operation, schedule: Schedule, rules: Sequence[Rule]
) -> tuple[Rule, ScheduleParts | None]:
    """Attach the choices that the primitives make to a function.

    Return the rule that follows them, and the parts of the schedule if primitives arrange some of the loops.
    """
    applied = schedule.applied
    names = list(dict.fromkeys(rule.name for rule in rules))
    for call in applied:
        name = call.arguments[0]
        if name == ANY_RULE:
            continue
        if name not in names:
            listed = ", ".join(names)
            raise ScheduleError(f"there is no rule '{name}'{nearest(str(name), names)}; the target has {listed}")
        rule = next(rule for rule in rules if rule.name == name)
        check_choices(rule.name, rule.choices, call.named)
    if len(applied[0].arguments) < 2:
        set_tuned(function, applied[0].named)
        return rule, None
    if STAGES not in names:
        raise ScheduleError("apply_rule: the target has no rule for parts of a function")
    parts, choices = schedule.parts(), {call.arguments[1]: call.named for call in applied}
    rule_parts = [RulePart(part.rule, part.blocks, choices.get(part.blocks, {})) for part in parts.parts]
    set_parts(function, rule_parts, WANTED_PARTS)
    has_loops = any(part.rule == PRIMITIVES_RULE for part in rule_parts)
    return next(rule for rule in rules if rule.name == STAGES), parts if has_loops else None


def _pack_calls(function: ir.OpView | ir.Operation) -> list[PrimitiveCallRecord]:
    """Return the primitives that say how parameters of a function are stored."""
    return [
        PrimitiveCallRecord("pack", (f"x{each.argument}", each.order, each.tiles)) for each in packed_orders(function)
    ]


def _trace_of(rule: Rule, function: object, packs: Sequence[PrimitiveCallRecord] = ()) -> Trace:
    """Return the primitives with which a rule makes a function again, of which some parameters are packed."""
    if not isinstance(function, (ir.OpView, ir.Operation)):
        return Trace([PrimitiveCallRecord("apply_rule", (rule.name,))])
    if APPLIED in function.operation.attributes:
        text = ir.StringAttr(function.operation.attributes[APPLIED]).value
        del function.operation.attributes[APPLIED]
        return Trace([*packs, *Trace.from_json(json.loads(text))])
    return _applied_rules(rule, function)


def _applied_rules(rule: Rule, function: ir.OpView | ir.Operation) -> Trace:
    """Return the `apply_rule` with which a rule, or those of its parts, make a function again."""
    if APPLIED in function.operation.attributes:
        del function.operation.attributes[APPLIED]
    parts = parts_of(function)
    if parts:
        return Trace([PrimitiveCallRecord("apply_rule", (part.rule, part.blocks), part.choices) for part in parts])
    used = choices_of(function)
    order = [choice.name for choice in rule.choices if choice.name in used]
    return Trace([PrimitiveCallRecord("apply_rule", (rule.name,), {name: used[name] for name in order})])


def _annotate_work(view: PrimView) -> None:
    """Annotate the function with its operations and the elements that it moves, and with its iterations."""
    work: Dim = 0
    for block in view.blocks:
        work = work + D.product(block.domain) * sum(_counts(op) for op in block.body_ops)
    view.op.attributes[FLOPS] = dim_attributes((work,))[0]
    read = [_reads(view, argument) for argument in view.arguments]
    written = [D.product(dims_of(value.type)) for value in view.returned]
    view.op.attributes[MOVED] = dim_attributes((*read, *written))
    add_extents(view.op, (block.domain for block in view.blocks))


def _reads(view: PrimView, argument: ir.Value) -> Dim:
    """Return the elements of an argument that are read at most; all where that is not known."""
    if not isinstance(argument.type, ir.RankedTensorType):
        return 0
    every = D.product(dims_of(argument.type))
    if any(use.owner.operation.name != "tir.block" for use in argument.uses):
        return every
    reads: Dim = 0
    for block in view.blocks:
        for operand, inside in zip(block.inputs, block.input_arguments, strict=True):
            if operand.value == argument:
                part = _operand_reads(block, operand, inside)
                if part is None:
                    return every
                reads = reads + part
    return every if isinstance(reads, int) and isinstance(every, int) and every < reads else reads


def _operand_reads(block: BlockView, operand: OperandView, inside: ir.Value) -> Dim | None:
    """Return the elements of an operand that are read: those that its axes select, or that the body extracts."""
    if not operand.is_opaque:
        axes = {axis for value in read_map(operand.map, block.domain) for axis in value.variables()}
        return D.product(tuple(block.domain[axis] for axis in sorted(axes)))
    extracts = [use.owner.operation for use in inside.uses]
    if any(op.parent != block.op for op in extracts):  # in a loop: of how many iterations is not known here
        return None
    return D.product(block.domain) * len(extracts)


def _counts(op: ir.Operation) -> bool:
    """Return whether a scalar operation is arithmetic on floats, a product or sum of integers, or a math function."""
    if op.name in _INTEGER:
        return isinstance(op.results[0].type, ir.IntegerType)  # index computations are no arithmetic
    is_float = op.name.startswith("arith.") and op.name.endswith("f") and op.name not in _CASTS
    return op.name.startswith("tir.") or is_float
