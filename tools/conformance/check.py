"""Whether a target computes every operator and intrinsic as numpy does."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from functools import partial

import numpy as np

from mirlo.dialects.core.traits import Trait
from mirlo.dialects.relax import OPS
from mirlo.dialects.tir.intrinsics import INTRINSICS
from mirlo.dialects.tir.own_intrinsics import OWN
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.exact.verdict import EQUAL, OUTSIDE
from mirlo.passes.lower.formats import FORMATS
from mirlo.passes.rules import INTRINSIC, LEGALIZE, SCHEDULE, Attempt, Rule, refused_rules
from mirlo.passes.targets import has_vectors, thread_limits
from mirlo.runtime.records import dataclass
from mirlo.tools.conformance.arguments import intrinsic_arguments, intrinsic_kinds
from mirlo.tools.conformance.case import COLUMNS, TABLE, TOLERANCE, OperatorCase, wide
from mirlo.tools.conformance.case_search import CaseCheck
from mirlo.tools.conformance.derived import derive_cases
from mirlo.tools.conformance.errors import relative_error, ulp_errors
from mirlo.tools.conformance.instructions import check_instructions
from mirlo.tools.conformance.kernels import LANES, ROWS, vector_program
from mirlo.tools.conformance.meanings import FLOAT, INTEGER, WIDE, wrapped
from mirlo.tools.conformance.own import own_checks, own_names, why_unchecked
from mirlo.tools.conformance.patterns import check_patterns, loop_patterns
from mirlo.tools.conformance.programs import ProgramOutcome, TestProgram, intrinsic_program, operator_program, run
from mirlo.tools.conformance.rule_search import check_rule, name_of_rule, operators_for, rule_targets
from mirlo.tools.conformance.search import FoundCase, search, search_loops, usual_kernels
from mirlo.tools.verify.model import can_verify

OK, DECLINED, WRONG, FAILED = "ok", "declined", "wrong", "failed"

NOT_COMPUTED = frozenset(
    f"relax.{name}" for name, op in OPS.items() if Trait.INTERFACE in op.TRAITS or Trait.COLLECTIVE in op.TRAITS
)
"""Operators that have no numbers of their own, or those of several ranks."""

PRODUCTS = ("fma", "fmuladd")
TWO_ROUNDINGS_ULP = 1.01
"""The error of a rounded product and a rounded sum of one sign."""
LOW_PRECISION_ULP = 0.51

Report = Callable[[str], None]
"""Called with the name of each step before it starts, such as "pattern npu.conv, 3 of 12"."""


@dataclass(frozen=True)
class SupportVerdict:
    """The verdict on a target for an operator or intrinsic on an element type."""

    status: str
    detail: str = ""
    """The reason of a decline or failure; what is wrong."""
    error: float = 0.0
    """The largest error: of operators relative to the largest element, of intrinsics in units in the last place."""


@dataclass(frozen=True)
class MatrixEntry:
    """A row of the matrix: `relax.softmax` or `tir.exp`, with a verdict by element type."""

    name: str
    verdicts: dict[str, SupportVerdict]
    is_instruction: bool = False


@dataclass(frozen=True)
class Matrix:
    """The operators and intrinsics that a target supports."""

    target: str
    entries: tuple[MatrixEntry, ...]
    unreached: tuple[tuple[Rule, str], ...] = ()
    """The rules of the target that no case took, of which nothing is known, and why the last case was declined."""
    elsewhere: tuple[tuple[Rule, str], ...] = ()
    """The rules of the target for other machines, which no case takes on this one, and why."""
    unchecked: tuple[tuple[str, str], ...] = ()
    """The intrinsics of plug-ins that the target lowers, and its instructions, that cannot be checked, and why."""
    untaken: tuple[tuple[str, str], ...] = ()
    """The patterns of code generators of which no case was compared, and why."""

    has_patterns: bool = False
    """Whether entries are patterns of code generators, `target.pattern`."""

    def count(self, status: str) -> int:
        return sum(v.status == status for entry in self.entries for v in entry.verdicts.values())


def names() -> list[str]:
    """Return the names of everything that can be checked."""
    derive_cases()
    operators = [f"relax.{name}" for name in sorted(OPS) if f"relax.{name}" not in NOT_COMPUTED]
    operators += sorted(name for name in TABLE.makers if "." in name)  # of plug-ins
    return [*operators, *own_names(), *(f"tir.{name}" for name in INTRINSICS)]


def check_target(
    target: str, only: Sequence[str] | None = None, report: Report = lambda step: None, patterns: bool = True,
    host: bool = True,
) -> Matrix:  # fmt: skip
    """Run all cases of the operators and intrinsics (those in `only`, such as "relax.conv", "tir.exp" or "npu.gemm").

    With `patterns`, cases are drawn from the patterns of code generators too; without `host`, from these alone.
    """
    known = names() if host else []
    wanted = known if only is None else [name for name in only if name in known]
    programs: list[TestProgram] = []
    judges: list[tuple[str, str, Callable[[ProgramOutcome], SupportVerdict]]] = []
    with np.errstate(all="ignore"):
        for name in wanted:
            for kind, program, judge in checks_of(name):
                programs.append(program)
                judges.append((name, kind, judge))
    report(f"0 of {len(programs)} cases of operators and intrinsics")
    outcomes = run(
        programs,
        target,
        lambda done: report(f"{done} of {len(programs)} cases of operators and intrinsics"),
        verify=can_verify(target),
    )
    own = own_rules(target, wanted if only is None else only, schedules=host and only is None)
    rules = RuleResults(target, own, report)
    rules.check(programs, outcomes)
    judges += [(name, kind, judge) for name, kind, judge, _ in rules.judged]
    outcomes += [outcome for *_, outcome in rules.judged]
    untaken: list[tuple[str, str]] = []
    for pattern, cases in _loop_cases(target, outcomes, report) if only is None else ():
        judges += [(case.name, case.kind, partial(_judge_found, case=case)) for case, _ in cases]
        outcomes += [outcome for _, outcome in cases]
        if not cases:
            untaken.append((pattern, "no case was found among contractions and kernels of several blocks"))
    verdicts: dict[str, dict[str, list[SupportVerdict]]] = {name: {} for name in wanted}
    with np.errstate(all="ignore"):
        for (name, kind, judge), outcome in zip(judges, outcomes, strict=True):
            verdicts.setdefault(name, {}).setdefault(kind, []).append(judge(outcome))
    for check in rules.checks.values():
        for kind, found_verdicts in _case_verdicts(check).items():
            verdicts.setdefault(check.name, {}).setdefault(kind, []).extend(found_verdicts)
    checks = list(check_patterns(target, only, report)) if patterns else []
    verdicts |= {check.name: _case_verdicts(check) for check in checks if not check.untaken}
    untaken += [(check.name, check.untaken) for check in checks if check.untaken]
    entries = [MatrixEntry(name, {kind: _worst(v) for kind, v in kinds.items()}) for name, kinds in verdicts.items()]
    left = list(_unchecked(target)) if host and only is None else []
    for checked in check_instructions(target, only, report):
        if checked.verdict.status == OUTSIDE:
            left.append((checked.name, checked.verdict.why))
            continue
        status = SupportVerdict(OK) if checked.verdict.status == EQUAL else SupportVerdict(WRONG, checked.verdict.why)
        entries.append(MatrixEntry(checked.name, {checked.kind: status}, is_instruction=True))
    unreached, elsewhere = tuple(rules.unreached), tuple(rules.elsewhere)
    return Matrix(target, tuple(entries), unreached, elsewhere, tuple(left), tuple(untaken), bool(checks))


def _loop_cases(
    target: str, outcomes: Sequence[ProgramOutcome], report: Report
) -> Iterator[tuple[str, list[tuple[FoundCase, ProgramOutcome]]]]:
    """Yield the patterns of prim functions that no case took, with cases found for them."""
    taken = {pattern for outcome in outcomes for pattern in outcome.patterns}
    for pattern in loop_patterns(target):
        if pattern not in taken:
            report(f"pattern {pattern}, on kernels")
            yield pattern, list(search_loops(pattern, target))


@dataclass
class RuleResults:
    """The outcomes of the rules of a target."""

    target: str
    own: Sequence[Rule]
    report: Report = lambda step: None
    checks: dict[Rule, CaseCheck] = field(default_factory=dict)
    """The cases that were drawn for legalization and schedule rules."""
    judged: list[tuple[str, str, Callable[[ProgramOutcome], SupportVerdict], ProgramOutcome]] = field(
        default_factory=list
    )
    """Further cases: the row and the element type, how they are judged, and their outcome."""
    unreached: list[tuple[Rule, str]] = field(default_factory=list)
    """The rules that no case took, and why."""
    elsewhere: list[tuple[Rule, str]] = field(default_factory=list)
    """The rules for other machines, and why."""

    def check(self, programs: Sequence[TestProgram], outcomes: Sequence[ProgramOutcome]) -> None:
        """Draw cases for each rule, beside the usual ones, whose outcomes are known."""
        reached = {rule for outcome in outcomes for rule in outcome.rules}
        declines = [attempt for outcome in outcomes for attempt in outcome.declines]
        for i, rule in enumerate(self.own):
            self.report(f"{rule.kind} rule {name_of_rule(rule)} of {rule.target}, {i + 1} of {len(self.own)}")
            if rule.kind == INTRINSIC.kind:
                self._check_lanes(rule)
            else:
                self.checks[rule] = check_rule(rule, self.target, _operators_of(rule, programs, outcomes))
        self._check_kernels()
        reached |= {rule for rule, check in self.checks.items() if not check.untaken}
        reached |= {rule for *_, outcome in self.judged for rule in outcome.rules}
        for rule in self.own:
            if rule in reached:
                continue
            machine = [attempt.decline for attempt in declines if attempt.rule == rule and attempt.is_of_machine]
            if machine:
                self.elsewhere.append((rule, str(machine[-1])))
                continue
            self.report(f"{rule.kind} rule {name_of_rule(rule)} of {rule.target}, which no case took")
            for case, outcome in search(rule, declines, self.target):
                self.judged.append((case.name, case.kind, partial(_judge_found, case=case), outcome))
                reached |= outcome.rules
            if rule not in reached and not self._is_replaced(rule, declines):
                self.unreached.append((rule, self._why_unreached(rule, declines)))

    def _check_kernels(self) -> None:
        """Compute kernels of several blocks, which schedule rules take and operators may not become."""
        if all(rule.kind != SCHEDULE.kind for rule in self.own):
            return
        cases = list(usual_kernels())
        verify = can_verify(self.target)
        outcomes = run([case.program for case in cases], self.target, lambda done: None, verify)
        for case, outcome in zip(cases, outcomes, strict=True):
            self.judged.append((case.name, case.kind, partial(_judge_found, case=case), outcome))

    def _check_lanes(self, rule: Rule) -> None:
        """Compute an intrinsic on vectors of all numbers of lanes, where kernels of the target have vectors."""
        host = Targets.parse(self.target).or_host().host_target.name
        if not has_vectors(host) or thread_limits(host) is not None:
            return
        with np.errstate(all="ignore"):
            checks = list(_lane_checks(rule.subject))
        outcomes = run([program for _, _, program, _ in checks], self.target, lambda done: None)
        for (name, kind, _, judge), outcome in zip(checks, outcomes, strict=True):
            self.judged.append((name, kind, partial(_judge_where_taken, judge=judge), outcome))

    def _why_unreached(self, rule: Rule, declines: Sequence[Attempt]) -> str:
        check = self.checks.get(rule)
        own = [str(attempt.decline) for attempt in declines if attempt.rule == rule]
        if check is not None and check.tried:
            return check.untaken
        return f"the last decline: {own[-1]}" if own else "an earlier rule took every case"

    def _is_replaced(self, rule: Rule, declines: Sequence[Attempt]) -> bool:
        """Return whether an inherited rule would take cases if rules nearer to the target did not."""
        names = rule_targets(self.target)
        nearer = names[: names.index(rule.target)]
        if not any(other.target in nearer for other in self.own if other.kind == rule.kind):
            return False
        with refused_rules(lambda other, arguments: other.kind == rule.kind and other.target in nearer):
            if rule.kind != INTRINSIC.kind and not check_rule(rule, self.target, operators_for(rule, {})).untaken:
                return True
            return next(search(rule, declines, self.target), None) is not None


def _operators_of(rule: Rule, programs: Sequence[TestProgram], outcomes: Sequence[ProgramOutcome]) -> list[str]:
    """Return the operators of which graphs for a rule are drawn: those of which it took a case."""
    taken: dict[str, set[str]] = {}
    for program, outcome in zip(programs, outcomes, strict=True):
        if rule in outcome.own_rules:
            name = program.name if "." in program.name else f"relax.{program.name}"
            taken.setdefault(name, set()).update(str(array.dtype) for array in program.arrays[:1])
    return operators_for(rule, taken)


def _lane_checks(
    subject: str,
) -> Iterator[tuple[str, str, TestProgram, Callable[[ProgramOutcome], SupportVerdict]]]:
    """Yield an intrinsic on vectors of one and of two dims."""
    if subject in INTRINSICS:
        is_bool, checks = INTRINSICS[subject].result == "bool", _intrinsic_checks
    elif subject in own_names():
        is_bool, checks = OWN[subject].result == "bool", _own_intrinsic_checks
    else:
        return
    name = subject if "." in subject else f"tir.{subject}"
    for lanes, rows in itertools.product(LANES, (1, ROWS)):
        on_vectors = partial(vector_program, lanes=lanes, rows=rows, is_bool=is_bool)
        for kind, program, judge in checks(subject, on_vectors):
            yield name, kind, program, judge


def _judge_where_taken(outcome: ProgramOutcome, judge: Callable[[ProgramOutcome], SupportVerdict]) -> SupportVerdict:
    """Return a verdict; a number of lanes that all rules decline is one that kernels must not have."""
    verdict = judge(outcome)
    return SupportVerdict(OK) if verdict.status == DECLINED else verdict


def _case_verdicts(check: CaseCheck) -> dict[str, list[SupportVerdict]]:
    """Return the verdicts on the cases of a pattern or a rule, by element type."""
    verdicts: dict[str, list[SupportVerdict]] = {}
    for kind in COLUMNS:
        of_kind = [SupportVerdict(WRONG, wrong) if wrong else SupportVerdict(OK) for wrong in check.kinds.get(kind, ())]
        of_kind += [SupportVerdict(FAILED, failure) for failure in check.failures.get(kind, ())]
        if of_kind:
            verdicts[kind] = of_kind
    return verdicts


def _unchecked(target: str) -> tuple[tuple[str, str], ...]:
    lowered = {rule.subject for rule in INTRINSIC if rule.target in Targets.parse(target).names}
    reasons = {name: why_unchecked(row) for name, row in OWN.items() if name in lowered}
    return tuple((name, reason) for name, reason in reasons.items() if reason is not None)


def schedule_names(target: str) -> list[str]:
    """Return the names by which the schedule rules of a target may be checked alone."""
    listed = rule_targets(target)
    return [name_of_rule(rule) for rule in SCHEDULE if rule.target in listed]


def own_rules(target: str, names: Iterable[str], schedules: bool) -> list[Rule]:
    """Return the rules of a target for these operators and intrinsics, and `schedule.NAME`.

    Those of targets that it derives from are its own. Of several targets these are the rules of the code generators:
    the last one does not compute everything.
    """
    listed, wanted = rule_targets(target), set(names)
    rules = [rule for rule in LEGALIZE if rule.subject in wanted]
    rules += [rule for rule in INTRINSIC if f"tir.{rule.subject}" in wanted or rule.subject in wanted]
    rules += [rule for rule in SCHEDULE if schedules or name_of_rule(rule) in wanted]
    return [rule for rule in rules if rule.target in listed]


def _worst(verdicts: Sequence[SupportVerdict]) -> SupportVerdict:
    order = (OK, DECLINED, WRONG, FAILED)
    return max(verdicts, key=lambda v: (order.index(v.status), v.error))


def checks_of(name: str) -> Iterable[tuple[str, TestProgram, Callable[[ProgramOutcome], SupportVerdict]]]:
    space, _, short = name.partition(".")
    if space == "tir":
        yield from _intrinsic_checks(short)
        return
    if name in OWN:
        yield from _own_intrinsic_checks(name)
        return
    short = short if space == "relax" else name
    for kind in COLUMNS:
        for case in TABLE.cases(short, kind):
            yield kind, operator_program(short, case), lambda outcome, case=case: _judge(outcome, case)  # type: ignore[misc]


_SMALL_INTEGERS = ("int4", "uint4", "int2", "uint2")
"""Integers that are no kind of numpy's own."""


