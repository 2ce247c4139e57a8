"""The body of a contraction: `accumulator + lhs * rhs`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.compute.emit import create
from mirlo.dialects.tir.intrinsics import SINGLE_INSTRUCTIONS
from mirlo.dialects.tir.view import BlockView, OperandView
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.vectors import vector_body
from mirlo.runtime.records import dataclass

ADDS = ("arith.addf", "arith.addi")
MULTIPLIES = ("arith.mulf", "arith.muli")


@dataclass(frozen=True)
class ProductInput:
    """An operand of the product, and the casts that the body applies to its element before multiplying."""

    operand: OperandView
    position: int
    """Which input of the block this is; two inputs may be the same value."""
    argument: ir.Value
    body_ops: tuple[ir.Operation, ...]
    """Operations from the element to the multiplied value; with `yielded` a body that `vector_body` emits."""
    result: ir.Value

    @property
    def yielded(self) -> list[ir.Value]:
        return [self.result]

    def emit(self, element: ir.Value, lanes: int) -> ir.Value:
        """Emit the multiplied value of an element, or of a vector of elements."""
        if not self.body_ops:
            return element
        return vector_body(self, {self.argument: element}, lanes)[0]


@dataclass(frozen=True)
class MultiplyAdd:
    """The two operands of a multiply-and-add body."""

    lhs: ProductInput
    rhs: ProductInput
    accumulate_type: ir.Type
    """Type of the accumulator: that of the block, but f32 for half-precision floats."""


def match_multiply_add(block: BlockView) -> MultiplyAdd | Decline:
    """Match the product that a block accumulates."""
    if len(block.outputs) != 1 or not block.is_reduction:
        return decline("not a reduction with one output")
    accumulator, total = block.accumulators[0], block.yielded[0]
    add = _definition(total)
    if add is None or add.name not in ADDS or accumulator not in list(add.operands):
        return decline("the body does not add to the accumulator")
    if any(block.uses_index(axis) for axis in range(block.rank)):
        return decline("the body computes with the index of an axis")
    left, right = list(add.operands)
    multiply = _definition(right if left == accumulator else left)
    if multiply is None or multiply.name not in MULTIPLIES:
        return decline("the body adds something else than a product")
    factors = []
    for value in multiply.operands:
        factor = _match_operand(block, value)
        if isinstance(factor, Decline):
            return factor
        factors.append(factor)
    if len([u for u in accumulator.uses]) != 1:
        return decline("the body reads the accumulator twice")
    kind = total.type
    if isinstance(kind, (ir.F16Type, ir.BF16Type)):
        kind = ir.F32Type.get()
    return MultiplyAdd(factors[0], factors[1], kind)


def _definition(value: ir.Value) -> ir.Operation | None:
    """Return the operation that defines a value; None for a block argument."""
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def _match_operand(block: BlockView, value: ir.Value) -> ProductInput | Decline:
    needed: set[ir.Value] = {value}
    for op in reversed(block.body_ops):
        if any(result in needed for result in op.results):
            needed.update(op.operands)
    read = [i for i, argument in enumerate(block.input_arguments) if argument in needed]
    if len(read) != 1:
        return decline("a factor of the product reads several operands, or none", operands=len(read))
    (position,) = read
    operand = block.inputs[position]
    if operand.is_opaque:
        return decline("an operand is read by the body itself (a gather)")
    ops = tuple(op for op in block.body_ops if any(result in needed for result in op.results))
    return ProductInput(operand, position, block.input_arguments[position], ops, value)


def emit_init(block: BlockView, kind: ir.Type) -> ir.Attribute:
    """Return the initial value of the sum, as an attribute of the accumulator's type."""
    start = block.init[0]
    assert start is not None, "a reduction has an initial value"
    if start.type == kind:
        result: ir.Attribute = start
        return result
    return ir.FloatAttr.get(kind, ir.FloatAttr(start).value)


def count_operations(blocks: Sequence[BlockView], sizes: Mapping[str, int] = MappingProxyType({})) -> int:
    """Return the number of operations in these bodies, as a measure of the size of each copy of them.

    `sizes` has those of intrinsics, by name, with much more or less code than others.
    """
    expanded = 12  # an intrinsic without an instruction of its own is about this many operations

    def count(name: str) -> int:
        is_expanded = name.startswith("tir.") and name[4:] not in SINGLE_INSTRUCTIONS
        return sizes.get(name[4:], expanded) if is_expanded else 1

    return sum(count(op.name) for b in blocks for op in b.body_ops)


def widened(value: ir.Value, kind: ir.Type) -> ir.Value:
    """Convert a half-precision operand to the accumulator's type; others have that type already."""
    return _cast("arith.extf", value, kind)


def convert_accumulator(value: ir.Value, kind: ir.Type) -> ir.Value:
    """Convert an accumulator to the element type of the result."""
    return _cast("arith.truncf", value, kind)


def _cast(name: str, value: ir.Value, kind: ir.Type) -> ir.Value:
    held = value.type
    if isinstance(held, ir.VectorType):
        return value if held.element_type == kind else create(name, ir.VectorType.get(list(held.shape), kind), value)
    return value if held == kind else create(name, kind, value)


def is_zero(number: ir.Attribute) -> bool:
    """Return whether a number, such as that beyond the edges of an operand, is zero."""
    if isinstance(number, ir.FloatAttr):
        return float(ir.FloatAttr(number).value) == 0.0
    return int(ir.IntegerAttr(number).value) == 0
