"""Parts of constants: of weights, and of values computed from weights alone, such as dequantized ones."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mirlo.extend.passes import (
    OPS,
    Dim,
    Session,
    ShardingRule,
    TensorType,
    constant_name,
    constant_value,
    emit_constant,
    emit_deferred_constant,
    ir,
    is_constant,
    is_pure_relax,
    rebuilt,
    sharding_rule_of,
)

MAX_DEPTH = 64
"""Most operators between a weight and its user that are divided with it."""
_MIN_DEFERRED_BYTES = 1 << 10
"""Fewest bytes of a part that is read from its file on demand."""


@dataclass(frozen=True)
class AxisRange:
    """A range of an axis."""

    axis: int
    begin: int
    count: int


@dataclass
class ConstantParts:
    """The constants of a graph, and their parts."""

    session: Session
    known: set[ir.Value] = field(default_factory=set)
    """Values that depend on constants only."""
    _parts: dict[tuple[ir.Value, AxisRange], ir.Value] = field(default_factory=dict)
    _names: dict[tuple[str, AxisRange], str] = field(default_factory=dict)

    def note(self, op: ir.Operation) -> bool:
        """Record whether an operation depends on constants only; call this in program order."""
        if not is_pure_relax(op) or len(op.regions):
            return False
        if not len(op.operands):
            rule = sharding_rule_of(op.opview)
            if op.name != "relax.constant" and (rule is None or not _is_static(op)):
                return False
        elif not all(value in self.known for value in op.operands):
            return False
        self.known.update(op.results)
        return True

    def nbytes(self, value: ir.Value, depth: int = 0) -> int:
        """Return the size in bytes of the weights that a constant value is computed from."""
        if value not in self.known or depth > MAX_DEPTH:
            return 0
        if is_constant(value):
            kind = TensorType.from_mlir(value.type)
            return kind.bytes if kind is not None and kind.is_static else 0
        return sum(self.nbytes(each, depth + 1) for each in value.owner.operands)

    def is_zero(self, value: ir.Value) -> bool:
        """Return whether all elements of a value are 0: of a small constant, perhaps repeated."""
        while value in self.known and value.owner.name in ("relax.expand", "relax.reshape", "relax.cast"):
            value = value.owner.operands[0]
        if value not in self.known or not is_constant(value) or value.owner.opview.param is not None:
            return False
        array = constant_value(value, self.session)
        return array is not None and not array.any()

    def can_take(self, value: ir.Value, part: AxisRange, depth: int = 0) -> bool:
        """Return whether a part can be computed from parts of the weights."""
        if part == self._all_of(value, part.axis) or is_constant(value):
            return True
        inner = self._inner(value, part) if depth < MAX_DEPTH else None
        if inner is None:
            return False
        return all(
            each is None or self.can_take(v, each, depth + 1)
            for v, each in zip(value.owner.operands, inner[1], strict=True)
        )

    def take(self, value: ir.Value, part: AxisRange) -> ir.Value:
        """Return a part of a constant, at the insertion point, computed from parts of its weights."""
        if part == self._all_of(value, part.axis):
            return value
        if (value, part) not in self._parts:
            self._parts[value, part] = self._taken(value, part)
        return self._parts[value, part]

    def _taken(self, value: ir.Value, part: AxisRange) -> ir.Value:
        with ir.InsertionPoint(value.owner), value.owner.location:
            if is_constant(value):
                return self._constant(value, part)
            inner = self._inner(value, part)
            if inner is None:
                return sliced(value, part)
            rule, parts = inner
            operands = [
                v if each is None else self.take(v, each) for v, each in zip(value.owner.operands, parts, strict=True)
            ]
            kind = TensorType.from_mlir(value.type)
            assert kind is not None
            return rebuilt(value.owner, operands, rule, _shape_of(kind, part))[0]

    def _inner(self, value: ir.Value, part: AxisRange) -> tuple[ShardingRule, list[AxisRange | None]] | None:
        """Return the ranges of the operands for a range of the result; None if there are none."""
        op = value.owner
        rule = sharding_rule_of(op.opview)
        label = rule.results[0][part.axis] if rule is not None and len(op.results) == 1 else ""
        kind = TensorType.from_mlir(value.type)
        if rule is None or not label or kind is None:
            return None
        size, ranges = kind.shape[part.axis], list[AxisRange | None]()
        for operand, labels in zip(op.operands, rule.operands, strict=True):
            own = TensorType.from_mlir(operand.type)
            if label not in labels or own is None:
                ranges.append(None)
                continue
            axis = labels.index(label)
            dim = own.shape[axis]
            if (
                not isinstance(dim, int)
                or not isinstance(size, int)
                or part.begin * dim % size
                or part.count * dim % size
            ):
                return None
            ranges.append(AxisRange(axis, part.begin * dim // size, part.count * dim // size))
        return rule, ranges

    def _constant(self, value: ir.Value, part: AxisRange) -> ir.Value:
        """Return a part of a weight: rows are views, columns are copied on demand."""
        kind = TensorType.from_mlir(value.type)
        assert kind is not None
        own = kind.with_shape(_shape_of(kind, part))
        index = (*[slice(None)] * part.axis, slice(part.begin, part.begin + part.count))
        name = value.owner.opview.param
        if name is None or own.bytes < _MIN_DEFERRED_BYTES:
            array = constant_value(value, self.session)
            assert array is not None
            return emit_constant(np.ascontiguousarray(array[index]), own, self.session, constant_name(value))
        key = (name, part)
        if key in self._names:
            shared: ir.Value = OPS["constant"].make(param=self._names[key], result_types=[own])
            return shared
        read = self.session.params.reader(name)
        result = emit_deferred_constant(lambda: read()[index], own, self.session, name)
        self._names[key] = result.owner.opview.param
        return result

    @staticmethod
    def _all_of(value: ir.Value, axis: int) -> AxisRange | None:
        kind = TensorType.from_mlir(value.type)
        size = None if kind is None else kind.shape[axis]
        return AxisRange(axis, 0, size) if isinstance(size, int) else None


def sliced(value: ir.Value, part: AxisRange) -> ir.Value:
    """Return a slice over a range of an axis, at the insertion point."""
    kind = TensorType.from_mlir(value.type)
    assert kind is not None
    begin = tuple(part.begin if i == part.axis else 0 for i in range(kind.rank))
    result: ir.Value = OPS["slice_dims"].make(value, begin=begin, shape=_shape_of(kind, part), strides=(1,) * kind.rank)
    return result


def _is_static(op: ir.Operation) -> bool:
    kinds = [TensorType.from_mlir(value.type) for value in op.results]
    return all(kind is not None and kind.is_static for kind in kinds)


def _shape_of(kind: TensorType, part: AxisRange) -> tuple[Dim, ...]:
    return tuple(part.count if i == part.axis else dim for i, dim in enumerate(kind.shape))