def _judge(outcome: ProgramOutcome, case: OperatorCase) -> SupportVerdict:
    if outcome.error is not None:
        return _not_computed(outcome.error)
    worst = 0.0
    for got, expected in zip(outcome.results, case.expected, strict=True):
        if got.shape != expected.shape:
            return SupportVerdict(WRONG, f"shape {got.shape} instead of {expected.shape}", float("inf"))
        if got.dtype.kind in "biu" or got.dtype.name in _SMALL_INTEGERS:
            count = int((wide(got) != wide(expected.astype(got.dtype))).sum())
            if count:
                return SupportVerdict(WRONG, f"{count} of {got.size} elements differ", float(count))
            continue
        error = relative_error(wide(got), expected)
        bound = max(case.tolerance, TOLERANCE[_name_of(got)], outcome.tolerance)
        if not error <= bound:
            return SupportVerdict(WRONG, f"error {error:.1e}, at most {bound:.0e} is allowed", error)
        worst = max(worst, error)
    return SupportVerdict(OK, error=worst)


def _judge_own(outcome: ProgramOutcome, judged: Callable[[ProgramOutcome], str | float]) -> SupportVerdict:
    if outcome.error is not None:
        return _not_computed(outcome.error)
    verdict = judged(outcome)
    return (
        SupportVerdict(WRONG, verdict, float("inf")) if isinstance(verdict, str) else SupportVerdict(OK, error=verdict)
    )


