"""The rule system, shared by legalization, intrinsic lowering and scheduling.

Rules are registered for a subject (an operator, an intrinsic, a kind of prim function) on a target. For one subject
they are tried in order: a user's own map first, then along the target chain (`mydsp → llvm → default`), within a
target by priority. The first that accepts wins. A rule that declines returns `decline("why", fact=...)`; the reason is
recorded and the next rule is tried. Returning None or raising an exception is a bug in the rule, reported as an error
that names it.

    @legalize("relax.softmax", target="mydsp")                  # by decorator
    LEGALIZE.table({"relax.exp": fast_exp}, target="mydsp")     # by table

A rule for a `Trait` is one for every operator that declares the trait, tried after those for the operator by name.

Several rules for one subject on one target are *strategies* with names: a strategy requested by name is tried before
the others of the chain (`preferring`).
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field
from functools import cache, cached_property, wraps
from types import MappingProxyType
from typing import Any, ParamSpec, Protocol, TypeVar, runtime_checkable

from mirlo.dialects.core.dims import UndecidedDim
from mirlo.dialects.core.installed import ModuleIndex
from mirlo.dialects.core.traits import Trait, traits_of
from mirlo.passes.rule_choices import (
    LISTED,
    NO_ARGUMENTS,
    Choice,
    ChoiceArguments,
    ChoiceValues,
    NamedChoice,
    arguments_of,
)
from mirlo.passes.rule_choices import RuleError as RuleError
from mirlo.runtime.callbacks import describe_raised, is_foreign, place_of
from mirlo.runtime.records import dataclass

DEFAULT = "default"
"""The last target of every chain."""
ANY = "any"
"""The subject of schedule rules, which are tried for every prim function."""
NOTHING_CHOSEN: ChoiceValues = MappingProxyType({})
CUSTOM = "custom"
"""Stands for the target of rules that were passed to one compilation."""


@dataclass(frozen=True)
class Decline:
    """Why a rule does not apply: a reason, and the facts it depends on."""

    reason: str
    facts: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        facts = ", ".join(f"{name}={value}" for name, value in self.facts.items())
        return f"{self.reason} ({facts})" if facts else self.reason


class NoMatch(Decline):
    """The decline of a rule whose pattern does not match."""


class OtherMachine(Decline):
    """The decline of a rule that is for other machines of its target."""


class Fault(Decline):
    """The decline of a rule of Mirlo that raised an exception, or whose result cannot replace the operator."""


def decline(reason: str, **facts: object) -> Decline:
    """Return a decline: the result of a rule that does not apply."""
    return Decline(reason, facts)


def decline_machine(reason: str, **facts: object) -> Decline:
    """Return the decline of a rule that no case can take on this machine, such as one that lacks an instruction."""
    return OtherMachine(reason, facts)


def decline_undecided(undecided: UndecidedDim) -> Decline:
    """Return the decline of a rule that has to know the value of a dynamic dim."""
    return decline(
        f"its choices need sizes that are known at run time only: {undecided}; `isinstance(dim, int)` shows whether a "
        "dim is a number, and `dims=` of compile sets a symbol"
    )


RuleFunction = Callable[..., object]
TuningSpace = Callable[[Any, Any], Sequence[Mapping[str, int]]]
"""Returns what is worth a measurement for a kernel that a schedule rule takes, likeliest first: values by the names of
its choices. It is called as the rule is, with a kernel and its context."""
PartPlanner = Callable[..., Any]
"""Plans consecutive blocks of a prim function, or declines; arguments after those of the target are choices."""
Registered = TypeVar("Registered", bound=RuleFunction)


@dataclass(frozen=True)
class Rule:
    """A function registered for a subject on a target."""

    kind: str
    subject: str
    target: str
    function: RuleFunction
    priority: int = 0
    name: str = ""
    arguments: ChoiceArguments = NO_ARGUMENTS
    """For a schedule rule: how it takes what a caller chooses."""
    space: TuningSpace | None = None
    """For a schedule rule: what is measured, where the values that its choices declare are not all that is known."""
    planner: PartPlanner | None = None
    """For a schedule rule that also takes parts of functions: what plans them, with the same choices."""
    producers: frozenset[str] | None = None
    """For a rule of graphs: operators one of which computes an operand, or the rule declines; None where any may."""

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Return the choices of the rule."""
        return self.arguments.choices

    @cached_property
    def place(self) -> str:
        """Return the `file:line` of the rule's definition."""
        return place_of(self.function) or "<unknown>"

    @property
    def summary(self) -> str:
        """Return the first line of the rule's docstring, or of its module's."""
        module = sys.modules.get(getattr(self.function, "__module__", ""))
        text = inspect.getdoc(self.function) or (module.__doc__ if module is not None else None)
        return (text or "").strip().split("\n")[0]

    @cached_property
    def is_foreign(self) -> bool:
        """Return whether the rule is not part of Mirlo."""
        return is_foreign(self.function)

    def __str__(self) -> str:
        return f"{self.name} for {self.subject} on {self.target}"


