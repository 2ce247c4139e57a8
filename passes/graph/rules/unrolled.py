"""Loops over rows of a tensor that exporters unrolled: slices, the same operators on each, and all of them joined."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim, product
from mirlo.dialects.core.surgery import attributes_of
from mirlo.dialects.core.traits import Trait, traits_of
from mirlo.dialects.relax import OPS
from mirlo.passes.graph.rewrite import Rewriter, beside, defining, kind_of, only_use, remade
from mirlo.passes.rules import Decline, decline, simplify
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class UnrolledStep:
    """Equal operators, one in each iteration, that differ in one operand."""

    op: ir.OpView
    """That of the first iteration."""
    varying: int
    """The position of the operand that differs."""


@dataclass(frozen=True)
class UnrolledLoop:
    """The common computation of all iterations."""

    steps: tuple[UnrolledStep, ...]
    """Last ones first."""
    slices: tuple[ir.OpView, ...]
    """What each iteration reads."""


@simplify("relax.concat", "relax.stack")
def unrolled(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Compute for all rows at once what unrolled iterations compute for slices of a tensor."""
    values = _joined(op)
    if values is None:
        return decline("the concatenation is part of another one")
    loop = _unrolled_loop(values, b)
    if isinstance(loop, Decline):
        return loop
    packed = _packed(loop.slices, b)
    if isinstance(packed, Decline):
        return packed
    count = len(values)
    for step in reversed(loop.steps):
        packed = _at_once(step, packed, count, b)
    return _unpacked(op, packed, b)


def _joined(op: ir.OpView) -> list[ir.Value] | None:
    """Return all values that a concatenation joins, including nested concatenations; None for a nested one."""
    name, axis = op.operation.name, op.axis
    if name == "relax.stack":
        return list(op.operation.operands)

    def is_inner(value: ir.Value) -> bool:
        inner = defining(value, name)
        return inner is not None and inner.axis == axis and only_use(value)

    for use in op.output.uses:
        if use.owner.name == name and use.owner.opview.axis == axis and is_inner(op.output):
            return None
    leaves: list[ir.Value] = []
    pending = list(reversed(op.operation.operands))
    while pending:
        value = pending.pop()
        if is_inner(value):
            pending += reversed(value.owner.operands)
        else:
            leaves.append(value)
    return leaves


def _unrolled_loop(values: Sequence[ir.Value], b: Rewriter) -> UnrolledLoop | Decline:
    """Return the operators that compute these values from slices, if they are the same for all."""
    steps: list[UnrolledStep] = []
    if len(values) < 2:
        return decline("one value is joined")
    while True:
        first = values[0]
        if not all(beside(value, b) and value.type == first.type for value in values):
            return decline("the joined values are not computed alike")
        ops = [value.owner.opview for value in values]
        if not all(_are_alike(ops[0], op) for op in ops[1:]):
            return decline("the joined values are not computed alike", operator=ops[0].operation.name)
        if ops[0].operation.name == "relax.strided_slice":
            return UnrolledLoop(tuple(steps), tuple(ops))
        if not _treats_rows_alike(ops[0]):
            return decline("an operator may compute with several rows", operator=ops[0].operation.name)
        if not all(map(only_use, values)):
            return decline("a value has other users", operator=ops[0].operation.name)
        operands = list(zip(*(op.operation.operands for op in ops), strict=True))
        varying = [i for i, each in enumerate(operands) if not _are_same(each)]
        if len(varying) != 1:
            return decline("not one operand differs", operator=ops[0].operation.name, differing=len(varying))
        (position,) = varying
        if not _keeps_rows(ops[0], position):
            return decline("an operator broadcasts, or computes with several rows", operator=ops[0].operation.name)
        steps.append(UnrolledStep(ops[0], position))
        values = operands[position]


def _are_alike(op: ir.OpView, other: ir.OpView) -> bool:
    """Return whether two operations are of one operator with equal attributes, but for the bounds of slices."""
    one, two = op.operation, other.operation
    if one.name != two.name or len(one.results) != 1 or len(one.operands) != len(two.operands):
        return False
    return one.name == "relax.strided_slice" or attributes_of(one) == attributes_of(two)


