"""How reductions combine: which bodies may be reduced in any order, and with what operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.dialects.tir.view import BlockView
from mirlo.passes.schedule.loops import attribute_constant
from mirlo.passes.schedule.vectors import is_vector, splat, vector_op
from mirlo.targets.llvm.schedule.access import shuffle


@dataclass(frozen=True)
class Kind:
    """An operation that is associative and commutative (floats: up to rounding)."""

    op: str
    vector: str
    """Name of the vector dialect's reduction."""
    flags: str = ""


KINDS = {
    kind.op: kind
    for kind in (
        Kind("arith.addf", "add", "#arith.fastmath<reassoc,contract>"),
        Kind("arith.mulf", "mul", "#arith.fastmath<reassoc,contract>"),
        # Which of the two zeros comes out says nothing, and keeping them apart costs two operations.
        Kind("arith.maximumf", "maximumf", "#arith.fastmath<nsz>"),
        Kind("arith.minimumf", "minimumf", "#arith.fastmath<nsz>"),
        Kind("arith.addi", "add"),
        Kind("arith.muli", "mul"),
        Kind("arith.maxsi", "maxsi"),
        Kind("arith.minsi", "minsi"),
        Kind("arith.maxui", "maxui"),
        Kind("arith.minui", "minui"),
        Kind("arith.andi", "and"),
        Kind("arith.ori", "or"),
        Kind("arith.xori", "xor"),
    )
}


@dataclass(frozen=True)
class Combiner:
    """One output of a reduction: accumulated ∘ contribution."""

    kind: Kind
    contribution: Any
    """The body's value that is combined at each point."""
    init: Any
    """Attribute with the start value."""
    is_bool: bool
    """Whether bools are combined that are kept as bytes."""

    @property
    def element(self) -> Any:
        return self.contribution.type

    def identity(self) -> Any:
        """A scalar that changes nothing when combined."""
        op, kind = self.kind.op, self.element
        if op in ("arith.maximumf", "arith.minimumf"):
            return emit_constant(float("-inf") if op == "arith.maximumf" else float("inf"), kind)
        width = 0 if isinstance(kind, ir.FloatType) else kind.width
        values = {
            "arith.mulf": 1, "arith.muli": 1, "arith.andi": -1, "arith.minui": -1,
            "arith.maxsi": -(1 << max(width - 1, 0)), "arith.minsi": (1 << max(width - 1, 0)) - 1,
        }  # fmt: skip
        value = values.get(op, 0)
        return emit_constant(bool(value) if width == 1 else value, kind)

    def combine(self, a: Any, b: Any) -> Any:
        """Two partial results, scalars or vectors, as one."""
        kind = a.type if is_vector(a) else b.type
        lanes = kind.shape[0] if isinstance(kind, ir.VectorType) else 1
        if lanes > 1 or is_vector(a) or is_vector(b):
            a, b = splat(a, lanes), splat(b, lanes)
        flags = {"fastmath": ir.Attribute.parse(self.kind.flags)} if self.kind.flags else {}
        return create(self.kind.op, kind, a, b, **flags)

    def horizontal(self, vector: Any) -> Any:
        """All lanes as one scalar."""
        attributes = {"kind": ir.Attribute.parse(f"#vector.kind<{self.kind.vector}>")}
        if self.kind.flags:
            attributes["fastmath"] = ir.Attribute.parse(self.kind.flags)
        return create("vector.reduction", self.element, vector, **attributes)

    def finish(self, scalar: Any) -> Any:
        """The element of the output: combined with the start value, in the type that is stored."""
        start = attribute_constant(self.init)
        if self.is_bool:
            zero = emit_constant(0, start.type)
            i64 = ir.IntegerType.get_signless(64)
            start = create("arith.cmpi", self.element, start, zero, predicate=ir.IntegerAttr.get(i64, 1))
        total = self.combine(start, scalar)
        return create("arith.extui", self.init.type, total) if self.is_bool else total


