"""Choices of schedule rules, declared once: as annotations of a rule's arguments, or of the fields of a dataclass.

    @schedule(target="mychip")
    def tiles(kernel, context, size: Annotated[int, Choice(range(1, 65), "rows of a tile")] = 16): ...

An argument that is a dataclass of such fields takes several choices; `**values` takes all choices for a function.
Arguments of callers, checks, tuning and the output of `mirlo explain` derive from the declarations.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass, replace
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from mirlo.runtime.errors import MirloError
from mirlo.runtime.records import dataclass

ChoiceValue = int | tuple[int, ...]
"""An integer, or one for each loop."""
ChoiceValues = Mapping[str, ChoiceValue]


class RuleError(MirloError, RuntimeError):
    """Raised for a rule that misbehaves, or a subject that every rule declined."""

    error_code = "MIR0407"
    remedy = "Correct the rule at the file and line that the message names: return a result, or `decline(...)`."


class ChoiceError(RuleError, ValueError):
    """Raised for a value that a rule does not allow."""

    error_code = "MIR0408"
    remedy = "Give a choice a value that the rule declares; `mirlo explain schedule` lists them."


@dataclass(frozen=True)
class Choice:
    """A value that a schedule rule chooses, and that a caller may choose instead."""

    allowed: range | tuple[int, ...]
    summary: str
    tried: tuple[int, ...] = ()
    """The values that tuning measures, unless the target has a tuning space of its own, which may add others."""
    is_per_loop: bool = False
    """Whether there may be a list of values, one for each loop."""
    name: str = ""
    """The name of the argument or field; the declaration leaves it out."""
    default: object = None
    """The value without a caller's choice: None, or an empty tuple, where the rule decides for each function."""
    is_flag: bool = False
    """Whether the rule takes a bool; derived from the type."""
    is_capped: bool = False
    """Whether the rule takes all smaller values for a function, and the largest that fits in place of a larger one."""

    @property
    def range_text(self) -> str:
        """Return the allowed values as text; a flag is 1 or 0, as in traces and databases."""
        if self.is_flag:
            return "0 or 1"
        if isinstance(self.allowed, range):
            return f"an integer from {self.allowed.start} to {self.allowed.stop - 1}"
        return f"one of {', '.join(map(str, self.allowed))}"

    def allows(self, value: object) -> bool:
        """Return whether the rule allows a value for any function."""
        listed = value if isinstance(value, tuple) and self.is_per_loop and value else (value,)
        return all(isinstance(each, int) and not isinstance(each, bool) and each in self.allowed for each in listed)

    def check(self, value: object) -> None:
        """Reject a value that the rule does not allow."""
        if not self.allows(value):
            lists = ", or a list of one for each loop" if self.is_per_loop else ""
            shown = list(value) if isinstance(value, tuple) else value
            raise ChoiceError(f"{self.name}: expected {self.range_text}{lists}, found {shown!r}")

    def argument(self, value: ChoiceValue) -> object:
        """Return a checked value in the form in which the rule takes it."""
        self.check(value)
        if self.is_per_loop:
            return value if isinstance(value, tuple) else (value,)
        return bool(value) if self.is_flag else value


@dataclass(frozen=True)
class NamedChoice:
    """A choice with its name, for `@schedule(choices=[...])`; `RuleChoice` is its former name, for one version."""

    name: str
    allowed: range | tuple[int, ...]
    summary: str
    is_per_loop: bool = False

    def choice(self) -> Choice:
        """Return the choice as arguments of rules declare it."""
        return Choice(self.allowed, self.summary, is_per_loop=self.is_per_loop, name=self.name)


