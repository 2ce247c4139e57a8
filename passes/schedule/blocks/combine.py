"""Combiners of reductions: bodies that are reducible in any order, and their operation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import Value, compare
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.dialects.tir.view import BlockView
from mirlo.passes.schedule.loops import attribute_constant
from mirlo.passes.schedule.vectors import is_vector, splat
from mirlo.runtime.records import dataclass

_T = TypeVar("_T")


def in_pairs(combine: Callable[[_T, _T], _T], parts: Sequence[_T]) -> _T:
    """Combine partial results in pairs, which are independent of one another; always in the same order."""
    while len(parts) > 1:
        pairs = [combine(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = [*pairs, *parts[2 * len(pairs) :]]
    return parts[0]


@dataclass(frozen=True)
class CombiningKind:
    """An associative and commutative operation (floats: up to rounding)."""

    op: str
    vector: str
    """Kind of the vector dialect's reduction."""
    flags: str = ""

    def identity(self, element: ir.Type) -> float | int:
        """Return the identity of the operation for elements of a type."""
        if isinstance(element, ir.FloatType):
            return {"arith.maximumf": -math.inf, "arith.minimumf": math.inf, "arith.mulf": 1.0}.get(self.op, 0.0)
        limit: int = 1 << (element.width - 1)
        ends = {"arith.maxsi": -limit, "arith.minsi": limit - 1}
        return {"arith.muli": 1, "arith.andi": -1, "arith.minui": -1, **ends}.get(self.op, 0)


KINDS = {
    kind.op: kind
    for kind in (
        CombiningKind("arith.addf", "add", "#arith.fastmath<reassoc,contract>"),
        CombiningKind("arith.mulf", "mul", "#arith.fastmath<reassoc,contract>"),
        # The sign of a zero result is unspecified; to respect it costs two more operations.
        CombiningKind("arith.maximumf", "maximumf", "#arith.fastmath<nsz>"),
        CombiningKind("arith.minimumf", "minimumf", "#arith.fastmath<nsz>"),
        CombiningKind("arith.addi", "add"),
        CombiningKind("arith.muli", "mul"),
        CombiningKind("arith.maxsi", "maxsi"),
        CombiningKind("arith.minsi", "minsi"),
        CombiningKind("arith.maxui", "maxui"),
        CombiningKind("arith.minui", "minui"),
        CombiningKind("arith.andi", "and"),
        CombiningKind("arith.ori", "or"),
        CombiningKind("arith.xori", "xor"),
    )
}


@dataclass(frozen=True)
class Combiner:
    """One output of a reduction: accumulated ∘ contribution."""

    kind: CombiningKind
    contribution: ir.Value
    """The value of the body that is combined at each point."""
    init: ir.Attribute
    """Attribute with the initial value."""
    is_bool: bool
    """Whether the values are bools stored as i8."""

    @property
    def element(self) -> ir.Type:
        return self.contribution.type

    def identity(self) -> ir.Value:
        """Emit the identity of the operation, as a scalar."""
        value = self.kind.identity(self.element)
        return emit_constant(bool(value) if str(self.element) == "i1" else value, self.element)

    def combine(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Combine two partial results, scalars or vectors."""
        kind = a.type if is_vector(a) else b.type
        lanes = kind.shape[0] if isinstance(kind, ir.VectorType) else 1
        if lanes > 1 or is_vector(a) or is_vector(b):
            a, b = splat(a, lanes), splat(b, lanes)
        flags = {"fastmath": ir.Attribute.parse(self.kind.flags)} if self.kind.flags else {}
        return create(self.kind.op, kind, a, b, **flags)

    def horizontal(self, vector: ir.Value) -> Value:
        """Reduce all lanes to one scalar."""
        attributes = {"kind": ir.Attribute.parse(f"#vector.kind<{self.kind.vector}>")}
        if self.kind.flags:
            attributes["fastmath"] = ir.Attribute.parse(self.kind.flags)
        return create("vector.reduction", self.element, vector, **attributes)

    def finish(self, scalar: ir.Value) -> ir.Value:
        """Return the element of the output: combined with the initial value, in the storage type."""
        return self.add(attribute_constant(self.init), scalar)

    def add(self, before: ir.Value, part: ir.Value) -> ir.Value:
        """Combine a stored result with a partial one; both are scalars or vectors."""
        if not self.is_bool:
            return self.combine(before, part)
        zero = emit_constant(0, self.init.type)
        before = compare("ne", before, splat(zero, before.type.shape[0]) if is_vector(before) else zero)
        total = self.combine(before, part)
        stored = ir.VectorType.get(total.type.shape, self.init.type) if is_vector(total) else self.init.type
        return create("arith.extui", stored, total)


class Reducer:
    """The combiners of a reduction block, one per output; values are lists with one entry per output."""

    def __init__(self, combiners: list[Combiner]):
        self.combiners = combiners
        self.contributions = [combiner.contribution for combiner in combiners]
        """Values of the body that are combined."""

    def identity(self) -> list[ir.Value]:
        """Emit the identities, as scalars."""
        return [combiner.identity() for combiner in self.combiners]

    def combine(self, a: Sequence[ir.Value], b: Sequence[ir.Value]) -> list[ir.Value]:
        """Combine two lists of partial results, scalars or vectors."""
        return [combiner.combine(x, y) for combiner, x, y in zip(self.combiners, a, b, strict=True)]

    def horizontal(self, vectors: Sequence[ir.Value]) -> list[ir.Value]:
        """Reduce all lanes to scalars."""
        return [combiner.horizontal(v) for combiner, v in zip(self.combiners, vectors, strict=True)]

    def finish(self, scalars: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the elements of the outputs: combined with the initial values, in the storage types."""
        return [combiner.finish(s) for combiner, s in zip(self.combiners, scalars, strict=True)]


def reducer_of(block: BlockView) -> Reducer | None:
    """Match how a reduction combines; None if the body uses its accumulator in another way."""
    accumulators = block.accumulators
    combiners = []
    for value, accumulator, init in zip(block.yielded, accumulators, block.init, strict=True):
        combiner = _combiner(value, accumulator, init)
        if combiner is None or _depends(block, combiner.contribution, accumulators):
            return None
        combiners.append(combiner)
    return Reducer(combiners)


def _combiner(value: ir.Value, accumulator: ir.Value, init: ir.Attribute | None) -> Combiner | None:
    if isinstance(value.owner, ir.Block):
        return None
    op = value.owner.operation
    is_bool = op.name == "arith.extui" and str(op.operands[0].type) == "i1"
    if is_bool:
        if isinstance(op.operands[0].owner, ir.Block):
            return None
        op = op.operands[0].owner.operation
    kind = KINDS.get(op.name)
    if kind is None or init is None:
        return None
    left, right = op.operands
    if _is_accumulated(left, accumulator, is_bool):
        return Combiner(kind, right, init, is_bool)
    if _is_accumulated(right, accumulator, is_bool):
        return Combiner(kind, left, init, is_bool)
    return None


def _is_accumulated(value: ir.Value, accumulator: ir.Value, is_bool: bool) -> bool:
    """Return whether a value is the accumulator, or its bool `accumulator != 0`."""
    if not is_bool:
        return value == accumulator
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "arith.cmpi":
        return False
    comparison = value.owner.operation
    return bool(comparison.operands[0] == accumulator and comparison.attributes["predicate"].value == 1)


def _depends(block: BlockView, value: ir.Value, accumulators: Sequence[ir.Value]) -> bool:
    tainted = set(accumulators)
    for op in block.body_ops:
        if any(operand in tainted for operand in op.operands):
            tainted.update(op.results)
    return value in tainted
