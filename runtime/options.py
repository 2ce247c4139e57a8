"""Options, each declared once: as a field of a dataclass, with its values, its flags and its help text.

    @dataclass(frozen=True)
    class ServeOptions:
        port: int = option(8000, "The port; 0 takes a free one.", flag("--port", "N"), kind=integer(0, 65535))

        def __post_init__(self) -> None:
            check_options(self, ServeError)

Checks, flags of commands and pages derive from the declarations.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from numbers import Integral, Real
from typing import Any, Literal, SupportsIndex, TypeGuard

from mirlo.runtime.errors import MirloError, nearest
from mirlo.runtime.records import dataclass

MOST_RANKS = 1024
"""Most ranks of a model, in the option `ranks` and in the variables of launchers: each is connected with all others."""
MAX_DIGITS = 20
"""Digits of an integer in a text: it has at most 64 bits."""


class UnknownOption(MirloError, TypeError):
    """An argument that is no option."""

    error_code = "MIR0115"
    remedy = "Use an option that the message lists."


@dataclass(frozen=True)
class ValueKind:
    """The values that an option takes."""

    refuse: Callable[[Any], str | None]
    """Return what was expected instead of a value, None for a value that is accepted."""
    parse: Callable[[str], object] = str
    """Return the value of a text, or raise `ValueError` with what was expected."""
    choices: tuple[str, ...] = ()
    """The texts that it takes; empty for any."""


def values_that(expected: str, accepts: Callable[[Any], bool], parse: Callable[[str], object] = str) -> ValueKind:
    """Return the kind of the values that a function accepts."""
    return ValueKind(lambda value: None if accepts(value) else expected, parse)


def integer(least: int | None = None, most: int | None = None) -> ValueKind:
    """Return the kind of integers of a range."""
    bounds = _range_text(least, most)

    def refuse(value: object) -> str | None:
        if not is_integer(value):
            return ", ".join(filter(None, ["an integer", bounds]))
        number = operator.index(value)
        return None if (least is None or number >= least) and (most is None or number <= most) else bounds

    return ValueKind(refuse, lambda text: parse_integer(text, least, most))


def parse_integer(text: str, least: int | None = None, most: int | None = None) -> int:
    """Parse a text as an integer of a range."""
    digits = text.removeprefix("-") if least is None or least < 0 else text
    value = int(text) if digits.isdecimal() and digits.isascii() and len(digits) < MAX_DIGITS else None
    if value is None or (least is not None and value < least) or (most is not None and value > most):
        limits = f"{'' if least is None else f' from {least}'}{'' if most is None else f' to {most}'}"
        raise ValueError(f"expected a number{limits}, found '{text}'")
    return value


_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def parse_bytes(text: str) -> int:
    """Parse a text as a number of bytes, with a unit or without."""
    digits, factor = text, 1
    for unit, size in _UNITS.items():
        if text.lower().endswith((unit.lower(), unit[0].lower())):
            cut = len(unit) if text.lower().endswith(unit.lower()) else 1
            digits, factor = text[:-cut].strip(), size
            break
    try:
        value = int(float(digits) * factor)
    except (ValueError, OverflowError):
        value = -1
    if value < 0:
        raise ValueError(f"expected a size such as 500MiB or 8GiB, found '{text}'")
    return value


def number(least: float | None = None, most: float | None = None, above: float | None = None) -> ValueKind:
    """Return the kind of numbers of a range, of which `above` is no part."""
    bounds = _range_text(least, most) if above is None else f"more than {above:g}"
    if above is not None and most is not None:
        bounds += f", at most {most:g}"

    def refuse(value: object) -> str | None:
        if not is_number(value):
            return "a number"
        holds = (least is None or value >= least) and (most is None or value <= most)
        return None if holds and (above is None or value > above) else bounds

    def parse(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise ValueError(f"expected a number, found '{text}'") from None

    return ValueKind(refuse, parse)


def one_of(*choices: str) -> ValueKind:
    """Return the kind of some texts."""
    expected = ", ".join(choices)
    return ValueKind(
        lambda value: None if isinstance(value, str) and value in choices else expected, choices=tuple(choices)
    )


def optional(kind: ValueKind) -> ValueKind:
    """Return the kind of another kind's values and None, which stands for the behaviour without the option."""

    def refuse(value: object) -> str | None:
        expected = None if value is None else kind.refuse(value)
        return f"{expected} or None" if expected is not None and kind.choices else expected

    return ValueKind(refuse, kind.parse, kind.choices)


def either(*kinds: ValueKind) -> ValueKind:
    """Return the kind of the values of several kinds."""

    def refuse(value: object) -> str | None:
        expected = [kind.refuse(value) for kind in kinds]
        return None if None in expected else ", or ".join(map(str, expected))

    return ValueKind(refuse, kinds[0].parse, tuple(choice for kind in kinds for choice in kind.choices))


