"""Blocks in loops: the elements that accesses touch at each iteration, and the facts about the body there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, UndecidedDim
from mirlo.dialects.core.index_expr import (
    Extents,
    IndexExpr,
    contiguous_strides,
    flatten,
    floor_divide,
    larger,
    number,
)
from mirlo.dialects.tir.affine import read_affine
from mirlo.dialects.tir.view import BlockView, OperandView

EXTREMES = ("arith.maxsi", "arith.minsi")


def arithmetic(name: str, a: IndexExpr, b: IndexExpr, extents: Extents) -> IndexExpr | None:
    """Return the result of an index operation if it is an index expression.

    For min and max this is so only if one operand always wins.
    """
    if name == "arith.addi":
        return a + b
    if name == "arith.subi":
        return a - b
    if name == "arith.muli" and (a.is_constant or b.is_constant):
        result: IndexExpr = a * b.constant if b.is_constant else b * a.constant
        return result
    if name == "arith.floordivsi" and b.is_constant and D.is_certain(lambda: b.constant > 0):
        return floor_divide(a, b.constant, extents)
    if name in EXTREMES:
        maximum = larger(a, b, extents)
        return maximum if maximum is None or name == "arith.maxsi" else b if maximum is a else a
    return None


_NO_WRAP = 1 << 62
"""Index computations with larger values may wrap, and are not analyzed."""
_EQ, _NE, _SLT, _SLE, _SGT, _SGE = range(6)
_TRUE_WHEN: dict[int, Callable[[int, int], bool | None]] = {
    # Decide a comparison from the range of lhs - rhs; None if the range does not decide it.
    _EQ: lambda low, high: True if low == high == 0 else False if low > 0 or high < 0 else None,
    _NE: lambda low, high: False if low == high == 0 else True if low > 0 or high < 0 else None,
    _SLT: lambda low, high: True if high < 0 else False if low >= 0 else None,
    _SLE: lambda low, high: True if high <= 0 else False if low > 0 else None,
    _SGT: lambda low, high: True if low > 0 else False if high <= 0 else None,
    _SGE: lambda low, high: True if low >= 0 else False if high < 0 else None,
}


def _is_within(low: Dim, high: Dim, size: Dim) -> bool:
    return low is not None and low >= 0 and high < size


def _is_beyond(low: Dim, high: Dim, size: Dim) -> bool:
    return low is not None and (high < 0 or low >= size)


class BlockInstance:
    """A block whose axes are expressions over loops."""

    def __init__(
        self,
        block: BlockView,
        where: Sequence[IndexExpr],
        extents: Extents,
        roots: Sequence[ir.Value] | None = None,
        known: Mapping[ir.Value, bool] | None = None,
    ):
        self.block = block
        self.roots = list(block.yielded if roots is None else roots)
        """Values of the body that are needed."""
        self.where = tuple(where)
        self.extents: Extents = extents if isinstance(extents, Mapping) else tuple(extents)
        self._linear: dict[ir.Value, IndexExpr | None] = {}
        self._known: dict[ir.Value, bool | None] = dict(known or {})
        self._dims: dict[int, tuple[IndexExpr, ...]] = {}
        self._is_read = False
        """Whether the body is analyzed: many instances are placed, and placed elsewhere, before one is emitted."""

    @property
    def results(self) -> list[tuple[OperandView, ir.Value]]:
        """Return the outputs, each with the value of the body that is its element; the block does not reduce."""
        return list(zip(self.block.outputs, self.roots, strict=True))

    def dims(self, operand: OperandView) -> tuple[IndexExpr, ...]:
        """Return the index of the element that a mapped operand or output accesses."""
        key = id(operand)
        if key not in self._dims:
            self._dims[key] = tuple(read_affine(e, self.where, self.extents) for e in operand.map.results)
        return self._dims[key]

    def flat(self, operand: OperandView, strides: Sequence[Dim] | None = None) -> IndexExpr:
        """Return the position of that element in memory; without strides the tensor is contiguous."""
        return flatten(self.dims(operand), contiguous_strides(operand.shape) if strides is None else strides)

    @cached_property
    def argument_operands(self) -> dict[ir.Value, OperandView]:
        """Return the body arguments that are elements of mapped operands, or whole tensors."""
        return dict(zip(self.block.input_arguments, self.block.inputs, strict=True))

    @cached_property
    def argument_axes(self) -> dict[ir.Value, int]:
        return {argument: i for i, argument in enumerate(self.block.index_arguments)}

    def linear(self, value: ir.Value) -> IndexExpr | None:
        """Return an index computation of the body as an expression over the loops; None if it is not affine."""
        if not self._is_read:
            self._read_body()
        if value not in self._linear:
            index = self._read(value) if str(value.type) in ("index", "i64") else None
            if index is not None and self._may_wrap(index):
                index = None
            self._linear[value] = index
        return self._linear[value]

    def _may_wrap(self, expression: IndexExpr) -> bool:
        """Return whether a constant exceeds the range of an index; dynamic sizes are bounded by memory."""
        try:
            low, high = expression.range(self.extents)
        except UndecidedDim:
            return False
        return any(isinstance(end, int) and abs(end) > _NO_WRAP for end in (low, high))

    def _read(self, value: ir.Value) -> IndexExpr | None:
        if value in self.argument_axes:
            return self.where[self.argument_axes[value]]
        owner = value.owner
        if isinstance(owner, ir.Block):
            return None
        op = owner.operation
        if op.name == "arith.constant":
            attribute = op.attributes["value"]
            return number(attribute.value) if isinstance(attribute, ir.IntegerAttr) else None
        if op.name == "tir.size":
            return number(D.parse(op.opview.dim))
        if op.name == "arith.select":
            condition = self.known(op.operands[0])
            return None if condition is None else self.linear(op.operands[1 if condition else 2])
        parts = [self.linear(operand) for operand in op.operands]
        if op.name == "arith.index_cast":
            return parts[0]
        if len(parts) != 2 or parts[0] is None or parts[1] is None:
            return None
        return arithmetic(op.name, parts[0], parts[1], self.extents)

    def known(self, value: ir.Value) -> bool | None:
        """Return the value of a condition of the body that is the same at every iteration, else None."""
        if not self._is_read:
            self._read_body()
        if value not in self._known:
            self._known[value] = self._decide(value)
        return self._known[value]

    def _read_body(self) -> None:
        """Analyze the operations of the body in order, to avoid deep recursion in long bodies."""
        self._is_read = True
        for op in self.block.body_ops:
            for value in op.results:
                self.linear(value)
                self.known(value)

    def _decide(self, value: ir.Value) -> bool | None:
        if isinstance(value.owner, ir.Block):
            return None
        op = value.owner.operation
        if op.name == "arith.cmpi":
            difference = self.difference(op)
            if difference is None:
                return None
            test = _TRUE_WHEN.get(op.attributes["predicate"].value)
            try:
                return test(*difference.range(self.extents)) if test else None
            except UndecidedDim:
                return None
        if op.name in ("arith.andi", "arith.ori"):
            left, right = (self.known(operand) for operand in op.operands)
            decisive = op.name == "arith.ori"
            if left is decisive or right is decisive:
                return decisive
            return left if left is not None and right is not None else None
        if op.name == "arith.constant" and str(value.type) == "i1":
            return bool(op.attributes["value"].value)
        return None

    def difference(self, comparison: ir.Operation) -> IndexExpr | None:
        """Return lhs - rhs of an integer comparison of two index expressions."""
        left, right = (self.linear(operand) for operand in comparison.operands)
        return None if left is None or right is None else left - right

    def arguments_of(self, op: ir.Operation) -> list[ir.Value]:
        """Return the operands of a body operation that its result depends on."""
        operands = list(op.operands)
        if op.name == "arith.select":
            condition = self.known(operands[0])
            if condition is not None:
                return [operands[1 if condition else 2]]
        return operands

    @cached_property
    def needed(self) -> list[ir.Value]:
        """Return the values of the body that the roots depend on, in order of definition."""
        wanted = set(self.roots)
        values: list[ir.Value] = []

        def is_leaf(value: ir.Value) -> bool:
            return self.known(value) is not None or self.linear(value) is not None

        for op in reversed(self.block.body_ops):
            for value in op.results:
                if value in wanted:
                    values.append(value)
                    if not is_leaf(value):
                        wanted.update(self.arguments_of(op))
        values += [argument for argument in self.block.body.arguments if argument in wanted]
        return values[::-1]

    @cached_property
    def needed_inputs(self) -> list[OperandView]:
        """Return the operands that are read."""
        return [self.argument_operands[v] for v in self.needed if v in self.argument_operands]

    def outside_tests(self, operand: OperandView) -> list[tuple[IndexExpr, Dim]]:
        """Return the (index, size) pairs for which 0 ≤ index < size is not proven."""
        if operand.outside is None or operand.map is None:
            return []
        unsure = []
        for dim, size in zip(self.dims(operand), operand.shape, strict=True):
            low, high = self._range(dim)
            if not D.is_certain(partial(_is_within, low, high, size)):
                unsure.append((dim, size))
        return unsure

    def _range(self, dim: IndexExpr) -> tuple[Any, Any]:
        try:
            return dim.range(self.extents)
        except UndecidedDim:
            return None, None

    def always_outside(self, operand: OperandView) -> bool:
        """Return whether every element that is read is out of bounds."""
        for dim, size in self.outside_tests(operand):
            low, high = self._range(dim)
            if D.is_certain(partial(_is_beyond, low, high, size)):
                return True
        return False

    def simple(self) -> bool:
        """Return whether no access contains a division, which merging loops must preserve."""
        for operand in (*self.needed_inputs, *self.block.outputs):
            if operand.map is None:
                continue
            if self.flat(operand).divisions:
                return False
            if operand.outside is not None and any(dim.divisions for dim in self.dims(operand)):
                return False
        computed = [self.linear(value) for value in self.needed]
        return not any(expression.divisions for expression in computed if expression is not None)


def computed_values(instances: Iterable[BlockInstance]) -> dict[ir.Value, tuple[BlockInstance, ir.Value]]:
    """Return the tensors that blocks without reductions compute: the block of each, and the value in its body."""
    return {output.value: (instance, value) for instance in instances for output, value in instance.results}
