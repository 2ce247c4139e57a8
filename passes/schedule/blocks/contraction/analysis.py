"""Analysis of contractions: axes of blocks, and the position of every tensor as an affine form over them.

Roles follow from the affine maps alone. An axis that occurs in the output and one operand is a row or a column axis;
one that occurs in both operands and the output is a batch axis; reduction axes occur in both operands. Matrix
products with any transposition, convolutions in any layout, grouped and depthwise convolutions need no case of their
own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim, UndecidedDim
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.core.types import dims_of
from mirlo.dialects.tir.block import REDUCE
from mirlo.dialects.tir.view import BlockView, OperandView
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.contraction.body import MultiplyAdd, match_multiply_add
from mirlo.passes.schedule.blocks.contraction.forms import BlockAxis, divisors, form_of, moving
from mirlo.runtime.records import dataclass


@dataclass
class TensorAccess:
    """A tensor that the kernel reads or writes: its index in each dim, over the axes."""

    value: Any
    dims: list[IndexExpr]
    outside: ir.Attribute | None = None

    @property
    def shape(self) -> tuple[Any, ...]:
        return dims_of(self.value.type)

    @property
    def element_type(self) -> ir.Type:
        return ir.ShapedType(self.value.type).element_type


@dataclass
class EpilogueBlock:
    """An elementwise block that runs on the accumulators while they are in registers."""

    block: BlockView
    indices: list[IndexExpr]
    """The index of each of its axes."""
    reads: list[TensorAccess | None]
    """The access of each operand; None for a value of the epilogue itself and for a tensor that the body reads."""


@dataclass(frozen=True)
class Ragged:
    """An axis split into panels, the last of which is partial."""

    outer: int
    """Id of the axis over the panels."""
    inner: int
    last: int
    """Number of elements in the last panel."""


@dataclass
class Contraction:
    """A contraction and its epilogue."""

    block: BlockView
    product: MultiplyAdd
    lhs: TensorAccess
    rhs: TensorAccess
    axes: list[BlockAxis]
    parts: list[tuple[BlockAxis, ...]]
    """The axes that each axis of the block is split into, outermost first; none where it has one iteration."""
    stages: list[EpilogueBlock] = field(default_factory=list)
    ragged: Ragged | None = None
    writes: list[tuple[Any, TensorAccess]] = field(default_factory=list)
    """Values of the epilogue with other users, and where they are stored."""

    @property
    def extents(self) -> dict[int, Any]:
        return {axis.id: axis.extent for axis in self.axes}

    @property
    def sources(self) -> dict[int, int]:
        """Return the axis of the block that an axis is, for axes that are not split."""
        return {parts[0].id: axis for axis, parts in enumerate(self.parts) if len(parts) == 1}

    @property
    def spatial(self) -> list[BlockAxis]:
        return [axis for axis in self.axes if not axis.reduce]

    @property
    def reduce(self) -> list[BlockAxis]:
        return [axis for axis in self.axes if axis.reduce]


def analyze(blocks: Sequence[BlockView], kept: Collection[ir.Value]) -> Contraction | Decline:
    """Analyze a contraction and the blocks that follow it; `kept` are the values to store."""
    block = blocks[0]
    if sum(b.is_reduction for b in blocks) != 1:
        return decline("not exactly one reduction", reductions=sum(b.is_reduction for b in blocks))
    if not block.is_reduction:
        return decline("computes something before the contraction", block=block.name)
    product = match_multiply_add(block)
    if isinstance(product, Decline):
        return product
    if 0 in block.domain:
        return decline("an axis is empty")
    chain = _follow_chain(blocks[1:], block)
    if isinstance(chain, Decline):
        return chain
    return _Builder(kept, block, product, chain).build()


def is_product(block: BlockView) -> bool:
    """Return whether a block is a contraction of two tensors with reuse of both: worth a register tile."""
    product = match_multiply_add(block)
    if isinstance(product, Decline) or product.lhs.operand == product.rhs.operand:
        return False
    left, right = (moving(factor.operand.map) for factor in (product.lhs, product.rhs))
    return any((axis in left) != (axis in right) for axis in block.spatial)


AxisNames = list["int | None"]
"""For each axis of an epilogue block the axis of the contraction; None for an axis of extent 1."""


def _follow_chain(after: Sequence[BlockView], block: BlockView) -> list[tuple[BlockView, AxisNames]] | Decline:
    """Match the elementwise blocks in order, each with its axes mapped to those of the contraction."""
    dims: dict[ir.Value, AxisNames] = {}
    names = _output_names(block, list(range(block.rank)))
    if names is None:
        return decline("the contraction's output is not indexed by plain axes")
    dims[block.outputs[0].value] = names
    chain = []
    for stage in after:
        env: AxisNames | None = None
        for operand in stage.inputs:
            if operand.value not in dims:
                continue
            read = _match_read(stage, operand, dims[operand.value], block)
            if read is None or (env is not None and read != env):
                return decline("a block reads the contraction's result in another order", block=stage.name)
            env = read
        if env is None:
            return decline("a block does not depend on the contraction", block=stage.name)
        for output in stage.outputs:
            names = _output_names_of(output.map, env)
            if names is None:
                return decline("a block's output is not indexed by plain axes", block=stage.name)
            dims[output.value] = names
        chain.append((stage, env))
    return chain


def _output_names(block: BlockView, env: Sequence[int | None]) -> AxisNames | None:
    return _output_names_of(block.outputs[0].map, env)


def _output_names_of(map_: ir.AffineMap, env: Sequence[int | None]) -> AxisNames | None:
    names: AxisNames = []
    for expr in map_.results:
        if isinstance(expr, ir.AffineDimExpr):
            names.append(env[expr.position])
        elif isinstance(expr, ir.AffineConstantExpr) and expr.value == 0:
            names.append(None)
        else:
            return None
    return names


def _match_read(stage: BlockView, operand: OperandView, dims: AxisNames, block: BlockView) -> AxisNames | None:
    """Map the axes of an epilogue block to those of the contraction, from a read of a value with known dims."""
    if operand.is_opaque or operand.outside is not None:
        return None
    env: AxisNames = [None] * stage.rank
    known = [extent == 1 for extent in stage.domain]
    for expr, name, size in zip(operand.map.results, dims, operand.shape, strict=True):
        if isinstance(expr, ir.AffineConstantExpr):
            if size != 1:
                return None
            continue
        if not isinstance(expr, ir.AffineDimExpr) or stage.domain[expr.position] != size:
            return None
        env[expr.position] = name
        known[expr.position] = True
    used = {name for name in env if name is not None}
    complete = all(block.domain[axis] == 1 or axis in used for axis in block.spatial)
    return env if complete and all(known) else None


class _Builder:
    """Builds the analysis: splits axes where maps divide them, and rewrites every map as affine forms."""

    def __init__(
        self,
        kept: Collection[ir.Value],
        block: BlockView,
        product: MultiplyAdd,
        chain: list[tuple[BlockView, AxisNames]],
    ):
        self.kept = kept
        self.block = block
        self.product = product
        self.chain = chain
        self.axes: list[BlockAxis] = []
        self.extents: dict[int, Dim] = {}
        self.parts: list[tuple[BlockAxis, ...]] = []
        self.ragged: list[Ragged] = []

    def build(self) -> Contraction | Decline:
        env = [self._split(axis, divisors) for axis, divisors in enumerate(self._divisors())]
        if len(self.ragged) > 1:
            return decline("several axes are divided into unequal parts")
        lhs = self._access(self.product.lhs.operand, env)
        rhs = self._access(self.product.rhs.operand, env)
        if lhs is None or rhs is None:
            return decline("an operand's position is not linear in the axes")
        contraction = Contraction(self.block, self.product, lhs, rhs, self.axes, self.parts)
        contraction.ragged = self.ragged[0] if self.ragged else None
        produced: dict[ir.Value, list[IndexExpr]] = {}
        self._note_outputs(self.block, env, produced)
        for stage, names in self.chain:
            indices = [IndexExpr() if name is None else env[name] for name in names]
            reads: list[TensorAccess | None] = []
            for operand in stage.inputs:
                if operand.value in produced or operand.is_opaque:
                    reads.append(None)
                    continue
                if operand.outside is not None:
                    return decline("an elementwise block reads beyond the edges of a tensor", block=stage.name)
                access = self._access(operand, indices)
                if access is None:
                    return decline("an operand of an elementwise block is not linear in the axes", block=stage.name)
                reads.append(access)
            contraction.stages.append(EpilogueBlock(stage, indices, reads))
            self._note_outputs(stage, indices, produced)
        contraction.writes = [
            (value, TensorAccess(value, dims)) for value, dims in produced.items() if value in self.kept
        ]
        return contraction if contraction.writes else decline("its result is unused")

    def _divisors(self) -> list[set[int]]:
        """Return the divisors that the maps apply to each axis."""
        result: list[set[int]] = [set() for _ in self.block.domain]

        def collect(map_: ir.AffineMap, names: AxisNames) -> None:
            def note(dim: int, divisor: int) -> None:
                axis = names[dim]
                if axis is not None:
                    result[axis].add(divisor)

            for expr in map_.results:
                divisors(expr, note)

        for operand in (*self.block.inputs, *self.block.outputs):
            if operand.map is not None:
                collect(operand.map, list(range(self.block.rank)))
        for stage, names in self.chain:
            for operand in (*stage.inputs, *stage.outputs):
                if operand.map is not None:
                    collect(operand.map, names)
        return result

    def _split(self, axis: int, divisors: set[int]) -> IndexExpr:
        """Return the value of a block's axis as an affine form over its parts; parts of extent 1 are dropped."""
        whole = self.block.domain[axis]
        parts = _radices(whole, divisors)
        is_reduce = self.block.axes[axis] == REDUCE
        form, weight = IndexExpr(), 1
        axes: list[BlockAxis] = []
        for extent in reversed(parts):
            if extent != 1:
                axes.append(BlockAxis(len(self.axes), extent, is_reduce))
                self.axes.append(axes[-1])
                self.extents[axes[-1].id] = extent
                form = form + IndexExpr({axes[-1].id: weight})
            weight *= extent
        if weight != whole:
            self.ragged.append(Ragged(axes[1].id, axes[0].id, whole % axes[0].extent))
        self.parts.append(tuple(reversed(axes)))
        return form

    def _access(self, operand: OperandView, env: list[IndexExpr]) -> TensorAccess | None:
        dims = [form_of(expr, env, self.extents) for expr in operand.map.results]
        if any(d is None for d in dims):
            return None
        return TensorAccess(operand.value, [d for d in dims if d is not None], operand.outside)

    def _note_outputs(self, block: BlockView, env: list[IndexExpr], produced: dict[ir.Value, list[IndexExpr]]) -> None:
        for output in block.outputs:
            dims = [form_of(expr, env, self.extents) for expr in output.map.results]
            produced[output.value] = [d for d in dims if d is not None]


def _radices(extent: int, divs: set[int]) -> list[int]:
    """Return the extents of the parts of an axis with these divisors, as far as they divide each other.

    A single divisor that does not divide the extent makes parts of which the last is partial.
    """
    if not isinstance(extent, int):
        if divs:
            raise UndecidedDim(f"how an axis of {extent} is divided into parts of {min(divs)}")
        return [extent]
    if len(divs) == 1:
        divisor = next(iter(divs))
        if 1 < divisor < extent:
            return [-(-extent // divisor), divisor]
    parts, weight = [], 1
    for divisor in sorted(d for d in divs if 1 < d < extent):
        if extent % divisor != 0 or divisor % weight != 0:
            continue
        parts.append(divisor // weight)
        weight = divisor
    return [extent // weight, *reversed(parts)]
