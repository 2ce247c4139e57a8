"""Calls of schedule primitives: arguments are checked and made plain for traces; errors leave schedules unchanged."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from operator import index
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar, cast

from mirlo.passes.rules import Decline
from mirlo.passes.schedule.primitives.tree import ScheduleError
from mirlo.runtime.callbacks import describe_raised
from mirlo.runtime.errors import MirloError

if TYPE_CHECKING:
    from mirlo.passes.schedule.primitives.trace import Trace


class RecordedSchedule(Protocol):
    """The interface of a schedule that primitives use."""

    @property
    def trace(self) -> Trace: ...

    def require_open(self) -> None:
        """Require that the loops are not emitted yet."""

    def undo(self, count: int) -> None:
        """Drop all recorded primitives but the first `count`."""


P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

NAMES = "a list of names"
INTEGERS = "a list of integers"
PRIMITIVES: list[str] = []
"""The names of the primitives, which a trace may contain."""


def primitive(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate a primitive of `Schedule`: check its arguments by their types, and prefix errors with its name.

    A primitive that raises leaves the schedule as it was.
    """
    word = method.__name__
    signature = inspect.signature(method)
    kinds = {name: PARAMETERS.get(str(each.annotation)) for name, each in signature.parameters.items()}
    shown = [each for name, each in signature.parameters.items() if name != "self"]
    usage = f"{word}{signature.replace(parameters=[each.replace(annotation=each.empty) for each in shown])}"
    usage = usage.partition(" ->")[0]
    PRIMITIVES.append(word)
    parameters = list(signature.parameters.values())
    required = sum(each.default is each.empty for each in parameters)
    is_fixed = all(each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for each in parameters)
    lists = {each.name for each in parameters if each.kind is inspect.Parameter.VAR_POSITIONAL}

    def check(name: str, value: object) -> object:
        kind = kinds[name]
        if kind is None:
            return value
        for each in value if name in lists and isinstance(value, tuple) else (value,):
            if not kind[1](each):
                raise ScheduleError(f"{word}: expected {kind[0]} for '{name}', found {each!r}")
        return plain(value)

    @wraps(method)
    def checked(*arguments: P.args, **named: P.kwargs) -> R:
        if is_fixed and not named and required <= len(arguments) <= len(parameters):
            # Most calls are of this kind, and rules make many: `bind` takes longer than the rest of the check.
            pairs = zip(parameters, arguments, strict=False)
            positional, options = [check(each.name, value) for each, value in pairs], dict[str, object]()
        else:
            try:
                bound = signature.bind(*arguments, **named)
            except TypeError as error:
                raise ScheduleError(f"{word}: {error}; expected {usage}") from None
            for name, value in bound.arguments.items():
                bound.arguments[name] = check(name, value)
            positional, options = list(bound.args), bound.kwargs
        schedule = cast("RecordedSchedule", positional[0])
        schedule.require_open()
        count = len(schedule.trace.calls)
        try:
            return method(*positional, **options)  # type: ignore[arg-type]
        except Exception as error:
            schedule.undo(count)
            if not isinstance(error, ScheduleError) or str(error).startswith((f"{word}:", f"{word} ")):
                raise
            raise ScheduleError(f"{word}: {error}") from error

    return checked


def call_given(function: Callable[[S], object], schedule: S) -> None:
    """Call a function of the user that arranges the loops of a schedule."""
    name = getattr(function, "__name__", repr(function))
    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions of C have none
        signature = None
    try:
        if signature is not None:
            signature.bind(schedule)
    except TypeError as error:
        raise ScheduleError(f"expected a function of one argument, a Schedule, found '{name}': {error}") from None
    try:
        outcome = function(schedule)
    except (MirloError, MemoryError):
        raise
    except Exception as error:
        raise ScheduleError(f"'{name}' raised {describe_raised(error)}") from error
    if isinstance(outcome, Decline):
        raise ScheduleError(
            f"'{name}' declines: {outcome}. A function of primitives applies them; one that may decline is a rule, "
            "f(kernel, context), and is given in a list: [f]"
        )


def plain(value: object) -> object:
    """Return an argument with integers and lists of Python, with which a trace can be saved."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(map(plain, value))
    return index(value) if _is_integer(value) else value  # type: ignore[arg-type]


def _is_name(value: object) -> bool:
    return isinstance(value, str)


def _is_integer(value: object) -> bool:
    try:
        index(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return not isinstance(value, bool)


def _list_of(holds: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, Sequence) and not isinstance(value, str) and all(map(holds, value))


PARAMETERS: dict[str, tuple[str, Callable[[object], bool]]] = {
    "str": ("a name", _is_name),
    "int": ("an integer", _is_integer),
    "bool": ("True or False", lambda value: isinstance(value, bool)),
    "str | int": ("a name or an integer", lambda value: _is_name(value) or _is_integer(value)),
    "str | Sequence[str]": ("a name or a list of names", lambda value: _is_name(value) or _list_of(_is_name)(value)),
    "Sequence[str]": (NAMES, _list_of(_is_name)),
    "Sequence[int]": (INTEGERS, _list_of(_is_integer)),
    "Sequence[int | None]": (
        "a list of integers and None", _list_of(lambda value: value is None or _is_integer(value)),
    ),
    "Sequence[Sequence[int]]": ("a list of pairs of integers", _list_of(_list_of(_is_integer))),
}  # fmt: skip
"""What an argument must be, as text and as a test, by the annotation of its parameter."""
