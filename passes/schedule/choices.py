"""Choices of schedule rules as attributes: what a rule chose, and what a caller or a measurement chooses instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirlo.dialects.bindings import ir
from mirlo.passes.rules import RuleChoice
from mirlo.runtime.errors import MirloError

CHOSEN = "tir.choices"
"""Attribute of a scheduled prim function: the choices with which its rule makes the same loops again."""
ChoiceValue = int | tuple[int, ...]
"""An integer, or one for each loop."""
ChoiceValues = Mapping[str, ChoiceValue]


class ChoiceError(MirloError, ValueError):
    """Raised for a value that a rule does not allow."""


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
    found = ir.DictAttr(attributes[attribute])
    return {found[i].name: _read_choice(found[i].attr) for i in range(len(found))}


def check_choice(choice: RuleChoice, value: object) -> None:
    """Reject a value that the rule does not allow, whatever it is chosen for."""
    listed = value if isinstance(value, tuple) and choice.is_per_loop and value else (value,)
    for each in listed:
        if isinstance(each, bool) or not isinstance(each, int) or each not in choice.allowed:
            lists = ", or a list of one for each loop" if choice.is_per_loop else ""
            found = list(value) if isinstance(value, tuple) else value
            raise ChoiceError(f"{choice.name}: expected {choice.range_text}{lists}, found {found!r}")


def uniform(values: Sequence[int]) -> ChoiceValue:
    """Return the values of some loops as one choice: one value if all are equal."""
    return values[0] if len(set(values)) == 1 else tuple(values)


def _read_choice(attribute: ir.Attribute) -> ChoiceValue:
    if isinstance(attribute, ir.DenseI64ArrayAttr):
        return tuple(attribute)
    return ir.IntegerAttr(attribute).value
