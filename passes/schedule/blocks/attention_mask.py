"""What is known of the masks of attention: bounds that keys must meet, a factor of all scores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import BlockView
from mirlo.passes.schedule.blocks.linear import Linear, axis_index, number
from mirlo.passes.schedule.blocks.space import Place

_LESS, _AT_MOST = 2, 3
"""Signed comparisons, as `arith.cmpi` numbers them."""


@dataclass(frozen=True)
class Bound:
    """A condition of the mask that a key must meet, or its score is minus infinity: key ≤ limit."""

    condition: Any
    """The body's value, which is true for all keys within the limit."""
    limit: Linear
    """Over the loops of the rows."""


@dataclass(frozen=True)
class Scaling:
    """A number above zero that each score is multiplied with, before anything but a choice of minus infinity."""

    product: Any
    """The body's value."""
    factor: float


def bounds_of(place: Place, key_loop: int) -> Iterator[Bound]:
    """Conditions of the outermost choices of a body whose other side is minus infinity."""
    value = place.block.yielded[0]
    while not isinstance(value.owner, ir.Block) and value.owner.operation.name == "arith.select":
        condition, yes, no = value.owner.operation.operands
        if number_of(no) != float("-inf"):
            return
        yield from _limits(place, condition, key_loop)
        value = yes


def _limits(place: Place, condition: Any, key_loop: int) -> Iterator[Bound]:
    if isinstance(condition.owner, ir.Block):
        return
    op = condition.owner.operation
    if op.name == "arith.andi":
        for part in op.operands:
            yield from _limits(place, part, key_loop)
    if op.name != "arith.cmpi" or op.attributes["predicate"].value not in (_LESS, _AT_MOST):
        return
    difference = place.difference(op)
    if difference is None or difference.divisions or difference.coefficient(key_loop) != 1:
        return
    limit = axis_index(key_loop) - difference
    if not all(isinstance(factor, int) for factor in limit.terms.values()):
        return  # how the limit moves from row to row is known at run time only
    if max(limit.axes(), default=0) < key_loop:
        yield Bound(condition, limit - number(1) if op.attributes["predicate"].value == _LESS else limit)


def scaling_of(block: BlockView, scores: Any) -> Scaling | None:
    """The factor of all scores in the body of a mask, where it does nothing else than to hide some of them."""
    arguments = [a for a, o in zip(block.input_arguments, block.inputs, strict=True) if o.value == scores]
    value = block.yielded[0]
    while not isinstance(value.owner, ir.Block) and value.owner.operation.name == "arith.select":
        _, yes, no = value.owner.operation.operands
        if number_of(no) != float("-inf") or len(list(yes.uses)) != 1:
            return None
        value = yes
    if len(arguments) != 1 or isinstance(value.owner, ir.Block) or value.owner.operation.name != "arith.mulf":
        return None
    left, right = value.owner.operation.operands
    score, factor = (left, number_of(right)) if left == arguments[0] else (right, number_of(left))
    if score != arguments[0] or len(list(score.uses)) != 1 or factor is None or factor <= 0:
        return None
    return Scaling(value, factor)


def number_of(value: Any) -> float | None:
    """The float that a value always is."""
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "arith.constant":
        return None
    attribute = value.owner.operation.attributes["value"]
    return float(attribute.value) if isinstance(attribute, ir.FloatAttr) else None