def _treats_rows_alike(op: ir.OpView) -> bool:
    return op.operation.name in ("relax.reshape", "relax.matmul") or Trait.ELEMENTWISE in traits_of(op)


def _keeps_rows(op: ir.OpView, position: int) -> bool:
    """Return whether an operator with one more leading dim in this operand computes the same for each row."""
    kind = kind_of(op.operation.operands[position])
    if op.operation.name == "relax.matmul":
        return position == 0 and kind.rank >= 2 and kind_of(op.rhs).rank == 2 and not op.transpose_lhs
    return op.operation.name == "relax.reshape" or kind.rank == kind_of(op.output).rank


def _are_same(values: Sequence[ir.Value]) -> bool:
    """Return whether values are identical, or computed alike from identical ones."""
    first = values[0]
    return all(_equal(first, value) for value in values[1:])


def _equal(value: ir.Value, other: ir.Value) -> bool:
    pending = [(value, other)]
    while pending:
        value, other = pending.pop()
        if value == other:
            continue
        if not isinstance(value, ir.OpResult) or not isinstance(other, ir.OpResult) or value.type != other.type:
            return False
        one, two = value.owner, other.owner
        if one.name not in ("relax.constant", "relax.reshape") or not _are_alike(one.opview, two.opview):
            return False
        pending += zip(one.operands, two.operands, strict=True)
    return True


def _packed(slices: Sequence[ir.OpView], b: Rewriter) -> ir.Value | Decline:
    """Return consecutive slices of a tensor as one tensor with a leading dim for them."""
    first = slices[0]
    kind, shape = kind_of(first.x), kind_of(first.output).shape
    if any(each.x != first.x or each.axes != first.axes for each in slices) or len(first.axes) != 1:
        return decline("the slices are not of one dim of one tensor")
    axis = first.axes[0] % kind.rank
    size, count = kind.shape[axis], len(slices)
    if not isinstance(size, int) or any(tuple(each.strides) != (1,) for each in slices):
        return decline("the slices have strides, or a size that is not known")
    bounds = [range(size)[slice(each.begin[0], each.end[0])] for each in slices]
    length = len(bounds[0])
    if length == 0 or any((r.start, len(r)) != (bounds[0].start + i * length, length) for i, r in enumerate(bounds)):
        return decline("the slices do not follow one another")
    begin, rows = bounds[0].start, first.x
    if (begin, count * length) != (0, size):
        end = begin + count * length
        rows = b.emit(OPS["strided_slice"], rows, axes=[axis], begin=[begin], end=[end], strides=[1])
    before, after = shape[:axis], shape[axis + 1 :]
    if all(dim == 1 for dim in before):
        return b.emit(OPS["reshape"], rows, shape=(count, *shape))
    divided = b.emit(OPS["reshape"], rows, shape=(*before, count, length, *after))
    return b.emit(OPS["permute"], divided, axes=[axis, *(i for i in range(kind.rank + 1) if i != axis)])


def _at_once(step: UnrolledStep, packed: ir.Value, count: int, b: Rewriter) -> ir.Value:
    """Emit an operator for all rows."""
    op, shape = step.op, kind_of(step.op.output).shape
    if op.operation.name == "relax.reshape":
        return b.emit(OPS["reshape"], packed, shape=(count, *shape))
    if op.operation.name == "relax.matmul":
        *rows, depth = kind_of(op.lhs).shape
        flat = b.emit(OPS["reshape"], packed, shape=(product([count, *rows]), depth))
        return b.emit(OPS["reshape"], remade(op, [flat, op.rhs], b), shape=(count, *shape))
    operands = list(op.operation.operands)
    operands[step.varying] = packed
    return remade(op, operands, b)


def _unpacked(op: ir.OpView, packed: ir.Value, b: Rewriter) -> ir.Value:
    """Return the rows, in the leading dim, in the form in which an operator joins them."""
    result = kind_of(op.output).shape
    axis = op.axis % len(result)
    before: tuple[Dim, ...] = result[:axis]
    if not all(dim == 1 for dim in before):
        rank = kind_of(packed).rank
        packed = b.emit(OPS["permute"], packed, axes=[*range(1, axis + 1), 0, *range(axis + 1, rank)])
    return b.emit(OPS["reshape"], packed, shape=result)