def _judge_found(outcome: ProgramOutcome, case: FoundCase) -> SupportVerdict:
    if case.case is not None:
        return _judge(outcome, case.case)
    return _judge_intrinsic(case.name.removeprefix("tir."), case.kind, case.program.arrays, outcome)


def _name_of(array: np.ndarray) -> str:
    return {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}[array.dtype.name]


_REASON = re.compile(
    r"^\s+(?:.+?:\d+: )?(\S+ \[\S+\]: .*|no rule is registered .*)$|(no rule lowers .*: none is registered for [^;]*)",
    re.MULTILINE,
)
"""What legalization, the lowering of intrinsics and schedules say where every rule declines."""


def _not_computed(error: str) -> SupportVerdict:
    """Return a decline if the error lists the reasons of rules, else a failure."""
    reasons = _REASON.findall(error)
    if reasons:
        return SupportVerdict(DECLINED, "; ".join(dict.fromkeys(one or other for one, other in reasons)))
    return SupportVerdict(FAILED, error.strip().splitlines()[0])


ProgramOf = Callable[[str, Sequence[np.ndarray]], TestProgram]


def _intrinsic_checks(
    name: str, program_of: ProgramOf = intrinsic_program
) -> Iterable[tuple[str, TestProgram, Callable[[ProgramOutcome], SupportVerdict]]]:
    for kind in intrinsic_kinds(name):
        program = program_of(name, intrinsic_arguments(name, kind))
        arrays = program.arrays
        yield kind, program, lambda outcome, a=arrays, k=kind: _judge_intrinsic(name, k, a, outcome)  # type: ignore[misc]