def is_text(value: object) -> bool:
    """Return whether a value is a text."""
    return isinstance(value, str)


def mapping(expected: str, accepts: Callable[[Any], bool] = lambda value: True) -> ValueKind:
    """Return the kind of dictionaries with names, whose values a function accepts."""
    return values_that(
        expected,
        lambda value: isinstance(value, Mapping) and all(isinstance(k, str) and accepts(v) for k, v in value.items()),
    )


def instance_of(module: str, name: str, expected: str) -> ValueKind:
    """Return the kind of the instances of a class, which is not imported: where it is not, there are none."""

    def accepts(value: object) -> bool:
        cls = getattr(sys.modules.get(module), name, None)
        return isinstance(cls, type) and isinstance(value, cls)

    return values_that(expected, accepts)


ANYTHING = ValueKind(lambda value: None)
BOOLEAN = values_that("True or False", lambda value: isinstance(value, bool))
TEXT = values_that("a text", is_text)
PATH = values_that("a path", lambda value: isinstance(value, (str, os.PathLike)) and os.fspath(value) != "")
FUNCTION = values_that("a function", callable)


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a finite number; integers have at most 64 bits."""
    if isinstance(value, (bool, Integral)) or not isinstance(value, Real):
        return is_integer(value)
    return math.isfinite(value)


def is_list(value: object, accepts: Callable[[Any], bool] = lambda each: True) -> bool:
    """Return whether a value is a list, or another sequence but a text, of values that a function accepts."""
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__iter__") or not hasattr(value, "__len__"):
        return False
    return all(map(accepts, value))


def is_integer(value: object) -> TypeGuard[SupportsIndex]:
    """Return whether a value is an integer of at most 64 bits, also one of numpy."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or getattr(value, "shape", ()) != ():
        return False
    return -(1 << 63) <= operator.index(value) < 1 << 64


def _range_text(least: float | None, most: float | None) -> str:
    if least is not None and most is not None:
        return f"{least} to {most}"
    return f"{least} or more" if least is not None else f"at most {most}" if most is not None else ""


@dataclass(frozen=True)
class OptionFlag:
    """A flag of the command line that sets an option."""

    name: str
    metavar: str | None = None
    parse: Callable[[str], object] | None = None
    """Return the value of a text, or raise `ValueError` with what was expected; None for the option's kind."""
    form: Literal["value", "append", "pairs", "constant"] = "value"
    """Whether the flag takes one value, values, or pairs with names, or stands for `constant`."""
    constant: object = True
    help: str = ""
    """What `--help` says; empty for the option's, with its default."""
    aliases: tuple[str, ...] = ()
    convert: Callable[[Any], object] | None = None
    """Return the value of the option from what the flag collected; None for the same."""
    dest: str = ""
    """The name in the parsed arguments, where another than the option's."""


@dataclass(frozen=True)
class OptionDeclaration:
    """The declaration of an option besides its type and default."""

    help: str
    flags: tuple[OptionFlag, ...] = ()
    kind: ValueKind = ANYTHING
    since: str = "0.1"
    """The version that has it first."""

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the texts that the option takes; empty for any."""
        return self.kind.choices


def declare(default: object, declaration: OptionDeclaration, is_shown: bool = True) -> Any:
    """Return a field of a dataclass that is an option; its default may be `dataclasses.MISSING`."""
    return dataclasses.field(default=default, metadata={"option": declaration}, repr=is_shown)


def option(default: object, help: str, *flags: OptionFlag, kind: ValueKind, since: str = "0.1") -> Any:
    """Declare a field of a dataclass of options."""
    return declare(default, OptionDeclaration(help, flags, kind, since))


@cache
def declared_options(kind: type) -> Mapping[str, Any]:
    """Return the declarations of a dataclass's options, by name."""
    return {each.name: each.metadata["option"] for each in dataclasses.fields(kind) if "option" in each.metadata}


def check_options(options: object, error: type[Exception]) -> None:
    """Raise an error for the first option whose value is not of its kind."""
    kind: type = type(options)
    for name, declared in declared_options(kind).items():
        check_value(name, declared, getattr(options, name), error)


def check_value(name: str, declared: OptionDeclaration, value: object, error: type[Exception]) -> None:
    """Raise an error for a value of another kind than an option's."""
    expected = declared.kind.refuse(value)
    if expected is not None:
        raise error(f"{name}: expected {expected}, found {value!r:.60}")


def refuse_unknown(
    caller: str, names: Iterable[str], known: Iterable[str], error: type[Exception] = UnknownOption
) -> None:
    """Raise an error for the first name that is not known."""
    options = list(known)
    for name in names:
        if name not in options:
            hint = nearest(str(name), options)
            raise error(f"{caller} has no option '{name}'; options: {', '.join(options)}{hint}")
