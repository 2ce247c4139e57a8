"""Inlining of elementwise blocks into their readers within one prim function."""

from __future__ import annotations

import itertools

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import clone_with
from mirlo.dialects.core.value import is_constant
from mirlo.dialects.core.values import OPERAND_RUNS
from mirlo.dialects.tir.block import Block
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.dialects.tir.view import BlockView, OperandView, PrimView
from mirlo.passes.fuse.kinds import FusionKind, block_kind, is_row_move
from mirlo.runtime.records import dataclass

CHEAP_OPS = 4
"""Most operations, none of them a math function, of a block that is cheaper to recompute than to store."""


def inline_blocks(function: ir.OpView) -> None:
    """Inline to a fixed point: readers first, so that a value used on several paths is visited once."""
    while True:
        view = PrimView(function)
        if not any(_try_inline(producer, view) for producer in reversed(view.blocks)):
            return


def _try_inline(producer: BlockView, view: PrimView) -> bool:
    if producer.is_reduction or len(producer.outputs) != 1 or not is_identity(producer.outputs[0].map):
        return False
    value = producer.outputs[0].value
    if any(value == returned for returned in view.returned):
        return False
    readers = [b for b in view.blocks if any(o.value == value for o in b.inputs)]
    accesses = [o for b in readers for o in b.inputs if o.value == value]
    if not readers or any(o.is_opaque or o.outside is not None for o in accesses):
        return False
    if any(r.is_reduction for r in readers) and not is_cheap(producer):
        return False
    distinct = {(id(b), str(o.map)) for b in readers for o in b.inputs if o.value == value}
    if len(distinct) > 1 and not is_cheap(producer):
        return False
    if any(_is_product_sum(r) for r in readers) and not is_row_move(producer, widens=True):
        return False
    if len(readers) > 1 and _follows_product_sum(producer, view):
        return False  # computed once, where the accumulators are in registers
    if len(readers) > 1 and any(map(compares_floats, readers)) and _rounds(producer):
        return False  # computed twice, with or without contraction, it may differ from itself
    types = [{str(operand.value.type) for operand in (*producer.inputs, *reader.inputs)} for reader in readers]
    if any(len(each) > OPERAND_RUNS for each in types):
        return False
    inline_block(producer, view)
    return True


def inline_block(producer: BlockView, view: PrimView) -> None:
    """Compute the elements of a block, which is an identity map and no reduction, in all blocks that read them."""
    (value,) = (output.value for output in producer.outputs)
    readers = [block for block in view.blocks if any(operand.value == value for operand in block.inputs)]
    for reader in reversed(readers):  # a later one may read an earlier one, which is replaced
        _inline_into(producer, reader, value)
    producer.op.erase()


def compares_floats(block: BlockView) -> bool:
    """Return whether a block tests whether two floats that vary are equal: an element and the maximum of its row."""
    return any(_is_equality(op) for op in block.body_ops if op.name == "arith.cmpf")


def _is_equality(op: ir.Operation) -> bool:
    left, right = op.operands
    varies = not (is_constant(left) or is_constant(right) or left == right)
    return varies and ir.IntegerAttr(op.attributes["predicate"]).value in EQUALITIES


EQUALITIES = (1, 6, 8, 13)
"""Predicates of `arith.cmpf`: oeq, one, ueq, une."""


def _rounds(block: BlockView) -> bool:
    """Return whether a block computes with floats."""
    return any(isinstance(result.type, ir.FloatType) for op in block.body_ops for result in op.results)


def _follows_product_sum(producer: BlockView, view: PrimView) -> bool:
    produced = {o.value for block in view.blocks if _is_product_sum(block) for o in block.outputs}
    return any(operand.value in produced for operand in producer.inputs)


def _is_product_sum(block: BlockView) -> bool:
    """Return whether a block is a contraction, which keeps plain operands: its schedules pack them."""
    return block.is_reduction and block_kind(block) is FusionKind.CONTRACTION


def is_identity(map_: ir.AffineMap) -> bool:
    return all(isinstance(e, ir.AffineDimExpr) and e.position == i for i, e in enumerate(map_.results))


def is_cheap(block: BlockView) -> bool:
    names = [op.name for op in block.body_ops if op.name != "arith.constant"]
    costly = ("tir.", "arith.divf", "tensor.extract")
    return len(names) <= CHEAP_OPS and not any(name.startswith(costly) for name in names)


@dataclass(frozen=True)
class MergedOperand:
    """An operand of the merged block."""

    value: ir.Value
    map: ir.AffineMap | None
    outside: ir.Attribute | None

    @classmethod
    def of(cls, operand: OperandView) -> MergedOperand:
        """Return an operand of a block as it is."""
        return cls(operand.value, operand.map, operand.outside)

    @property
    def key(self) -> tuple[ir.Value, str, str]:
        return self.value, str(self.map), str(self.outside)


def _inline_into(producer: BlockView, reader: BlockView, value: ir.Value) -> None:
    """Replace the reader by a block that computes the producer's element at each read."""
    slots: list[MergedOperand] = []
    where: dict[tuple[ir.Value, str, str], int] = {}

    def slot(candidate: MergedOperand) -> int:
        if candidate.key not in where:
            where[candidate.key] = len(slots)
            slots.append(candidate)
        return where[candidate.key]

    plan: list[tuple[OperandView, list[int] | int]] = []
    for operand in reader.inputs:
        if operand.value != value:
            plan.append((operand, slot(MergedOperand.of(operand))))
            continue
        inner = [
            slot(MergedOperand(o.value, None if o.is_opaque else composed(o.map, operand.map), o.outside))
            for o in producer.inputs
        ]
        plan.append((operand, inner))
    order = order_of_types(slots)
    slots = [slots[index] for index in order]
    plan = [
        (operand, order.index(at) if isinstance(at, int) else [order.index(each) for each in at])
        for operand, at in plan
    ]
    result = _new_block(reader, slots)
    _fill(result, producer, reader, slots, plan)
    for old, new in zip(reader.op.results, result.operation.results, strict=True):
        old.replace_all_uses_with(new)
    reader.op.erase()