def _own_intrinsic_checks(
    name: str, program_of: ProgramOf = intrinsic_program
) -> Iterable[tuple[str, TestProgram, Callable[[ProgramOutcome], SupportVerdict]]]:
    for kind, program, judged in own_checks(name, program_of):
        yield kind, program, lambda outcome, judged=judged: _judge_own(outcome, judged)  # type: ignore[misc]


def _judge_intrinsic(name: str, kind: str, arrays: Sequence[np.ndarray], outcome: ProgramOutcome) -> SupportVerdict:
    if outcome.error is not None:
        return _not_computed(outcome.error)
    got = outcome.results[0]
    reference, bound = intrinsic_reference(name, arrays), intrinsic_bound(name, kind)
    if bound is None:
        count = int((got != reference.astype(got.dtype)).sum())
        return (
            SupportVerdict(WRONG, f"{count} of {got.size} results differ", float(count))
            if count
            else SupportVerdict(OK)
        )
    errors = ulp_errors(got, reference, kind, least_unit(name))
    if name in PRODUCTS:
        # Where the product cancels, a reference of 64 bits is no reference.
        errors = np.where(np.abs(reference) < FORMATS[kind].smallest_normal, 0, errors)
    worst = int(np.argmax(errors))
    if not errors[worst] <= bound:
        at = ", ".join(f"{float(a[worst])!r}" for a in arrays)
        actual, wanted = float(got[worst]), float(reference[worst])
        detail = (
            f"{name}({at}) = {actual!r} instead of {wanted!r}: {errors[worst]:.1f} ulp, at most {bound} are allowed"
        )
        return SupportVerdict(WRONG, detail, float(errors[worst]))
    return SupportVerdict(OK, error=float(errors[worst]))


