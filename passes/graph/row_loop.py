"""Operators that compute each row of a batch by itself, and the loop over rows that contains them.

Which dims of values are rows follows from the rules that operators declare for ranks (`sharding`): a batch in as many
parts as it has rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from mirlo.dialects.bindings import ir, scf, tensor
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.attributes import dense_attribute
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.op import DialectOp, OpError, class_of, sharding_rule_of
from mirlo.dialects.core.sharding import ShardingRule
from mirlo.dialects.core.surgery import captured, erase_op, operations
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.passes.rules import Decline, decline
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class RowwiseOperation:
    """An operation that computes each row of its results from the same row of its operands."""

    op: ir.Operation
    rule: ShardingRule


@dataclass
class RowwisePrefix:
    """The operations of a function that compute rows, in order, up to the first one that needs the whole batch."""

    batch: Dim
    end: str
    """The operator that needs the whole batch, or that follows it."""
    operations: list[RowwiseOperation] = field(default_factory=list)
    axes: dict[ir.Value, int] = field(default_factory=dict)
    """The axis of the rows, of each argument and result that has some."""

    def row(self, value: ir.Value) -> TensorType:
        """Return the type of one row of a value; the type of a value without rows is unchanged."""
        kind = TensorType.from_mlir(value.type)
        assert kind is not None
        axis = self.axes.get(value)
        return kind if axis is None else kind.with_shape(_row_shape(kind, axis, self.batch))

    def refusal(self, leaving: Iterable[ir.Value]) -> Decline | None:
        """Return why a loop cannot end where these values leave it, or None."""
        others = [axis for value in leaving if (axis := self.axes[value])]
        return decline("a value leaves it whose rows are not its first dim", axis=others[0]) if others else None

    def leaving(self) -> list[dict[ir.Value, None]]:
        """Return for each operation the values of the prefix up to it that later operations read."""
        last_use, numbers = dict[ir.Value, int](), {each.op: i for i, each in enumerate(self.operations)}
        results = [value for each in self.operations for value in each.op.results]
        for value in results:
            uses = [numbers.get(use.owner.operation, len(self.operations)) for use in value.uses]
            last_use[value] = max(uses, default=-1)
        ends, alive = list[dict[ir.Value, None]](), dict[ir.Value, None]()
        for i, each in enumerate(self.operations):
            alive = {value: None for value in (*alive, *each.op.results) if last_use[value] > i}
            ends.append(alive)
        return ends


def find_rowwise(function: ir.OpView) -> RowwisePrefix | Decline:
    """Return the operations that compute rows of the batch: the first dim of the first argument that has dims."""
    block = function.operation.regions[0].blocks[0]
    kinds = {value: TensorType.from_mlir(value.type) for value in block.arguments}
    batch = next((kind.shape[0] for kind in kinds.values() if kind is not None and kind.rank), 1)
    if isinstance(batch, int) and batch < 2:
        return decline("no argument has a batch of several rows")
    prefix = RowwisePrefix(batch, "func.return")
    prefix.axes = {
        value: 0 for value, kind in kinds.items() if kind is not None and kind.rank and kind.shape[0] == batch
    }
    for op in operations(function):
        reads = [*op.operands, *(captured(op) if len(op.regions) else ())]
        if not any(value in prefix.axes for value in reads):
            continue
        rule = _rowwise_rule(op, prefix)
        if rule is None:
            prefix.end = op.name
            break
        prefix.operations.append(RowwiseOperation(op, rule))
    return prefix


def _rowwise_rule(op: ir.Operation, prefix: RowwisePrefix) -> ShardingRule | None:
    """Return the rule of an operation that computes rows, and note which axes of its results they are."""
    rule, axes = None if len(op.regions) else sharding_rule_of(op.opview), prefix.axes
    if rule is None or rule.state is not None:
        return None
    pairs = list(zip(op.operands, rule.operands, strict=True))
    labels = {own[axes[value]] for value, own in pairs if value in axes}
    label = next(iter(labels))
    if len(labels) != 1 or not label:
        return None
    places = [(value, own.index(label)) for value, own in pairs if label in own]
    if any(axes.get(value) != axis for value, axis in places) or any(label not in own for own in rule.results):
        return None
    rows: dict[ir.Value, int] = {value: own.index(label) for value, own in zip(op.results, rule.results, strict=True)}
    for value, axis in rows.items():
        kind = TensorType.from_mlir(value.type)
        if kind is None or not D.is_multiple(kind.shape[axis], prefix.batch):
            return None
    axes.update(rows)
    if _infers_rows(op, rule, prefix):
        return rule
    for value in rows:
        del axes[value]
    return None


def _infers_rows(op: ir.Operation, rule: ShardingRule, prefix: RowwisePrefix) -> bool:
    """Return whether the types of one row of the results can be inferred from one row of the operands.

    They do not where an attribute holds a size of the whole batch.
    """
    cls: Any = class_of(op)
    operands, results = ([prefix.row(value) for value in values] for values in (op.operands, op.results))
    arguments, attributes = arguments_with(op, operands, rule, results[0].shape)
    try:
        inferred = cls.infer(*arguments, **attributes)
    except OpError:
        return False
    return list(inferred if isinstance(inferred, (tuple, list)) else (inferred,)) == results


def _row_shape(kind: TensorType, axis: int, batch: Dim) -> tuple[Dim, ...]:
    return tuple(dim // batch if i == axis else dim for i, dim in enumerate(kind.shape))


def loop_over_rows(prefix: RowwisePrefix, count: int) -> None:
    """Put the first operations of a prefix into a loop over the rows, which are the first dim of its results."""
    inside, leaving = prefix.operations[:count], list(prefix.leaving()[count - 1])
    block = inside[-1].op.block
    ops = [op.operation for op in block.operations]
    following = ops[ops.index(inside[-1].op) + 1]
    with ir.InsertionPoint(following), inside[-1].op.location:
        results = _loop(prefix, inside, leaving)
    for value, whole in zip(leaving, results, strict=True):
        value.replace_all_uses_with(whole)
    for each in reversed(inside):
        erase_op(each.op)


def _loop(prefix: RowwisePrefix, inside: Sequence[RowwiseOperation], leaving: Sequence[ir.Value]) -> Sequence[ir.Value]:
    """Make the loop at the insertion point; return the values that leave it."""
    kinds = [TensorType.from_mlir(value.type) for value in leaving]
    empty = [OPS["full"].make(shape=kind.shape, value=0.0, dtype=kind.dtype) for kind in kinds if kind is not None]

    def step(index: ir.Value, wholes: Sequence[ir.Value]) -> list[ir.Value]:
        row = _one_row(prefix, inside, index)
        return [with_row(whole, index, row[value]) for whole, value in zip(wholes, leaving, strict=True)]

    return emit_loop(prefix.batch, empty, step)


LoopStep = Callable[[ir.Value, Sequence[ir.Value]], Sequence[ir.Value]]
"""Emits a step of a loop, by its number and the tensors that the loop carries; returns the next of these."""


def emit_loop(count: Dim, carried: Sequence[ir.Value], step: LoopStep) -> Sequence[ir.Value]:
    """Emit a loop of a number of steps at the insertion point; return the tensors that it carries, after it."""
    steps = _number(count) if isinstance(count, int) else _run_time_value(count)
    values = [_number(0), *carried]
    types = [value.type for value in values]
    loop = ir.Operation.create("scf.while", operands=values, results=types, regions=2)
    before, after = (region.blocks.append(*types) for region in loop.regions)
    with ir.InsertionPoint(before):
        flag = OPS["less"].make(before.arguments[0], steps)
        scf.ConditionOp(tensor.ExtractOp(flag, []).result, list(before.arguments))
    with ir.InsertionPoint(after):
        index, *tensors = after.arguments
        following = step(index, tensors)
        scf.YieldOp([OPS["add"].make(index, _number(1)), *following])
    return list(loop.results)[1:]


def row_at(whole: ir.Value, index: ir.Value) -> ir.Value:
    """Emit the read of one of the first dim's rows, as a tensor with one row."""
    row: ir.Value = OPS["gather"].make(whole, OPS["reshape"].make(index, shape=(1,)), axis=0)
    return row


