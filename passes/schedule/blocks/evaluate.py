"""Buffers of tensor values, and values of blocks at one point of their loops, for attention on GPUs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mirlo.dialects.bindings import affine, ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr, contiguous_strides, loop_index, number
from mirlo.dialects.core.types import dims_of
from mirlo.dialects.core.value import Value, index
from mirlo.dialects.tir.affine import to_affine
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.dialects.tir.view import OperandView
from mirlo.passes.schedule.blocks import access
from mirlo.passes.schedule.blocks.space import BlockInstance
from mirlo.passes.schedule.buffers import BufferFunction
from mirlo.passes.schedule.vectors import flat, vector_op

_UNBOUNDED = 1 << 40
"""An extent that bounds nothing."""


@dataclass(frozen=True)
class BufferSlot:
    """Where a tensor is stored: a one-dimensional buffer, and the stride of each dim."""

    buffer: ir.Value
    strides: tuple[Dim, ...]


class TensorBuffers:
    """The buffers of tensor values, each flattened at its first use outside of all loops."""

    def __init__(self, buffers: BufferFunction):
        self.buffers = buffers
        self._slots: dict[Hashable, BufferSlot] = {}
        self._instead: dict[ir.Value, ir.Value] = {}
        self._placed: dict[Hashable, ir.Value] = {}

    def share(self, value: ir.Value, other: ir.Value) -> None:
        """Store a value in the buffer of another value with the same shape and type."""
        self._instead[value] = other

    def place(self, value: Hashable, buffer: ir.Value) -> None:
        """Store a part of a value, that of a block, in a separate buffer; positions are relative to the part."""
        self._placed[value] = buffer

    def copy(self) -> TensorBuffers:
        """Return the same places, for values that are to be in others from here on."""
        result = TensorBuffers(self.buffers)
        result._instead, result._placed = dict(self._instead), dict(self._placed)
        return result

    def buffer(self, value: Any) -> ir.Value:
        """Return the buffer of a value: that of the function, or where the value is placed."""
        target = self._instead.get(value, value)
        return self._placed[target] if target in self._placed else self.buffers.buffer(target)

    def slot(self, value: Any) -> BufferSlot:
        if value not in self._slots:
            self._slots[value] = BufferSlot(flat(self.buffer(value)), contiguous_strides(dims_of(value.type)))
        return self._slots[value]


class Iteration:
    """One iteration: the values of all blocks, each emitted once.

    An index is a value, or an integer if constant; None for a loop that no access depends on.
    """

    lanes, active, axis, mask = 1, 1, None, None

    def __init__(
        self,
        memory: TensorBuffers,
        indices: Sequence[Any],
        computed: Mapping[ir.Value, ir.Value] | None = None,
        held: Mapping[ir.Value, ir.Value] | None = None,
        known: Mapping[ir.Value, ir.Value] | None = None,
    ) -> None:
        self.memory = memory
        self.indices = indices
        self.computed = computed or {}
        """Tensor values that are computed in the same iteration, and the values of bodies that they are."""
        self.held = held or {}
        """Tensor values whose one element is in a register."""
        self.values: dict[ir.Value, ir.Value] = dict(known or {})

    def find(self, value: ir.Value) -> Any:
        """Return the emitted value of a body value; None if there is none."""
        return self.values.get(value)

    def run(self, instance: BlockInstance) -> None:
        """Emit the needed values of a body that are not emitted yet."""
        for value in instance.needed:
            if value not in self.values:
                self.values[value] = self._emit(instance, value)

    def _emit(self, instance: BlockInstance, value: ir.Value) -> ir.Value:
        known = instance.known(value)
        if known is not None:
            return emit_constant(known, value.type)
        operand = instance.argument_operands.get(value)
        if operand is not None:
            return self.read(instance, operand)
        owner = value.owner
        if not isinstance(owner, ir.Block) and owner.operation.name == "arith.constant":
            return create("arith.constant", value.type, value=owner.operation.attributes["value"])
        expression = instance.linear(value)
        if expression is not None:
            return self._index_value(expression, value.type)
        op = owner.operation
        if op.name == "arith.select" and instance.known(op.operands[0]) is not None:
            result: ir.Value = self.find(instance.arguments_of(op)[0])
            return result
        if op.name == "tensor.extract":
            return self._extract(instance, op)
        return vector_op(op, [self.find(v) for v in op.operands], 1)[0]

    def _index_value(self, expression: IndexExpr, wanted: ir.Type) -> ir.Value:
        value = self.index(expression)
        return value if str(wanted) == "index" else create("arith.index_cast", wanted, value)

    def index(self, expression: IndexExpr) -> ir.Value:
        """Emit an index."""
        return self.first(expression)

    def first(self, expression: IndexExpr) -> ir.Value:
        """Emit an index."""
        expression = self._with_numbers(expression)
        if expression.is_constant:
            return index(expression.constant)
        axes = sorted(expression.variables())
        if len(axes) == 1 and expression == loop_index(axes[0]):
            result: ir.Value = self.indices[axes[0]]
            return result
        if not expression.is_numeric:
            return self._sum(expression)
        positions = {axis: i for i, axis in enumerate(axes)}
        map_ = ir.AffineMap.get(len(axes), 0, [to_affine(expression, positions)])
        return affine.AffineApplyOp(map_, [self.indices[axis] for axis in axes]).result

    def _sum(self, expression: IndexExpr) -> ir.Value:
        """Emit an index if strides or divisors are dynamic."""
        kind = ir.IndexType.get()
        total: Value | None = None if expression.constant == 0 else index(expression.constant)
        for term, coefficient in expression.terms.items():
            if isinstance(term, int):
                part = self.indices[term]
            else:
                part = create("arith.floordivsi", kind, self.first(term.inner), index(term.divisor))
            scaled = Value(part) if coefficient == 1 else Value(part) * index(coefficient)
            total = scaled if total is None else total + scaled
        assert total is not None, "an expression that is not constant has terms"
        return total

    def number(self, expression: IndexExpr) -> Dim | None:
        """Return an index if it is a constant."""
        replaced = self._with_numbers(expression)
        return replaced.constant if replaced.is_constant else None

    def _with_numbers(self, expression: IndexExpr) -> IndexExpr:
        """Substitute the loops with constant indices."""
        if not any(isinstance(self.indices[axis], int) for axis in expression.variables()):
            return expression

        def by(axis: int) -> IndexExpr:
            at = self.indices[axis]
            return number(at) if isinstance(at, int) else loop_index(axis)

        return expression.substitute(by, [_UNBOUNDED] * len(self.indices))

    def read(self, instance: BlockInstance, operand: OperandView) -> ir.Value:
        """Load the element of an operand; return the buffer of an operand without a map."""
        if operand.map is None:
            return self.memory.slot(operand.value).buffer
        if operand.value in self.held:
            return self.held[operand.value]
        if operand.value in self.computed:
            value: ir.Value = self.find(self.computed[operand.value])
            return value
        if operand.outside is not None and instance.always_outside(operand):
            return create("arith.constant", operand.element_type, value=operand.outside)
        slot = self.memory.slot(operand.value)
        where = instance.flat(operand, slot.strides)
        return access.read(self, slot.buffer, where, instance.outside_tests(operand), operand.outside)

    def _extract(self, instance: BlockInstance, op: ir.Operation) -> ir.Value:
        """Load an element at computed indices."""
        tensor, *indices = op.operands
        slot = self.memory.slot(instance.argument_operands[tensor].value)
        where, computed = number(0), []
        for value, stride in zip(indices, slot.strides, strict=True):
            expression = instance.linear(value)
            if expression is not None:
                where = where + expression * stride
            else:
                computed.append((self.find(value), stride))
        return access.read_computed(self, slot.buffer, where, computed)

    def store(self, instance: BlockInstance, output: OperandView, value: ir.Value) -> None:
        """Store an output of a block."""
        slot = self.memory.slot(output.value)
        access.write(self, value, slot.buffer, instance.flat(output, slot.strides))