def intrinsic_bound(name: str, kind: str) -> float | None:
    """Return the allowed error of an intrinsic in units in the last place; None if it must be exact."""
    if name in INTEGER or INTRINSICS[name].result == "bool":
        return None
    if name == "fmuladd":
        return TWO_ROUNDINGS_ULP
    return FLOAT[name].ulp.get(kind, LOW_PRECISION_ULP) if name in FLOAT else LOW_PRECISION_ULP


def least_unit(name: str) -> float:
    """Return the number whose units in the last place are the smallest that errors of an intrinsic are counted in."""
    return FLOAT[name].least if name in FLOAT else 0.0


def intrinsic_reference(name: str, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Compute an intrinsic in the widest float type there is, or in integers."""
    if name in INTEGER:
        bits = 8 * arrays[0].dtype.itemsize
        return np.array([wrapped(INTEGER[name](bits, *map(int, row)), bits) for row in zip(*arrays, strict=True)])
    numbers = [array.astype(WIDE) if array.dtype.kind not in "iu" else array for array in arrays]
    if name in PRODUCTS:
        return numbers[0] * numbers[1] + numbers[2]
    if name == "ldexp":
        return np.asarray(np.ldexp(numbers[0], arrays[1]))
    if name == "nextafter":
        x, y = arrays
        return np.where(x == y, y, np.nextafter(x, y)).astype(WIDE)
    return FLOAT[name].function(*numbers)