def with_row(whole: ir.Value, index: ir.Value, row: ir.Value) -> ir.Value:
    """Emit the write of one of the first dim's rows, given as a tensor with one row; return the changed tensor."""
    changed: ir.Value = OPS["scatter_nd"].make(whole, OPS["reshape"].make(index, shape=(1, 1)), row)
    return changed


def _number(value: int) -> ir.Value:
    kind = TensorType.of((), "i64")
    result: ir.Value = OPS["constant"].make(value=dense_attribute(np.array(value), kind), result_types=[kind])
    return result


def _run_time_value(dim: Dim) -> ir.Value:
    value: ir.Value = OPS["reshape"].make(OPS["dims_tensor"].make(dims=(dim,)), shape=())
    return value


def _one_row(prefix: RowwisePrefix, inside: Sequence[RowwiseOperation], index: ir.Value) -> Mapping[ir.Value, ir.Value]:
    """Compute one row at the insertion point; return the row of each value."""
    row_of = {value: row_at(value, index) for value in _arguments(prefix, inside)}
    for each in inside:
        with each.op.location:
            operands = [row_of.get(value, value) for value in each.op.operands]
            rows = rebuilt(each.op, operands, each.rule, prefix.row(each.op.results[0]).shape)
        row_of.update(zip(each.op.results, rows, strict=True))
    return row_of


def _arguments(prefix: RowwisePrefix, inside: Iterable[RowwiseOperation]) -> Iterator[ir.Value]:
    """Yield the arguments with rows that operations read, once each."""
    read = dict.fromkeys(value for each in inside for value in each.op.operands)
    return (value for value in read if value in prefix.axes and not isinstance(value, ir.OpResult))


def rebuilt(
    op: ir.Operation, operands: list[ir.Value], rule: ShardingRule, shape: tuple[Dim, ...] | None = None
) -> list[ir.Value]:
    """Return the results of an operation on other operands, with this shape of its result, at the insertion point."""
    cls: type[DialectOp] = class_of(op)
    arguments, attributes = arguments_with(op, operands, rule, shape)
    return list(cls.build(*arguments, **attributes).operation.results)


def arguments_with(
    op: ir.Operation, operands: Sequence[ir.Value | TensorType], rule: ShardingRule, shape: tuple[Dim, ...] | None
) -> tuple[list[Any], dict[str, Any]]:
    """Return an operation's operands with other values or types, and its attributes with another shape."""
    layout = class_of(op)._operand_layout
    attributes = op.opview.attribute_values()
    if rule.shape and shape is not None:
        attributes[rule.shape] = shape
    return [layout.pick(field_, op, operands) for field_ in layout.fields], attributes
