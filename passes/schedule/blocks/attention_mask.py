"""Properties of attention masks: bounds on the keys, scaling of the scores."""

from __future__ import annotations

from collections.abc import Iterator

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.index_expr import IndexExpr, loop_index, number
from mirlo.dialects.core.value import is_constant
from mirlo.dialects.tir.view import BlockView
from mirlo.passes.schedule.blocks.instance import BlockInstance
from mirlo.runtime.records import dataclass

_LESS, _AT_MOST = 2, 3
"""Predicates of `arith.cmpi`: signed less than, signed at most."""


@dataclass(frozen=True)
class Bound:
    """A condition key ≤ limit of the mask; other keys have a score of minus infinity."""

    condition: ir.Value
    """The value in the body that is true for every key within the limit."""
    limit: IndexExpr
    """The limit, over the row loops."""


@dataclass(frozen=True)
class Scaling:
    """A positive constant that multiplies each score before the mask selects minus infinity."""

    product: ir.Value
    """The product in the body."""
    factor: float


def bounds_of(instance: BlockInstance, key_loop: int) -> Iterator[Bound]:
    """Yield the conditions of the outermost selects of a body whose other branch is minus infinity."""
    value = instance.block.yielded[0]
    while not isinstance(value.owner, ir.Block) and value.owner.operation.name == "arith.select":
        condition, yes, no = value.owner.operation.operands
        if float_constant(no) != float("-inf"):
            return
        yield from _limits(instance, condition, key_loop)
        value = yes


def _limits(instance: BlockInstance, condition: ir.Value, key_loop: int) -> Iterator[Bound]:
    if isinstance(condition.owner, ir.Block):
        return
    op = condition.owner.operation
    if op.name == "arith.andi":
        for part in op.operands:
            yield from _limits(instance, part, key_loop)
    if op.name != "arith.cmpi" or op.attributes["predicate"].value not in (_LESS, _AT_MOST):
        return
    difference = instance.difference(op)
    if difference is None or difference.divisions or difference.coefficient(key_loop) != 1:
        return
    limit = loop_index(key_loop) - difference
    if not all(isinstance(factor, int) for factor in limit.terms.values()):
        return  # the limit's change between rows is dynamic
    if max(limit.variables(), default=0) < key_loop:
        yield Bound(condition, limit - number(1) if op.attributes["predicate"].value == _LESS else limit)


def scaling_of(block: BlockView, scores: ir.Value) -> Scaling | None:
    """Match the scaling of all scores in the body of a mask that, apart from it, only hides scores."""
    arguments = [a for a, o in zip(block.input_arguments, block.inputs, strict=True) if o.value == scores]
    value = block.yielded[0]
    while not isinstance(value.owner, ir.Block) and value.owner.operation.name == "arith.select":
        _, yes, no = value.owner.operation.operands
        if float_constant(no) != float("-inf") or len(list(yes.uses)) != 1:
            return None
        value = yes
    if len(arguments) != 1 or isinstance(value.owner, ir.Block) or value.owner.operation.name != "arith.mulf":
        return None
    left, right = value.owner.operation.operands
    score, factor = (left, float_constant(right)) if left == arguments[0] else (right, float_constant(left))
    if score != arguments[0] or len(list(score.uses)) != 1 or factor is None or factor <= 0:
        return None
    return Scaling(value, factor)


def float_constant(value: ir.Value) -> float | None:
    """Return the float constant that a value is, or None."""
    attribute = value.owner.attributes["value"] if is_constant(value) else None
    return float(attribute.value) if isinstance(attribute, ir.FloatAttr) else None