def order_of_types(slots: list[MergedOperand]) -> list[int]:
    """Return the order of a block's operands: unchanged, or by type if they have too many groups of types."""
    types = [str(slot.value.type) for slot in slots]
    runs = 1 + sum(left != right for left, right in itertools.pairwise(types))
    return list(range(len(slots))) if runs <= OPERAND_RUNS else sorted(range(len(slots)), key=types.__getitem__)


def composed(inner: ir.AffineMap, outer: ir.AffineMap) -> ir.AffineMap:
    """Return inner ∘ outer: the inner map applied to the results of the outer one."""
    return ir.AffineMap.get(outer.n_dims, 0, [expr.compose(outer) for expr in inner.results])


def _new_block(reader: BlockView, slots: list[MergedOperand]) -> ir.OpView:
    unit = ir.UnitAttr.get()
    view = reader.op.opview
    maps = [unit if s.map is None else ir.AffineMapAttr.get(s.map) for s in slots]
    maps += [ir.AffineMapAttr.get(o.map) for o in reader.outputs]
    outside = None
    if any(s.outside is not None for s in slots):
        outside = ir.ArrayAttr.get([unit if s.outside is None else s.outside for s in slots])
    with ir.InsertionPoint(reader.op), reader.op.location:
        return Block.build(
            [s.value for s in slots], result_types=[r.type for r in reader.op.results], name=reader.name,
            axes=reader.axes, domain=reader.domain, maps=ir.ArrayAttr.get(maps), outside=outside, init=view.init,
        )  # fmt: skip


def _fill(
    fused: ir.OpView,
    producer: BlockView,
    reader: BlockView,
    slots: list[MergedOperand],
    plan: list[tuple[OperandView, int | list[int]]],
) -> None:
    location = reader.op.location
    types: list[ir.Type] = [ir.IndexType.get()] * reader.rank
    types += [s.value.type if s.map is None else s.value.type.element_type for s in slots]
    types += [a.type for a in reader.accumulators]
    body = fused.operation.regions[0].blocks.append(*types, arg_locs=[location] * len(types))
    arguments: list[ir.Value] = [*body.arguments]
    elements = arguments[reader.rank : reader.rank + len(slots)]
    env = dict(zip(reader.index_arguments, arguments, strict=False))
    env.update(zip(reader.accumulators, arguments[reader.rank + len(slots) :], strict=True))
    with ir.InsertionPoint(body), location:
        computed: dict[str, ir.Value] = {}
        for argument, (operand, target) in zip(reader.input_arguments, plan, strict=True):
            if isinstance(target, int):
                env[argument] = elements[target]
                continue
            key = str(operand.map)
            if key not in computed:
                computed[key] = _producer_body(producer, operand.map, arguments, [elements[i] for i in target])
            env[argument] = computed[key]
        copy_ops(reader, env)
        made_values = [env[v] for v in reader.yielded]
        terminator = list(reader.body.operations)[-1].operation
        clone_with(terminator, made_values)


def _producer_body(
    producer: BlockView, map_: ir.AffineMap, indices: list[ir.Value], elements: list[ir.Value]
) -> ir.Value:
    env = dict(zip(producer.input_arguments, elements, strict=True))
    for axis, argument in enumerate(producer.index_arguments):
        if producer.uses_index(axis):
            env[argument] = emit_affine(map_.results[axis], indices)
    copy_ops(producer, env)
    return env[producer.yielded[0]]


def copy_ops(block: BlockView, env: dict[ir.Value, ir.Value]) -> None:
    """Copy the operations of a body, with other values for its own, and add those of the copies."""
    for op in block.body_ops:
        copy = clone_with(op, [env[v] for v in op.operands])
        env.update(zip(op.results, copy.results, strict=True))


_BINARY = {
    ir.AffineAddExpr: "arith.addi",
    ir.AffineMulExpr: "arith.muli",
    ir.AffineFloorDivExpr: "arith.floordivsi",
    ir.AffineModExpr: "arith.remsi",
}


def emit_affine(expr: ir.AffineExpr, indices: list[ir.Value]) -> ir.Value:
    """Emit an affine expression of non-negative index values as arithmetic that vectorizes."""
    index = ir.IndexType.get()
    if isinstance(expr, ir.AffineDimExpr):
        return indices[expr.position]
    if isinstance(expr, ir.AffineConstantExpr):
        return emit_constant(expr.value, index)
    name = next(n for kind, n in _BINARY.items() if isinstance(expr, kind))
    left, right = emit_affine(expr.lhs, indices), emit_affine(expr.rhs, indices)
    result = create(name, index, left, right)
    if isinstance(expr, ir.AffineModExpr) and _may_be_negative(expr.lhs):
        # The remainder has the sign of the dividend; a modulus is never negative.
        return create(name, index, create("arith.addi", index, result, right), right)
    return result


def _may_be_negative(expr: ir.AffineExpr) -> bool:
    if isinstance(expr, ir.AffineConstantExpr):
        return bool(expr.value < 0)
    if isinstance(expr, (ir.AffineDimExpr, ir.AffineModExpr)):
        return False
    return _may_be_negative(expr.lhs) or _may_be_negative(expr.rhs)
