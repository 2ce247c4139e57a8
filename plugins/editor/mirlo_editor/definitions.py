"""Definitions of operations, script names and rules: as text, and their locations in the code."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass

from mirlo.extend.inspect import INTRINSICS, Rule, ScriptName, operation_class, signature
from mirlo.extend.ops import DialectOp
from mirlo.extend.rules import LEGALIZE, SCHEDULE
from mirlo_editor.document import Name, TextSpan

NOWHERE = TextSpan(0, 0, 0)
"""The span of a name outside of documents."""


@dataclass(frozen=True)
class CodePlace:
    """A line of a file of Python, counted from 0."""

    file: str
    line: int


def describe_operation(name: str) -> str | None:
    """Return the definition of an operation as Markdown."""
    cls = operation_class(name)
    if cls is None:
        return None
    intrinsic = INTRINSICS.get(name.removeprefix("tir.")) if name.startswith("tir.") else None
    meaning = intrinsic.doc if intrinsic is not None else inspect.cleandoc(cls.__doc__ or "")
    names = [f"ONNX: {cls.ONNX.operator}"] if cls.ONNX is not None else []
    return "\n\n".join(filter(None, [f"```python\n{name}{signature(cls)}\n```", meaning, "; ".join(names)]))


def describe_script_name(dotted: str) -> str | None:
    """Return the definition of a script name, `R.softmax` or `T.exp`, as Markdown."""
    operation = _operation_of(dotted)
    if operation is not None:
        return describe_operation(operation)
    from mirlo import R, T

    language, _, name = dotted.partition(".")
    try:
        definition = getattr({"R": R, "T": T}[language], name.partition(".")[0])
    except (AttributeError, KeyError):
        return None
    if isinstance(definition, ScriptName):
        return f"`{definition}`: a name of scripts"
    return f"`{dotted}`\n\n{inspect.getdoc(definition) or ''}".rstrip()


def _operation_of(dotted: str) -> str | None:
    language, _, name = dotted.partition(".")
    for namespace in {"R": ("relax",), "T": ("tir",)}.get(language, ()):
        if operation_class(f"{namespace}.{name}") is not None:
            return f"{namespace}.{name}"
    return None


def place_of_operation(name: str) -> CodePlace | None:
    """Return the location of an operation's class, or of the module whose table defines it."""
    cls = operation_class(name)
    return _place(cls) if cls is not None else None


def place_of_script_name(dotted: str) -> CodePlace | None:
    """Return the location of the operator of a script name."""
    operation = _operation_of(dotted)
    return place_of_operation(operation) if operation is not None else None


def _place(cls: type[DialectOp]) -> CodePlace | None:
    try:
        file = inspect.getsourcefile(cls)
        line = inspect.getsourcelines(cls)[1] - 1
    except (OSError, TypeError):
        file, line = getattr(sys.modules.get(cls.__module__), "__file__", None), 0
    return CodePlace(file, line) if file else None


def places_of_rules(subject: str, target: str) -> list[CodePlace]:
    """Return the locations of the rules for an operation on a target, in the order in which they are tried."""
    from mirlo.extend.inspect import UnknownSubject, rule_chains

    try:
        chains = rule_chains(subject, target)
    except UnknownSubject:
        return []
    return [place for chain in chains for rule in chain.rules if (place := _place_of_rule(rule)) is not None]


def place_of_rule(name: str) -> CodePlace | None:
    """Return the location of a rule: a schedule, by its name in IR, or a legalization."""
    from mirlo.extend.inspect import load_default_rules

    load_default_rules()
    for book in (SCHEDULE, LEGALIZE):
        for rule in book:
            if rule.name == name:
                return _place_of_rule(rule)
    return None


def _place_of_rule(rule: Rule) -> CodePlace | None:
    file, _, line = rule.place.rpartition(":")
    return CodePlace(file, max(0, int(line) - 1)) if line.isdecimal() else None


def places_of(name: Name, target: str, rules: bool) -> list[CodePlace]:
    """Return the locations of a name's definition outside of the document; with `rules`, those of its rules."""
    if name.kind == "rule":
        place = place_of_rule(name.text)
    elif rules:
        operation = _operation_of(name.text) if name.kind == "script" else name.text
        return places_of_rules(operation, target) if operation is not None else []
    elif name.kind == "script":
        place = place_of_script_name(name.text)
    else:
        place = place_of_operation(name.text) if name.kind == "operation" else None
    return [place] if place is not None else []
