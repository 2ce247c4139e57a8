"""Bodies of blocks in loops: which conditions on indices all iterations share, and where they change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import Extents, IndexExpr
from mirlo.dialects.core.value import create, emit_constant
from mirlo.dialects.tir.view import BlockView
from mirlo.passes.schedule.blocks.instance import EXTREMES, BlockInstance
from mirlo.passes.schedule.loops import KnownBody, ScalarBody
from mirlo.passes.schedule.primitives.contiguity import is_beyond_edge
from mirlo.passes.schedule.primitives.tree import BlockLeaf, around, extents_of, placed_at
from mirlo.runtime.records import dataclass

CHANGES = {0: (0, 1), 1: (0, 1), 2: (0,), 3: (1,), 4: (1,), 5: (0,)}
"""By predicate of `arith.cmpi`: the values of lhs - rhs at which it changes."""


def instances_of(leaf: BlockLeaf) -> list[BlockInstance]:
    """Return a block, those inlined in it and those of its epilogue, by the loops around it."""
    extents = extents_of(around(leaf))
    result = _instances(leaf, leaf.at, extents)
    for after in leaf.epilogue:
        result += _instances(after, placed_at(after.at, leaf.at), extents)
    return result


def _instances(block: BlockLeaf, at: list[IndexExpr], extents: dict[str, Dim]) -> list[BlockInstance]:
    """Return the blocks inlined in a block, and the block itself, at these values of its axes."""
    result: list[BlockInstance] = []
    for access in block.reads:
        if access.inlined is not None:
            result += _instances(access.inlined, placed_at(access.at, at), extents)
    if block.view is not None:
        result.append(BlockInstance(block.view, at, extents, known=dict.fromkeys(block.assumed, True)))
    return result


@dataclass(frozen=True)
class KnownValues:
    """Known values of a body at some iterations of the loops around it."""

    needed: frozenset[ir.Value]
    """The values that the results depend on."""
    conditions: dict[ir.Value, bool]
    indices: dict[ir.Value, IndexExpr]
    """Values of operations that are expressions of the loops."""
    selected: dict[ir.Value, ir.Value]
    """Results of selections whose condition is known, and the operand that is selected."""

    def rest(self, body: ScalarBody) -> KnownBody:
        """Return the operations of the body, or of a part of it, that are not known."""
        known = self.conditions.keys() | self.indices.keys()
        ops = [op for op in body.body_ops if op.results[0] in self.needed and op.results[0] not in known]
        return KnownBody(ops, body.yielded, self.selected)

    def emit(self, emit_index: Callable[[IndexExpr], ir.Value]) -> dict[ir.Value, ir.Value]:
        """Emit the values that are known."""
        env: dict[ir.Value, ir.Value] = {value: emit_constant(on, value.type) for value, on in self.conditions.items()}
        for value, expression in self.indices.items():
            index, kind = emit_index(expression), value.type
            if not isinstance(kind, ir.IndexType):
                is_vector = isinstance(index.type, ir.VectorType)
                kind = ir.VectorType.get(index.type.shape, kind) if is_vector else kind
                index = create("arith.index_cast", kind, index)
            env[value] = index
        return env


def known_values(
    view: BlockView, at: Sequence[IndexExpr], extents: Extents, assumed: Collection[ir.Value] = ()
) -> KnownValues:
    """Return the known values of a body whose axes are these expressions of loops.

    The conditions in `assumed` are true.
    """
    instance = BlockInstance(view, at, extents, known=dict.fromkeys(assumed, True))
    needed = frozenset(instance.needed)
    conditions: dict[ir.Value, bool] = {}
    indices: dict[ir.Value, IndexExpr] = {}
    selected: dict[ir.Value, ir.Value] = {}
    for op in view.body_ops:
        (value,) = op.results
        if value not in needed or op.name == "arith.constant":
            continue
        condition, expression = instance.known(value), instance.linear(value)
        if condition is not None:
            conditions[value] = condition
        elif expression is not None:
            indices[value] = expression
        elif op.name == "arith.select" and instance.known(op.operands[0]) is not None:
            selected[value] = instance.arguments_of(op)[0]
    return KnownValues(needed, conditions, indices, selected)


def conditions_of(leaf: BlockLeaf) -> list[tuple[IndexExpr, Sequence[Dim]]]:
    """Return expressions of loops, and the values at which a condition on them changes."""
    if not _has_conditions(leaf):
        return []
    conditions = [condition for instance in instances_of(leaf) for condition in instance_conditions(instance)]
    return conditions if leaf.view is not None else [*conditions, *_edges_of_copy(leaf)]


def _edges_of_copy(leaf: BlockLeaf) -> list[tuple[IndexExpr, Sequence[Dim]]]:
    """Return the indices at which a copy may read beyond the edges of a buffer, and the edges."""
    return [
        (index, (0, size))
        for access in leaf.reads
        if access.outside is not None
        for dim, (index, size) in enumerate(zip(leaf.place(access), access.buffer.shape, strict=True))
        if is_beyond_edge(access, dim, leaf)
    ]


def _has_conditions(leaf: BlockLeaf) -> bool:
    """Return whether a block compares anything with indices, or reads beyond edges."""
    if any(access.outside is not None for access in leaf.reads):
        return True
    inside = [*leaf.epilogue, *(access.inlined for access in leaf.reads if access.inlined is not None)]
    if any(map(_has_conditions, inside)):
        return True
    if leaf.view is None:
        return False
    return any(op.name == "arith.cmpi" or op.name in EXTREMES for op in leaf.body.body_ops)


def instance_conditions(instance: BlockInstance) -> list[tuple[IndexExpr, Sequence[Dim]]]:
    """Return the same as `conditions_of` for a block at its place."""
    conditions: list[tuple[IndexExpr, Sequence[Dim]]] = []
    for operand in instance.needed_inputs:
        # Where one dim is always outside, no element is read, wherever the others are.
        if not instance.always_outside(operand):
            conditions += [(dim, (0, size)) for dim, size in instance.outside_tests(operand)]
    for op in instance.block.body_ops:
        if op.name == "arith.cmpi" and instance.known(op.results[0]) is None:
            difference = instance.difference(op)
            if difference is not None:
                conditions.append((difference, CHANGES.get(op.attributes["predicate"].value, ())))
        if op.name in EXTREMES and instance.linear(op.results[0]) is None:
            left, right = (instance.linear(operand) for operand in op.operands)
            if left is not None and right is not None:
                # Where both are equal, the one that the loops change is taken: elements before an edge are not apart.
                difference = right - left if left.is_constant else left - right
                conditions.append((difference, (0,) if op.name == "arith.maxsi" else (1,)))
    return conditions