@dataclass(frozen=True)
class Attempt:
    """A rule that was tried and declined."""

    rule: Rule
    decline: Decline

    @property
    def is_of_machine(self) -> bool:
        """Return whether the rule is for other machines."""
        return isinstance(self.decline, OtherMachine)

    def __str__(self) -> str:
        return f"{self.rule.name} [{self.rule.target}]: {self.decline}"


Given = Mapping[str, "RuleFunction | Sequence[RuleFunction]"]
"""Rules of a caller, by subject: one, or several in the order in which they are tried."""


@runtime_checkable
class RulePattern(Protocol):
    """A pattern of the operators that a rule rewrites (`mirlo.passes.byoc.pattern`)."""

    def roots(self) -> frozenset[str] | None: ...
    def producers(self, root: str) -> frozenset[str] | None: ...
    def rule(self, replacement: RuleFunction) -> RuleFunction: ...


class RuleBook:
    """All registered rules of one kind."""

    def __init__(self, kind: str, positional: int | None = None, takes_patterns: bool = False):
        self.kind = kind
        self.takes_patterns = takes_patterns
        """Whether a rule may be for a pattern: its builder can match one."""
        self._positional = positional
        """How many arguments rules are called with before those that are choices; None where there are no choices."""
        self._rules: dict[tuple[str, str], list[Rule]] = {}
        self._subjects: set[str] = set()
        self._indices: list[ModuleIndex] = []

    def defer(self, index: ModuleIndex) -> None:
        """Import the modules of an index when rules for their subjects are first requested."""
        if index not in self._indices:
            self._indices.append(index)

    def add(
        self,
        subject: str,
        target: str,
        function: RuleFunction,
        priority: int = 0,
        name: str = "",
        space: TuningSpace | None = None,
        planner: PartPlanner | None = None,
        producers: frozenset[str] | None = None,
    ) -> Rule:
        """Register a rule, named after the function unless a name is given."""
        arguments = self._arguments(function)
        named = name or name_of(function)
        rule = Rule(self.kind, subject, target, function, priority, named, arguments, space, planner, producers)
        present = self._rules.setdefault((subject, target), [])
        self._subjects.add(subject)
        for other in present:
            if other.name == rule.name and other.priority == priority and not same_place(other.function, function):
                raise ValueError(f"{self.kind} rule '{rule}' is registered twice: at {other.place} and at {rule.place}")
        # Registered again from the same place, a cell of a notebook say, a rule replaces the former one.
        present[:] = [other for other in present if (other.name, other.priority) != (rule.name, priority)]
        present.append(rule)
        present.sort(key=lambda r: (-r.priority, *self._rank(r)))
        return rule

    def _rank(self, rule: Rule) -> tuple[int, int]:
        """Return the rank of a rule among those of equal priority, which does not depend on the order of imports."""
        module = str(getattr(rule.function, "__module__", ""))
        ranks = ((i, index.rank(module)) for i, index in enumerate(self._indices))
        return next(((i, rank) for i, rank in ranks if rank is not None), (len(self._indices), 0))

    def _arguments(self, function: RuleFunction) -> ChoiceArguments:
        return NO_ARGUMENTS if self._positional is None else arguments_of(function, self._positional)

    def forget(self, module: str) -> None:
        """Remove the rules that are functions of a module."""
        for rules in self._rules.values():
            rules[:] = [rule for rule in rules if getattr(rule.function, "__module__", None) != module]

    def table(self, rules: Given, target: str = DEFAULT, priority: int = 0) -> None:
        """Register rules by subject."""
        for subject, functions in rules.items():
            for function in functions_of(functions):
                self.add(subject, target, function, priority)

    def _load(self, subject: str) -> tuple[str, ...]:
        """Import the modules with rules for an operator or for one of its traits; return these traits."""
        traits = self._traits_of(subject)
        for index in self._indices:
            for key in (subject, *traits):
                index.load(key)
        return traits

    def subjects(self) -> set[str]:
        """Return the subjects of all rules."""
        return {rule.subject for rule in self}

    def foreign(self) -> Rule | None:
        """Return a registered rule that is not part of Mirlo, or None."""
        return next((rule for rule in self.imported() if rule.is_foreign), None)

    def __iter__(self) -> Iterator[Rule]:
        """Iterate over all rules, those of one subject and target in the order in which they are tried."""
        for index in self._indices:
            index.load_all()
        return self.imported()

    def imported(self) -> Iterator[Rule]:
        """Iterate over the rules of imported modules: those of users, and those of Mirlo that were requested."""
        return (rule for rules in self._rules.values() for rule in rules)

    def candidates(self, subject: str, chain: Iterable[str], custom: Given | None = None) -> list[Rule]:
        """Return rules for this subject, in the order in which they are tried."""
        result = []
        traits = self._load(subject)
        if custom and subject in custom:
            result += [
                Rule(self.kind, subject, CUSTOM, function, name=name_of(function), arguments=self._arguments(function))
                for function in functions_of(custom[subject])
            ]
        for target in chain:
            result += self._rules.get((subject, target), [])
            for trait in traits:
                result += self._rules.get((trait, target), [])
        return result

    def covers(self, subject: str) -> bool:
        """Return whether there are rules for this subject, by name or by trait."""
        traits = self._load(subject)
        return subject in self._subjects or not self._subjects.isdisjoint(traits)

    def _traits_of(self, subject: str) -> tuple[str, ...]:
        """Return the traits of an operator for which there are rules, in the order of `Trait`."""
        # Imported here: targets are described by rule books, and a cached model needs no bindings of MLIR.
        from mirlo.dialects.context import operation_class

        cls = operation_class(subject) if "." in subject else None
        return _in_order(traits_of(cls)) if cls is not None else ()

    def decorator(
        self,
        *subjects: str | RulePattern,
        target: str = DEFAULT,
        priority: int = 0,
        name: str = "",
        space: TuningSpace | None = None,
        planner: PartPlanner | None = None,
        producers: Sequence[str] = (),
    ) -> Callable[[Registered], Registered]:
        """Register the decorated function for these subjects; for a pattern, for the operators at its root."""
        if not subjects or not all(isinstance(subject, (str, RulePattern)) for subject in subjects):
            # @legalize without parentheses would otherwise silently register nothing.
            raise TypeError(f'a {self.kind} rule needs the names that it is for: @{self.kind}("name", target=...)')
        if not self.takes_patterns and not all(isinstance(subject, str) for subject in subjects):
            raise TypeError(
                f"a {self.kind} rule is for operators by name, found a pattern: a pattern is for a graph's rule, "
                "@rewriter"
            )
        if len(subjects) > 1 and not all(isinstance(subject, str) for subject in subjects):
            raise TypeError(f"a {self.kind} rule has one pattern: join several by |")

        def register(function: Registered) -> Registered:
            for subject in subjects:
                if isinstance(subject, str):
                    needed = frozenset(producers) or None
                    self.add(subject, target, function, priority, name, space, planner, needed)
                    continue
                roots = subject.roots()
                if roots is None:
                    raise TypeError(f"{self.kind} rule '{name_of(function)}': any operator may be the pattern's root")
                for root in sorted(roots):
                    self.add(root, target, subject.rule(function), priority, name, producers=subject.producers(root))
            return function

        return register