class Reducer:
    """How all outputs of a reduction block are combined; values come in lists, one for each output."""

    contributions: list[Any]
    """Values of the body that are combined."""

    def identity(self) -> list[Any]:
        """Scalars that change nothing when combined."""
        raise NotImplementedError

    def combine(self, a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
        """Two partial results, both scalars or both vectors, as one."""
        raise NotImplementedError

    def horizontal(self, vectors: Sequence[Any]) -> list[Any]:
        """All lanes as scalars."""
        raise NotImplementedError

    def finish(self, scalars: Sequence[Any]) -> list[Any]:
        """The elements of the outputs: combined with the start values, in the types that are stored."""
        raise NotImplementedError


class Independent(Reducer):
    """Every output is combined by an operation of its own."""

    def __init__(self, combiners: list[Combiner]):
        self.combiners = combiners
        self.contributions = [combiner.contribution for combiner in combiners]

    def identity(self) -> list[Any]:
        return [combiner.identity() for combiner in self.combiners]

    def combine(self, a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
        return [combiner.combine(x, y) for combiner, x, y in zip(self.combiners, a, b, strict=True)]

    def horizontal(self, vectors: Sequence[Any]) -> list[Any]:
        return [combiner.horizontal(v) for combiner, v in zip(self.combiners, vectors, strict=True)]

    def finish(self, scalars: Sequence[Any]) -> list[Any]:
        return [combiner.finish(s) for combiner, s in zip(self.combiners, scalars, strict=True)]


def reducer_of(block: BlockView) -> Reducer | None:
    """How a reduction combines; None where the body does something else with what it has accumulated."""
    accumulators = block.accumulators
    found = []
    for value, accumulator, init in zip(block.yielded, accumulators, block.init, strict=True):
        combiner = _combiner(value, accumulator, init)
        if combiner is None or _depends(block, combiner.contribution, accumulators):
            return selection_of(block)
        found.append(combiner)
    return Independent(found)


class Selection(Reducer):
    """Each step keeps what is accumulated or takes the contributions, all outputs alike: a maximum and its position.

    Blocks reduce in any order, so partial results may meet each other as an accumulated one meets contributions.
    """

    def __init__(self, block: BlockView, contributions: list[Any], steps: list[Any]):
        self.block = block
        self.contributions = contributions
        self.steps = steps
        """Operations of the body that compute the outputs from contributions and accumulators alone."""

    def identity(self) -> list[Any]:
        return [attribute_constant(attribute) for attribute in self.block.init]

    def combine(self, a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
        lanes = next((value.type.shape[0] for value in (*a, *b) if is_vector(value)), 1)
        env = dict(zip(self.block.accumulators, a, strict=True))
        env.update(zip(self.contributions, b, strict=True))
        for op in self.steps:
            operands = [env[value] for value in op.operands]
            env[op.results[0]] = vector_op(op, operands, lanes)[0]
        made = [env[value] for value in self.block.yielded]
        return [splat(value, lanes) for value in made] if lanes > 1 else made

    def horizontal(self, vectors: Sequence[Any]) -> list[Any]:
        held = list(vectors)
        lanes = held[0].type.shape[0]
        while lanes > 1:
            lanes //= 2
            low = [shuffle(v, v, range(lanes)) for v in held]
            high = [shuffle(v, v, range(lanes, 2 * lanes)) for v in held]
            if lanes == 1:
                low, high = [_only_lane(v) for v in low], [_only_lane(v) for v in high]
            held = self.combine(low, high)
        return held

    def finish(self, scalars: Sequence[Any]) -> list[Any]:
        return self.combine(self.identity(), scalars)


def _only_lane(vector: Any) -> Any:
    none = ir.DenseI64ArrayAttr.get([0])
    return create("vector.extract", vector.type.element_type, vector, static_position=none)


def selection_of(block: BlockView) -> Selection | None:
    """The reduction as a selection, if every output is `select(condition, contribution, accumulated)`, or swapped."""
    contributions = []
    for value, accumulator in zip(block.yielded, block.accumulators, strict=True):
        if isinstance(value.owner, ir.Block) or value.owner.operation.name != "arith.select":
            return None
        _, yes, no = value.owner.operation.operands
        if accumulator not in (yes, no):
            return None
        contributions.append(no if yes == accumulator else yes)
    if any(_depends(block, value, block.accumulators) for value in contributions):
        return None
    steps = _steps(block, contributions)
    return None if steps is None else Selection(block, contributions, steps)


def _steps(block: BlockView, contributions: list[Any]) -> list[Any] | None:
    """Operations between the contributions and the outputs; None where they need anything else of the body."""
    given = {*block.accumulators, *contributions}
    wanted = set(block.yielded)
    steps: list[Any] = []
    for op in reversed(block.body_ops):
        result = op.results[0]
        if result not in wanted or result in given:
            continue
        if op.name == "tensor.extract":
            return None
        steps.append(op)
        wanted.update(op.operands)
    arguments = {v for v in block.body.arguments if v in wanted and v not in given}
    return None if arguments else steps[::-1]


def _combiner(value: Any, accumulator: Any, init: Any) -> Combiner | None:
    if isinstance(value.owner, ir.Block):
        return None
    op = value.owner.operation
    is_bool = op.name == "arith.extui" and str(op.operands[0].type) == "i1"
    if is_bool:
        if isinstance(op.operands[0].owner, ir.Block):
            return None
        op = op.operands[0].owner.operation
    kind = KINDS.get(op.name)
    if kind is None:
        return None
    left, right = op.operands
    if _is_accumulated(left, accumulator, is_bool):
        return Combiner(kind, right, init, is_bool)
    if _is_accumulated(right, accumulator, is_bool):
        return Combiner(kind, left, init, is_bool)
    return None


def _is_accumulated(value: Any, accumulator: Any, is_bool: bool) -> bool:
    """The accumulator itself, or the bool in it: `accumulator != 0`."""
    if not is_bool:
        return value == accumulator
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "arith.cmpi":
        return False
    comparison = value.owner.operation
    return comparison.operands[0] == accumulator and comparison.attributes["predicate"].value == 1


def _depends(block: BlockView, value: Any, accumulators: Sequence[Any]) -> bool:
    tainted = set(accumulators)
    for op in block.body_ops:
        if any(operand in tainted for operand in op.operands):
            tainted.update(op.results)
    return value in tainted
