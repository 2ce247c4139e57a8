"""Sinking of reshapes through elementwise and last-axis operators, so that these can fuse with a kernel.

A matrix product on [64, 768] is often viewed as [1, 64, 768] by its users. Reshapes that raise the rank move down,
the operators above them work on fewer dims, and their other operands are viewed in the smaller shape: views are
free. Each step lowers the rank of an operator, so the rewrite terminates.
"""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.op import class_of
from mirlo.dialects.core.traits import Trait
from mirlo.dialects.relax import OPS
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.graph.rewrite import Rewriter, defining, kind_of, remade
from mirlo.passes.rules import Decline, decline, simplify

Shape = tuple[Dim, ...]


@simplify(Trait.ELEMENTWISE, producers=["relax.reshape"])
def sink_through_unary(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Sink a reshape that raises the rank below an elementwise operator of one operand."""
    if len(op.operation.operands) != 1:
        return decline("it has several operands")
    inner = raising(op.operation.operands[0])
    if inner is None:
        return decline("the operand is not a reshape that raises the rank")
    return b.emit(OPS["reshape"], remade(op, [inner.x], b), shape=kind_of(op.operation.results[0]).shape)


@simplify(Trait.ELEMENTWISE, producers=["relax.reshape"])
def sink_through_binary(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Sink below a binary operator; the other operand is viewed in the smaller shape, including its broadcast dims."""
    values = list(op.operation.operands)
    if len(values) != 2:
        return decline("it has not two operands")
    whole = kind_of(op.operation.results[0]).shape
    for position, value in enumerate(values):
        inner = raising(value)
        if inner is None or kind_of(value).shape != whole:
            continue
        source, target = kind_of(inner.x).shape, kind_of(value).shape
        other = values[1 - position]
        shape = unbroadcast_shape(kind_of(other).shape, source, target)
        if shape is None:
            continue
        if shape != kind_of(other).shape:
            other = b.emit(OPS["reshape"], other, shape=shape)
        pair = (inner.x, other) if position == 0 else (other, inner.x)
        return b.emit(OPS["reshape"], remade(op, pair, b), shape=target)
    return decline("no operand is a reshape that raises the rank and that the other one fits")


@simplify(Trait.LAST_AXIS, producers=["relax.reshape"])
def sink_through_last_axis(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Sink below a row operation if the last axis stays the same."""
    inner = raising(op.x)
    if inner is None:
        return decline("the operand is not a reshape that raises the rank")
    source, target = kind_of(inner.x), kind_of(op.x)
    if op.axis % target.rank != target.rank - 1 or source.shape[-1:] != target.shape[-1:]:
        return decline("the last axis is another one below the reshape", axis=op.axis)
    others = list(op.operation.operands)[1:]
    result = b.emit(class_of(op), inner.x, *others, **{**op.attribute_values(), "axis": -1})
    return b.emit(OPS["reshape"], result, shape=target.shape)


def raising(value: ir.Value) -> ir.OpView | None:
    """Return the reshape that defines this value if it adds dims to a computed value of rank 1 or more."""
    producer = defining(value, "relax.reshape")
    if producer is None or not isinstance(producer.x, ir.OpResult) or is_constant(producer.x):
        return None
    source, target = kind_of(producer.x), kind_of(value)
    fits = 0 < source.rank < target.rank and source.elements == target.elements != 0
    return producer if fits else None


def unbroadcast_shape(other: tuple[Dim, ...], source: Shape, target: Shape) -> Shape | None:
    """Return the shape in which an operand that broadcasts to `target` broadcasts to `source` element for element."""
    if len(other) > len(target):
        return None
    runs = _equal_runs(source, target)
    if runs is None:
        return None
    full = (1,) * (len(target) - len(other)) + tuple(other)
    dims: list[Dim] = []
    for ours, theirs in runs:
        part = full[theirs]
        if part == target[theirs]:
            dims += source[ours]
        elif all(dim == 1 for dim in part):
            dims += [1] * len(source[ours])
        else:
            return None
    while dims and dims[0] == 1 and len(dims) > len(other):
        dims.pop(0)
    return tuple(dims)


def _equal_runs(source: Shape, target: Shape) -> list[tuple[slice, slice]] | None:
    """Return the smallest groups of dims on both sides with equal element counts; None if symbols prevent it."""
    runs, i, j = [], 0, 0
    while i < len(source) or j < len(target):
        first = (i, j)
        left: Dim = 1
        right: Dim = 1
        while True:
            difference = D.estimate_dim(left) - D.estimate_dim(right)
            if difference <= 0 and i < len(source) and (difference < 0 or i == first[0]):
                left, i = left * source[i], i + 1
            elif j < len(target) and (difference > 0 or j == first[1]):
                right, j = right * target[j], j + 1
            else:
                break
        if left != right:
            return None
        runs.append((slice(first[0], i), slice(first[1], j)))
    return runs
