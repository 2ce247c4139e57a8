"""Options of passes: dataclass fields, parsed from text and printed as text.

A field `max_size: int` is the option `max-size` in a pipeline. Its type is one of `bool`, `int`, `float`, `str`,
`tuple[str, ...]`, `tuple[int, ...]`; also with `| None`, where None, the default, means that the option is not
given.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from mirlo.runtime.errors import MirloError, nearest_name


class RegistrationError(MirloError):
    """Raised for an invalid declaration of a pass; the message is for its author."""

    error_code = "MIR0409"
    remedy = "Correct what the package registers, at the place that the message names."


class OptionError(ValueError):
    """Raised for an unknown option or an invalid value. `at` is the index in the options' text."""

    def __init__(self, message: str, at: int):
        super().__init__(message)
        self.at = at


class NamedOptions(Protocol):
    """A dataclass of options with a name: a pass."""

    name: ClassVar[str]


AnyPass = TypeVar("AnyPass", bound=NamedOptions)
Made = TypeVar("Made")
OptionValue = float | str | tuple[int | str, ...]


class Option(NamedTuple):
    """One declared option."""

    name: str
    field: str
    kind: OptionType
    default: float | str | tuple[int, ...] | None
    help: str


class OptionType(NamedTuple):
    """A type of options: its name in help, its parser and its printer."""

    label: str
    parse: Callable[[str], OptionValue]
    print: Callable[[Any], str]


def _parse_bool(text: str) -> bool:
    return {"true": True, "1": True, "": True, "false": False, "0": False}[text.lower()]


def _parse_float(text: str) -> float:
    value = float(text)
    if math.isnan(value):
        raise ValueError(text)
    return value


_BARE = re.compile(r"[^\s{}()\"'=,]+")


def quote(text: str) -> str:
    """Return text as a value in a pipeline, quoted only if necessary."""
    if _BARE.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def split_list(text: str) -> list[str]:
    """Split a list value at the commas outside quotes and braces."""
    if not text:
        return []
    members, depth, quoted, start = [], 0, "", 0
    for i, char in enumerate(text):
        if quoted:
            quoted = "" if char == quoted and text[i - 1] != "\\" else quoted
        elif char in "\"'":
            quoted = char
        elif char in "{}":
            depth += 1 if char == "{" else -1
        elif char == "," and not depth:
            members.append(text[start:i])
            start = i + 1
    return [*members, text[start:]]


def unquote(text: str) -> str:
    """Return the value of option text without its quotes or its outer braces."""
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    if len(text) >= 2 and text[0] == "{" and text[-1] == "}":
        return text[1:-1]
    return text


def _list_of(label: str, member: Callable[[str], int | str]) -> OptionType:
    def parse(text: str) -> OptionValue:
        inner = text[1:-1] if text[:1] == "{" and text[-1:] == "}" else text
        return tuple(member(unquote(piece)) for piece in split_list(inner))

    return OptionType(label, parse, lambda values: "{" + ",".join(quote(str(value)) for value in values) + "}")


KINDS: dict[object, OptionType] = {
    bool: OptionType("bool", lambda text: _parse_bool(unquote(text)), lambda value: "true" if value else "false"),
    int: OptionType("int", lambda text: int(unquote(text), 0), str),
    float: OptionType("float", lambda text: _parse_float(unquote(text)), repr),
    str: OptionType("string", unquote, quote),
    tuple[str, ...]: _list_of("list of strings", str),
    tuple[int, ...]: _list_of("list of ints", lambda text: int(text, 0)),
}


def options_of(cls: type) -> Mapping[str, Option]:
    """Return the options that a pass, or another dataclass, declares, by name."""
    if cls not in _read:
        _read[cls] = _options_of(cls)
    return _read[cls]


_read: dict[type, Mapping[str, Option]] = {}


