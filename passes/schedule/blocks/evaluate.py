"""Values of blocks at one point of their loops: a scalar point, or the lanes of a vector along one loop."""

from __future__ import annotations

from collections.abc import Container, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mirlo.dialects.bindings import affine, ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr, Variable, contiguous_strides, loop_index, number
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

    def touch(self, instances: Sequence[BlockInstance], stored: Container[ir.Value]) -> None:
        """Make the views of all buffers that blocks access: those of what they compute only if it is stored."""
        computed = {output.value for instance in instances for output in instance.block.outputs}
        for instance in instances:
            for operand in (*instance.needed_inputs, *instance.block.outputs):
                if operand.value in stored or operand.value not in computed:
                    self.slot(operand.value)

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


@dataclass
class LoopNestState:
    """State that all points of a loop nest share."""

    memory: TensorBuffers | None
    """None in analyses that emit nothing."""
    axis: Variable | None
    """The loop that is vectorized."""
    made: dict[ir.Value, tuple[BlockInstance, ir.Value]] = field(default_factory=dict)
    """Tensor values that are computed at the same point: the block, and the value in its body."""
    held: dict[ir.Value, ir.Value] = field(default_factory=dict)
    """Tensor values whose one element is in a register."""
    reduced: set[ir.Value] = field(default_factory=set)
    """Tensor values whose element per lane is in a register; `given` of the point provides it."""
    _varying: dict[BlockInstance, set[ir.Value]] = field(default_factory=dict)

    def slot(self, value: ir.Value) -> BufferSlot:
        """Return where a tensor is stored."""
        assert self.memory is not None, "an analysis emits nothing"
        return self.memory.slot(value)

    def varying(self, instance: BlockInstance) -> set[ir.Value]:
        """Return the needed values of a body that differ between lanes."""
        if instance not in self._varying:
            values = self._varying[instance] = set()
            for value in instance.needed:
                if self._varies(instance, value, values):
                    values.add(value)
        return self._varying[instance]

    def _varies(self, instance: BlockInstance, value: ir.Value, found: set[ir.Value]) -> bool:
        axis = self.axis
        if axis is None or instance.known(value) is not None:
            return False
        expression = instance.linear(value)
        if expression is not None:
            return bool(expression.coefficient(axis) != 0)
        operand = instance.argument_operands.get(value)
        if operand is not None:
            return operand.map is not None and self._operand_varies(instance, operand, axis)
        if isinstance(value.owner, ir.Block):
            return True  # the accumulator of a reduction
        return any(v in found for v in instance.arguments_of(value.owner.operation))

    def _operand_varies(self, instance: BlockInstance, operand: OperandView, axis: Variable) -> bool:
        if operand.value in self.held:
            return False
        if operand.value in self.reduced:
            return True
        if operand.value in self.made:
            producer, value = self.made[operand.value]
            return value in self.varying(producer)
        return any(dim.coefficient(axis) != 0 for dim in instance.dims(operand))