@cache
def _in_order(traits: frozenset[Trait]) -> tuple[str, ...]:
    return tuple(trait for trait in Trait if trait in traits)


def name_of(function: RuleFunction) -> str:
    """Return the default name of a rule."""
    return getattr(function, "__name__", type(function).__name__)


def same_place(first: object, second: object) -> bool:
    """Return whether two functions are one definition that was executed twice: of one name in one module."""
    definitions = [(getattr(f, "__module__", None), getattr(f, "__qualname__", None)) for f in (first, second)]
    return first is second or None not in definitions[0] and definitions[0] == definitions[1]


def functions_of(functions: RuleFunction | Sequence[RuleFunction]) -> Sequence[RuleFunction]:
    return [functions] if callable(functions) else functions


T = TypeVar("T")
P = ParamSpec("P")
RuleObserver = Callable[[Rule, "tuple[object, ...]", "bool | None"], None]
"""Called with a rule and its arguments, with None before it runs, then with whether it accepted."""
_observers: list[RuleObserver] = []


@contextmanager
def _listed(entries: list[T], entry: T) -> Iterator[None]:
    """Append an entry to a list while a block runs."""
    entries.append(entry)
    try:
        yield
    finally:
        entries.remove(entry)


def observed_rules(observer: RuleObserver) -> AbstractContextManager[None]:
    """Add an observer of the rules of every kind that run in the block."""
    return _listed(_observers, observer)


