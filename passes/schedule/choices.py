"""Choices of schedule rules as attributes: those of a rule, and those of callers or measurements that replace them."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.passes.rule_choices import Choice, ChoiceError, ChoiceValue, ChoiceValues
from mirlo.runtime.errors import nearest
from mirlo.runtime.records import dataclass

CHOSEN = "tir.choices"
"""Attribute of a scheduled prim function: the choices with which its rule makes the same loops again."""
PARTS = "tir.parts"
"""Attribute of a scheduled prim function: the rules of its parts, each with its blocks and its choices."""
WANTED_PARTS = "tir.wanted_parts"
"""Attribute: the parts that a caller wants, likewise; rules that schedule parts follow it."""


@dataclass(frozen=True)
class RulePart:
    """Consecutive blocks of a prim function, and the rule that schedules them."""

    rule: str
    blocks: tuple[str, ...]
    choices: ChoiceValues


def choices_attribute(values: ChoiceValues) -> ir.DictAttr:
    """Return choices as an attribute."""
    i64 = ir.IntegerType.get_signless(64)
    return ir.DictAttr.get(
        {
            name: ir.DenseI64ArrayAttr.get(list(value)) if isinstance(value, tuple) else ir.IntegerAttr.get(i64, value)
            for name, value in values.items()
        }
    )


def choices_of(function: ir.OpView | ir.Operation, attribute: str = CHOSEN) -> dict[str, ChoiceValue]:
    """Return the choices that an attribute of a prim function holds; empty if there are none."""
    attributes = function.operation.attributes
    if attribute not in attributes:
        return {}
    try:
        return read_choices(attributes[attribute])
    except ValueError:
        raise ChoiceError(f"{attribute}: expected integers by name, found {attributes[attribute]}") from None


def read_choices(attribute: ir.Attribute) -> dict[str, ChoiceValue]:
    """Return the choices of an attribute that `choices_attribute` made."""
    choices = ir.DictAttr(attribute)
    return {choices[i].name: _read_choice(choices[i].attr) for i in range(len(choices))}


def set_parts(function: ir.Operation | ir.OpView, parts: Sequence[RulePart], attribute: str = PARTS) -> None:
    """Attach the rules of the parts of a prim function."""
    function.operation.attributes[attribute] = ir.ArrayAttr.get(
        [
            ir.DictAttr.get(
                {
                    "rule": ir.StringAttr.get(part.rule),
                    "blocks": ir.ArrayAttr.get([ir.StringAttr.get(name) for name in part.blocks]),
                    "choices": choices_attribute(part.choices),
                }
            )
            for part in parts
        ]
    )


def parts_of(function: ir.OpView | ir.Operation, attribute: str = PARTS) -> list[RulePart]:
    """Return the parts of a prim function that have rules of their own; empty if it is scheduled as a whole."""
    attributes = function.operation.attributes
    if attribute not in attributes:
        return []
    parts = []
    try:
        for each in ir.ArrayAttr(attributes[attribute]):
            part = ir.DictAttr(each)
            blocks = tuple(ir.StringAttr(name).value for name in ir.ArrayAttr(part["blocks"]))
            parts.append(RulePart(ir.StringAttr(part["rule"]).value, blocks, read_choices(part["choices"])))
    except (KeyError, ValueError, TypeError):
        raise ChoiceError(f"{attribute}: expected a list of {{rule, blocks, choices}}") from None
    return parts


def check_choices(rule: str, declared: Sequence[Choice], choices: ChoiceValues) -> None:
    """Reject choices that a rule does not make, and values that it does not allow."""
    allowed = {choice.name: choice for choice in declared}
    for name, value in choices.items():
        if name not in allowed:
            listed = ", ".join(allowed) or "nothing"
            raise ChoiceError(f"rule '{rule}' does not choose '{name}'{nearest(name, allowed)}; it chooses {listed}")
        allowed[name].check(value)


def check_used(rule: str, declared: Sequence[Choice], choices: ChoiceValues, used: ChoiceValues) -> None:
    """Reject choices that a rule could not follow in a function."""
    capped = {choice.name for choice in declared if choice.is_capped}
    for name, value in choices.items():
        if name not in used:
            there = ", ".join(f"{key}={_text(used_value)}" for key, used_value in used.items()) or "nothing"
            raise ChoiceError(f"{name}={_text(value)}: nothing of this function depends on it; it has {there}")
        if used[name] != value:
            most = "at most " if name in capped else ""
            raise ChoiceError(
                f"{name}={_text(value)} does not fit this function: '{rule}' takes {most}{_text(used[name])}"
            )


def _text(value: ChoiceValue) -> str:
    return str(list(value) if isinstance(value, tuple) else value)


def _read_choice(attribute: ir.Attribute) -> ChoiceValue:
    if isinstance(attribute, ir.DenseI64ArrayAttr):
        return tuple(attribute)
    return ir.IntegerAttr(attribute).value