class Iteration:
    """One iteration: the values of all blocks, each emitted once; without lanes everything is scalar.

    An index is a value, or an integer if constant; None for a loop that no access depends on.

    `outer` is a point of the enclosing loops whose values are valid here too; `given` replaces arguments of bodies,
    and elements of the tensor values in `frame.reduced`. `beyond` is the offset of the point from its indices, by
    loop: reads of adjacent points then have one address and constant offsets, so that LLVM merges them into one
    access.
    """

    mask = None

    def __init__(
        self,
        frame: LoopNestState,
        indices: Sequence[Any],
        lanes: int = 1,
        active: int | None = None,
        outer: Iteration | None = None,
        given: dict[ir.Value, ir.Value] | None = None,
        beyond: dict[int, int] | None = None,
    ):
        self.frame = frame
        self.beyond = beyond or {}
        self.indices = indices
        self.lanes = lanes
        self.active = lanes if active is None else active
        self.axis = frame.axis if lanes > 1 else None
        self.outer = outer
        self.values: dict[ir.Value, ir.Value] = dict(given or {})

    def find(self, value: ir.Value) -> Any:
        """Return the emitted value of a body value, from this point or an outer one; None if there is none."""
        point: Iteration | None = self
        while point is not None:
            if value in point.values:
                return point.values[value]
            point = point.outer
        return None

    def run(self, instance: BlockInstance, skip: set[ir.Value] | frozenset[ir.Value] = frozenset()) -> None:
        """Emit the needed values of a body that are not emitted yet."""
        for value in instance.needed:
            if value not in skip and self.find(value) is None:
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
        return vector_op(op, [self.find(v) for v in op.operands], self.lanes)[0]

    def _index_value(self, expression: IndexExpr, wanted: ir.Type) -> ir.Value:
        value = self.index(expression)
        if str(wanted) == "index":
            return value
        kind = ir.VectorType.get([self.lanes], wanted) if isinstance(value.type, ir.VectorType) else wanted
        return create("arith.index_cast", kind, value)

    def index(self, expression: IndexExpr) -> ir.Value:
        """Emit an index: a vector if it differs between lanes."""
        return access.lane_index(expression, self.axis, self.first, self.lanes)

    def first(self, expression: IndexExpr) -> ir.Value:
        """Emit the index of the first lane."""
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
        """Emit the index of the first lane if strides or divisors are dynamic."""
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
        """Return the index of the first lane if it is a constant."""
        replaced = self._with_numbers(expression)
        return replaced.constant if replaced.is_constant else None

    def _with_numbers(self, expression: IndexExpr) -> IndexExpr:
        """Substitute the loops with constant indices, and add the offsets `beyond` of the others."""
        if not any(isinstance(self.indices[axis], int) or axis in self.beyond for axis in expression.variables()):
            return expression

        def by(axis: int) -> IndexExpr:
            at = self.indices[axis]
            return (number(at) if isinstance(at, int) else loop_index(axis)) + number(self.beyond.get(axis, 0))

        return expression.substitute(by, [_UNBOUNDED] * len(self.indices))

    def read(self, instance: BlockInstance, operand: OperandView) -> ir.Value:
        """Load the element of an operand, or one per lane; return the buffer of an operand without a map."""
        if operand.map is None:
            return self.frame.slot(operand.value).buffer
        if operand.value in self.frame.held:
            return self.frame.held[operand.value]
        if operand.value in self.frame.made:
            made: ir.Value = self.find(self.frame.made[operand.value][1])
            return made
        if operand.value in self.frame.reduced:
            result: ir.Value = self.find(operand.value)
            return result
        if operand.outside is not None and instance.always_outside(operand):
            return create("arith.constant", operand.element_type, value=operand.outside)
        slot = self.frame.slot(operand.value)
        where = instance.flat(operand, slot.strides)
        return access.read(self, slot.buffer, where, instance.outside_tests(operand), operand.outside)

    def _extract(self, instance: BlockInstance, op: ir.Operation) -> ir.Value:
        """Load an element, or one per lane, at computed indices."""
        tensor, *indices = op.operands
        slot = self.frame.slot(instance.argument_operands[tensor].value)
        where, computed = number(0), []
        for value, stride in zip(indices, slot.strides, strict=True):
            expression = instance.linear(value)
            if expression is not None:
                where = where + expression * stride
            else:
                computed.append((self.find(value), stride))
        return access.read_computed(self, slot.buffer, where, computed)

    def store_results(self, instance: BlockInstance, stored: Container[ir.Value]) -> None:
        """Store those outputs of a block that are stored."""
        for output, value in instance.results:
            if output.value in stored:
                self.store(instance, output, self.find(value))

    def store(self, instance: BlockInstance, output: OperandView, value: ir.Value) -> None:
        """Store an output of a block."""
        slot = self.frame.slot(output.value)
        access.write(self, value, slot.buffer, instance.flat(output, slot.strides))