Refusal = Callable[[Rule, "tuple[object, ...]"], bool]
"""Called with a rule and its arguments; returns whether the rule must decline."""
_refusals: list[Refusal] = []


def refused_rules(refusal: Refusal) -> AbstractContextManager[None]:
    """Add a filter of rules of every kind in the block: refused ones decline, and the next ones are tried."""
    return _listed(_refusals, refusal)


def note_rule(rule: Rule, arguments: tuple[object, ...], accepted: bool | None) -> None:
    """Notify observers that a rule runs, or whether it accepted."""
    for observer in _observers:
        observer(rule, arguments, accepted)


def run_rule(rule: Rule, *arguments: object, empty: bool = False, chosen: ChoiceValues = NOTHING_CHOSEN) -> Any:
    """Call a rule and return its result; an exception in it, or None, becomes an error that names the rule.

    `chosen` are values for choices, of which the rule takes its own.
    """
    if any(refusal(rule, arguments) for refusal in _refusals):
        return decline("it is left out on request")
    if _observers:
        note_rule(rule, arguments, None)
    outcome = _outcome(rule, arguments, empty, chosen)
    if _observers:
        note_rule(rule, arguments, not isinstance(outcome, Decline))
    return outcome


class RuleWarning(RuntimeWarning):
    """A fault of a rule of Mirlo without which the model is compiled.

    `warnings.simplefilter("error", RuleWarning)` makes it an error, as Mirlo's tests do.
    """


DISPENSABLE = frozenset({"recognize", "simplify", "combine", "layout", "schedule"})
"""The kinds of rules without which every model compiles, too: a kernel has another schedule."""


def fault(rule: Rule, problem: str, error: Exception | None = None) -> Fault:
    """Return the decline for a fault of a rule of Mirlo that compilations can do without; raise an error for others.

    The fault is a warning with the rule's name, or an error where filters of warnings say so.
    """
    text = f"rule '{rule}' at {rule.place} {problem}"
    if rule.is_foreign or rule.kind not in DISPENSABLE:
        raise RuleError(text) from error
    try:
        warnings.warn(f"{text}: the model is compiled without it; this is a bug of Mirlo", RuleWarning, stacklevel=2)
    except RuleWarning:
        raise RuleError(text) from error
    return Fault(problem)


def _outcome(rule: Rule, arguments: tuple[object, ...], empty: bool, chosen: ChoiceValues) -> object:
    try:
        named = rule.arguments.bind(chosen) if chosen else {}
        outcome = rule.function(*arguments, **named)
    except (RuleError, MemoryError):
        raise
    except UndecidedDim as undecided:
        return decline_undecided(undecided)
    except Exception as error:
        if getattr(error, "location", None) is not None:
            raise  # an error about a location in the user's model, raised on purpose
        return fault(rule, f"raised {describe_raised(error)}", error)
    if outcome is None and not empty:
        return fault(rule, "returned nothing: return a result or decline('why')")
    return outcome


def deciding(function: Callable[P, T]) -> Callable[P, T | Decline]:
    """Decorate a part of a rule so that it declines if its choices need sizes known at run time only."""

    @wraps(function)
    def wrapped(*arguments: P.args, **named: P.kwargs) -> T | Decline:
        try:
            return function(*arguments, **named)
        except UndecidedDim as undecided:
            return decline_undecided(undecided)

    return wrapped


def try_rules(
    rules: Iterable[Rule],
    *arguments: object,
    empty: bool = False,
    chosen: ChoiceValues = NOTHING_CHOSEN,
    declined: Callable[[Rule, Decline], None] | None = None,
) -> tuple[Any, Rule | None, list[Attempt]]:
    """Return result and rule of the first rule that accepts, and the attempts before it.

    With `empty`, the subject has no results. Each rule takes its own choices of `chosen`. `declined` is called after
    each rule that declines.
    """
    attempts: list[Attempt] = []
    rules = list(rules) if chosen else rules
    for rule in rules:
        outcome = run_rule(rule, *arguments, empty=empty, chosen=_chosen_for(rule, rules, chosen))
        if not isinstance(outcome, Decline):
            return outcome, rule, attempts
        if declined is not None:
            declined(rule, outcome)
        attempts.append(Attempt(rule, outcome))
    return None, None, attempts