@dataclass(frozen=True)
class ChoiceArguments:
    """The arguments of a rule that are choices."""

    single: tuple[Choice, ...] = ()
    """Those that are arguments."""
    grouped: tuple[tuple[str, type], ...] = ()
    """Arguments that are dataclasses of choices, with their types."""
    listed: tuple[Choice, ...] = ()
    """Those of `@schedule(choices=[...])`, which a rule reads with `tuned_values`."""
    takes_all: bool = False
    """Whether the rule takes all choices of a function as they are, for the rules that it plans parts by."""

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Return all declared choices."""
        grouped = (choice for _, kind in self.grouped for choice in choices_of_type(kind))
        return (*self.single, *grouped, *self.listed)

    def bind(self, values: ChoiceValues) -> dict[str, Any]:
        """Return the arguments for a call of the rule; choices of other rules are left out."""
        if self.takes_all:
            return dict(values)
        bound = {choice.name: choice.argument(values[choice.name]) for choice in self.single if choice.name in values}
        return {**bound, **{name: bind_choices(kind, values) for name, kind in self.grouped}} if values else bound


LISTED = "listed_choices"
"""The attribute of a rule with the choices of `@schedule(choices=[...])`."""
NO_ARGUMENTS = ChoiceArguments()


def bind_choices(kind: type[Any], values: ChoiceValues) -> Any:
    """Return a dataclass of choices with these values; values of other names are left out."""
    return kind(**{c.name: c.argument(values[c.name]) for c in choices_of_type(kind) if c.name in values})


def choice_values(choices: object) -> dict[str, ChoiceValue]:
    """Return the values that are chosen in a dataclass of choices."""
    values: dict[str, ChoiceValue] = {}
    for choice in choices_of_type(type(choices)):
        value = getattr(choices, choice.name)
        if isinstance(value, tuple) and value:
            values[choice.name] = uniform(value)
        elif isinstance(value, int):
            values[choice.name] = int(value)
    return values


def tuning_point(choices: object) -> dict[str, int]:
    """Return the values of a dataclass of choices as a point of a tuning space, which has one for each choice."""
    return {name: value for name, value in choice_values(choices).items() if isinstance(value, int)}


def tried_points(choices: Iterable[Choice]) -> list[dict[str, int]]:
    """Return the values that choices declare for measurements, one choice at a time."""
    return [{choice.name: value} for choice in choices for value in choice.tried if value != choice.default]


def tried_values(kind: type, name: str) -> tuple[int, ...]:
    """Return the values of a choice that tuning measures."""
    return next(choice.tried for choice in choices_of_type(kind) if choice.name == name)


def uniform(values: tuple[int, ...]) -> ChoiceValue:
    """Return the values of some loops as one choice: one value if all are equal."""
    return values[0] if len(set(values)) == 1 else values


def choices_of_type(kind: type) -> tuple[Choice, ...]:
    """Return the choices that a dataclass declares, in order; empty for another type."""
    if not is_dataclass(kind):
        return ()
    if kind not in _BY_TYPE:
        hints = get_type_hints(kind, include_extras=True)
        declared = (_declared(field.name, hints[field.name], field.default) for field in dataclasses.fields(kind))
        _BY_TYPE[kind] = tuple(choice for choice in declared if choice is not None)
    return _BY_TYPE[kind]


_BY_TYPE: dict[type, tuple[Choice, ...]] = {}


def arguments_of(function: Callable[..., object], positional: int) -> ChoiceArguments:
    """Return how a rule takes choices, by its arguments after the first ones."""
    if not callable(function):
        return NO_ARGUMENTS
    single: list[Choice] = []
    grouped: list[tuple[str, type]] = []
    takes_all = False
    for parameter in list(_parameters(function))[positional:]:
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_all = True
            continue
        annotation = _resolved(function, parameter)
        choice = _declared(parameter.name, annotation, parameter.default)
        if choice is not None:
            single.append(choice)
        elif isinstance(annotation, type) and choices_of_type(annotation):
            grouped.append((parameter.name, annotation))
        else:
            raise _argument_error(function, parameter)
        if parameter.default is parameter.empty:
            raise TypeError(f"{_place(function)}: choice '{parameter.name}' has no default: the rule is called without")
    listed: tuple[Choice, ...] = getattr(function, LISTED, ())
    return ChoiceArguments(tuple(single), tuple(grouped), listed, takes_all)


def _parameters(function: Callable[..., object]) -> Iterator[inspect.Parameter]:
    try:
        yield from inspect.signature(function).parameters.values()
    except ValueError:
        return  # a function of C without a signature


def _resolved(function: Callable[..., object], parameter: inspect.Parameter) -> object:
    """Return the annotation of an argument, evaluated alone, as others may name imports for type checkers only."""
    if not isinstance(parameter.annotation, str):
        return parameter.annotation
    try:
        return eval(parameter.annotation, getattr(inspect.unwrap(function), "__globals__", {}))
    except NameError as error:
        raise _argument_error(function, parameter) from error


def _argument_error(function: Callable[..., object], parameter: inspect.Parameter) -> TypeError:
    return TypeError(
        f"{_place(function)}: argument '{parameter.name}' is no choice: expected "
        "`NAME: Annotated[int, Choice(ALLOWED, WHAT)] = DEFAULT`, or a dataclass of such fields, whose names are those "
        "of the rule's module"
    )


def _place(function: Callable[..., object]) -> str:
    return f"schedule rule '{getattr(function, '__name__', function)}'"


def _declared(name: str, annotation: object, default: object) -> Choice | None:
    """Return the choice that an annotation declares, or None."""
    if get_origin(annotation) is not Annotated:
        return None
    kind, *extras = get_args(annotation)
    choice = next((extra for extra in extras if isinstance(extra, Choice)), None)
    return (
        None if choice is None else replace(choice, name=name, default=default, is_flag=bool in (kind, *get_args(kind)))
    )
