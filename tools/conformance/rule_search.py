"""Comparison of the rules of a target with the meanings of operators: cases that each rule takes, in all sizes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field

from mirlo.dialects.context import graph_operations
from mirlo.dialects.core.traits import Trait, traits_of
from mirlo.passes.apply_rules import RULE_WATCH
from mirlo.passes.byoc.operators import is_op, maybe, wildcard
from mirlo.passes.byoc.pattern import Pattern
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.exact.compare_rules import RuleComparison
from mirlo.passes.exact.verdict import DIFFERENT
from mirlo.passes.legalize.conversion import LegalizationRecord
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.rules import LEGALIZE, SCHEDULE, Attempt, Rule, refused_rules
from mirlo.passes.schedule.schedule import ScheduleRecord
from mirlo.passes.targets import HOST, chain, thread_limits
from mirlo.runtime.records import dataclass
from mirlo.tools.conformance.case import TABLE
from mirlo.tools.conformance.case_search import CaseCheck, CaseSearch
from mirlo.tools.conformance.derivations import PatternGraph, graphs_of, with_more_operands

MAX_OPERATORS = 6
"""Operators of which cases for one schedule rule, or for one rule of a trait, are drawn."""
EPILOGUE = "relax.relu", "relax.add"
COUNTS = (16, 64)
"""Operands of an operator that takes any number, where a rule takes none with two."""


def rule_targets(target: str) -> tuple[str, ...]:
    """Return the targets whose rules are those of a target list: its code generators or its host, and their parents."""
    targets = Targets.parse(target)
    names = [generator.name for generator in targets.generators] or list(targets.names)
    return tuple(dict.fromkeys(member for name in names for member in chain(name)[:-1]))


def check_rule(rule: Rule, target: str, operators: Sequence[str]) -> CaseCheck:
    """Check a legalization or schedule rule on graphs of these operators, which it may take.

    A schedule rule that takes nothing is tried once more without the rules before it: `apply_rule` names any of them.
    """
    trusted = trusted_target(target)

    def checked() -> CaseCheck:
        return RuleSearch(name_of_rule(rule), target, trusted, rule=rule, operators=tuple(operators)).check()

    check = checked()
    earlier = _rules_before(rule) if check.untaken and rule.kind == SCHEDULE.kind else []
    if not earlier:
        return check
    with refused_rules(lambda other, arguments: other in earlier):
        return checked()


def trusted_target(target: str) -> str:
    """Return the target that computes references with default rules: the host of a list, or the CPU for a GPU.

    The default schedule is serial loops, which a kernel of a GPU must not be.
    """
    targets = Targets.parse(target).or_host()
    return str(targets.host) if thread_limits(targets.host_target.name) is None else HOST


def _rules_before(rule: Rule) -> list[Rule]:
    """Return the schedule rules of the same target that are tried before this one."""
    rules = SCHEDULE.candidates(rule.subject, (rule.target,))
    return rules[: rules.index(rule)]


def name_of_rule(rule: Rule) -> str:
    """Return the row of the matrix in which a rule is."""
    if rule.kind == SCHEDULE.kind:
        return f"schedule.{rule.name}"
    return rule.subject


def operators_for(rule: Rule, taken: Mapping[str, Collection[str]]) -> list[str]:
    """Return the operators of which cases for a rule are drawn; `taken` has those that it took, with their types."""
    if rule.kind == LEGALIZE.kind:
        known = graph_operations()
        if rule.subject in known:
            return [rule.subject]
        of_trait = [name for name, cls in known.items() if rule.subject in traits_of(cls)]
        return _with_cases(of_trait)[:MAX_OPERATORS]
    return _of_all_types({name: taken[name] for name in _with_cases(taken)}) or _of_each_trait()


def _of_all_types(taken: Mapping[str, Collection[str]]) -> list[str]:
    """Return operators that have all types between them, and others up to the limit, from all parts of the list."""
    left, chosen, covered = dict(taken), list[str](), set[str]()
    while any(set(kinds) - covered for kinds in left.values()):
        best = max(left, key=lambda name: len(set(left[name]) - covered))
        covered |= set(left.pop(best))
        chosen.append(best)
    free = max(0, MAX_OPERATORS - len(chosen))
    rest = list(left)
    return [*chosen, *rest[:: max(1, -(-len(rest) // max(free, 1)))][:free]]


def _with_cases(names: Mapping[str, object] | Sequence[str]) -> list[str]:
    return [name for name in names if name.removeprefix("relax.") in TABLE.makers]


def _of_each_trait() -> list[str]:
    """Return an operator of each trait, for a schedule rule that no usual case took."""
    known = {name: graph_operations()[name] for name in _with_cases(graph_operations())}
    first = (next((name for name, cls in known.items() if trait in traits_of(cls)), None) for trait in Trait)
    return list(dict.fromkeys(name for name in first if name is not None))


@dataclass
class RuleSearch(CaseSearch):
    """The search for cases of one legalization or schedule rule."""

    rule: Rule = field(kw_only=True)
    operators: tuple[str, ...] = ()
    exact: RuleComparison = field(default_factory=RuleComparison)
    """What a legalization rule of a package makes of operators, compared with the default rules on residues."""

    def session_options(self) -> dict[str, object]:
        is_compared = self.rule.kind == LEGALIZE.kind and self.rule.is_foreign
        return {RULE_WATCH: self.exact} if is_compared else {}

    def inexact(self) -> Sequence[str]:
        wrong = (each for each in self.exact.verdicts if each.status == DIFFERENT and each.place == self.rule.place)
        return [f"{each.why}, exactly" for each in wrong][:1]

    def graphs(self) -> tuple[list[PatternGraph], str]:
        return graphs_of(map(_with_epilogue, self.operators))

    def beside_others(self, graphs: Sequence[PatternGraph]) -> list[PatternGraph]:
        """Return graphs with many operands, as two may be too few, and graphs of patterns with an operator."""
        more = [more for count in COUNTS for graph in graphs if (more := with_more_operands(graph, count)) is not None]
        return [*more, *self._in_patterns()]

    def _in_patterns(self) -> list[PatternGraph]:
        """Return the graphs of patterns with one of the operators, as a code generator may take only those."""
        entries = [entry for chosen in Targets.parse(self.target).generators for entry in chosen.entries]
        wanted = [e.pattern for e in entries if not e.is_of_loops and e.operators & set(self.operators)]
        return graphs_of(wanted)[0] if wanted else []

    def passes(self) -> str:
        steps = [str(step) for step in Pipeline(Targets.parse(self.target).or_host().pipeline())]
        last = max((i for i, step in enumerate(steps) if step.startswith(self.rule.kind)), default=len(steps) - 1)
        return ",".join(steps[: last + 1])

    def taken_names(self, notes: Sequence[object]) -> frozenset[str]:
        return frozenset(name for note in _records(notes) if note.rule == self.rule for name in note.names)

    def declined(self, notes: Sequence[object]) -> Iterator[str]:
        return (str(attempt.decline) for attempt in attempts_in(notes) if attempt.rule == self.rule)

    def trusted(self) -> AbstractContextManager[None]:
        """Return a block in which the rules of the target decline, so that the default ones are taken."""
        names = rule_targets(self.target)
        return refused_rules(lambda rule, arguments: rule.kind == self.rule.kind and rule.target in names)


def _records(notes: Sequence[object]) -> Iterator[LegalizationRecord | ScheduleRecord]:
    return (note for note in notes if isinstance(note, (LegalizationRecord, ScheduleRecord)))


def attempts_in(notes: Sequence[object]) -> Iterator[Attempt]:
    """Yield the attempts of legalization and schedule rules that declined."""
    return (attempt for note in _records(notes) for attempt in note.attempts)


def _with_epilogue(name: str) -> Pattern:
    """Return the pattern of an operator, alone and with epilogues that kernels fuse."""
    cls = graph_operations()[name]
    optional = {f.name: maybe(wildcard()) for f in cls._operand_layout.fields if f.kind == "optional"}
    alone = is_op(name)(**optional) if optional else is_op(name)
    if len(cls._result_layout.fields) != 1 or Trait.INTERFACE in cls.TRAITS:
        return alone
    relu, add = EPILOGUE
    return alone | is_op(relu)(alone) | is_op(add)(alone, wildcard())