def _chosen_for(rule: Rule, rules: Iterable[Rule], chosen: ChoiceValues) -> ChoiceValues:
    """Return choices without values that are for another rule, which allows them where this one does not."""
    if not chosen:
        return chosen
    rejected = {c.name for c in rule.choices if c.name in chosen and not c.allows(chosen[c.name])}
    if not rejected:
        return chosen
    allowed = {c.name for other in rules for c in other.choices if c.name in rejected and c.allows(chosen[c.name])}
    return {name: value for name, value in chosen.items() if name not in allowed}


def preferring(rules: Sequence[Rule], name: str) -> list[Rule]:
    """Return the rules with those of a name first, but after a caller's own."""
    return sorted(rules, key=lambda rule: (rule.target != CUSTOM, rule.name != name))


LEGALIZE = RuleBook("legalize")
INTRINSIC = RuleBook("intrinsic")
SCHEDULE = RuleBook("schedule", positional=2)


def legalize(
    *operators: str, target: str = DEFAULT, priority: int = 0, name: str = ""
) -> Callable[[Registered], Registered]:
    """Register a legalization: `f(op, builder)` returns the values that replace the operator's results.

    `name` is its name as a strategy, by default the name of the function.
    """
    return LEGALIZE.decorator(*operators, target=target, priority=priority, name=name)


def intrinsic(*names: str, target: str = DEFAULT, priority: int = 0) -> Callable[[Registered], Registered]:
    """Register the lowering of intrinsics: `f(op, builder)` returns the value that replaces `tir.<name>`.

    Names may include `tir.`.
    """
    return INTRINSIC.decorator(*(name.removeprefix("tir.") for name in names), target=target, priority=priority)


def schedule(
    *functions: object,
    target: str = DEFAULT,
    priority: int = 0,
    name: str = "",
    space: TuningSpace | None = None,
    choices: Sequence[NamedChoice] = (),
    planner: PartPlanner | None = None,
) -> Callable[[Registered], Registered]:
    """Register a schedule: `f(kernel, context)` returns the prim function as loops over buffers.

    Further arguments are choices that callers may make instead of the rule: `size: Annotated[int, Choice(...)] = 16`.
    Tuning measures the values that these declare, or the result of `space(kernel, context)`. A rule that also takes
    parts of functions has a `planner` of consecutive blocks.
    """
    if functions:
        raise TypeError("a schedule rule is tried for every prim function: write @schedule(target=...), without names")
    register = SCHEDULE.decorator(ANY, target=target, priority=priority, name=name, space=space, planner=planner)
    if not choices:
        return register
    warnings.warn(
        "@schedule(choices=[...]): choices are arguments of a rule now, size: Annotated[int, Choice(...)] = 16",
        DeprecationWarning,
        stacklevel=2,
    )

    def register_with_choices(function: Registered) -> Registered:
        function.__dict__[LISTED] = tuple(each.choice() for each in choices)
        return register(function)

    return register_with_choices


RECOGNIZE = RuleBook("recognize", takes_patterns=True)
SIMPLIFY = RuleBook("simplify", takes_patterns=True)
COMBINE = RuleBook("combine", takes_patterns=True)
LAYOUT = RuleBook("layout", takes_patterns=True)
RULE_BOOKS = (LEGALIZE, INTRINSIC, SCHEDULE, RECOGNIZE, SIMPLIFY, COMBINE, LAYOUT)


def recognize(
    *operators: str | RulePattern, priority: int = 0, producers: Sequence[str] = ()
) -> Callable[[Registered], Registered]:
    """Register a simplification that recognizes an operator in its decomposed form; tried before all others."""
    return RECOGNIZE.decorator(*operators, priority=priority, producers=producers)


def simplify(
    *operators: str | RulePattern, priority: int = 0, producers: Sequence[str] = ()
) -> Callable[[Registered], Registered]:
    """Register a simplification: `f(op, rewriter)` returns the values that replace the operator's results.

    For a pattern, `f(match, rewriter)` returns those of the match's root. It is called only where one of `producers`
    computes an operand, if there are any.
    """
    return SIMPLIFY.decorator(*operators, priority=priority, producers=producers)


def combine(*operators: str | RulePattern, priority: int = 0) -> Callable[[Registered], Registered]:
    """Register a simplification that merges operators which patterns of code generators name one by one.

    It runs on the operators that no code generator took.
    """
    return COMBINE.decorator(*operators, priority=priority)


def layout(*operators: str, priority: int = 0, producers: Sequence[str] = ()) -> Callable[[Registered], Registered]:
    """Register how an operator moves through a layout change: a simplification run by `convert-layout`."""
    return LAYOUT.decorator(*operators, priority=priority, producers=producers)