def _options_of(cls: type) -> Mapping[str, Option]:
    hints = typing.get_type_hints(cls)
    declared = {}
    for field in dataclasses.fields(cls):
        kind = _kind_of(hints[field.name])
        where = f"{cls.__module__}.{cls.__qualname__}.{field.name}"
        if kind is None:
            labels = ", ".join(kind.label for kind in KINDS.values())
            raise RegistrationError(f"{where}: an option cannot have type {hints[field.name]}; it can be {labels}")
        if field.default is dataclasses.MISSING or "help" not in field.metadata:
            raise RegistrationError(f"{where}: declare it as option(default, 'one line of help')")
        name = field.name.replace("_", "-")
        declared[name] = Option(name, field.name, kind, field.default, field.metadata["help"])
    return declared


def _kind_of(hint: object) -> OptionType | None:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        members = [member for member in typing.get_args(hint) if member is not type(None)]
        return KINDS.get(members[0]) if len(members) == 1 else None
    return KINDS.get(hint)


_OPTION = re.compile(r"\s*(?P<key>[\w.-]+)(?P<equals>=)?")


def scan_options(text: str) -> list[tuple[str, str, int, int]]:
    """Scan `a=1 b={x y} c`; return key, value as written, start of the key and start of the value per option."""
    pieces, at = [], 0
    while text[at:].strip():
        match = _OPTION.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise OptionError(f"expected the name of an option, found '{text[at]}'", at)
        start = match.end()
        end = _end_of_value(text, start) if match["equals"] else start
        pieces.append((match["key"], text[start:end], match.start("key"), start))
        at = end
        if at < len(text) and not text[at].isspace():
            raise OptionError(f"expected a space or '=' after the option '{match['key']}', found '{text[at]}'", at)
    return pieces


def _end_of_value(text: str, start: int) -> int:
    closers: list[str] = []
    at = start
    while at < len(text):
        char = text[at]
        if closers and closers[-1] in "\"'":
            if char == "\\":
                at += 1
            elif char == closers[-1]:
                closers.pop()
        elif char in "\"'{":
            closers.append("}" if char == "{" else char)
        elif closers and char == closers[-1]:
            closers.pop()
        elif not closers and char.isspace():
            break
        at += 1
    if closers:
        raise OptionError(f"the value has no closing {closers[-1]}", start)
    return min(at, len(text))


def make_pass(cls: type[AnyPass], text: str) -> AnyPass:
    """Return the pass with the options of a text: `limit=4 names=a,b`."""
    return make_from_options(cls, text, f"pass '{cls.name}'")


def make_from_options(cls: type[Made], text: str, owner: str) -> Made:
    """Create a dataclass whose fields are options from text; `owner` names it in messages."""
    declared = options_of(cls)
    values: dict[str, OptionValue] = {}
    for key, value, key_at, value_at in scan_options(text):
        option = declared.get(key.replace("_", "-"))
        if option is None:
            raise OptionError(f"{owner} has no option '{key}'{_hint(key, declared)}", key_at)
        if option.field in values:
            raise OptionError(f"option '{key}' is given twice", key_at)
        try:
            values[option.field] = option.kind.parse(value)
        except (ValueError, KeyError):
            expected = f"option '{key}' of {owner} is {_article(option.kind.label)}"
            raise OptionError(f"{expected}, got '{value}'", value_at) from None
    try:
        return cls(**values)
    except ValueError as error:
        raise OptionError(f"{owner}: {error}", 0) from error


def _article(label: str) -> str:
    return f"{'an' if label[0] in 'aeiou' else 'a'} {label}"


def _hint(key: str, declared: Mapping[str, Option]) -> str:
    near = nearest_name(key, declared)
    if near:
        return f"; did you mean '{near}'?"
    return f"; it has: {', '.join(declared)}" if declared else "; it has no options"


def print_options(instance: object) -> str:
    """Return `{limit=4}`: the options that differ from their defaults, or nothing."""
    pieces = []
    for declared in options_of(type(instance)).values():
        value = getattr(instance, declared.field)
        if value != declared.default:
            pieces.append(f"{declared.name}={declared.kind.print(value)}")
    return "{" + " ".join(pieces) + "}" if pieces else ""
