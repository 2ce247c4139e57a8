"""Split-K: products with few tiles and a long reduction, divided among thread blocks.

The reduction axis is split; the outer part becomes a batch axis. A plan of any product computes the parts, in the
accumulator type, into scratch memory. A second kernel adds them in a fixed order and applies the epilogue.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from operator import add

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.core.value import Value
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.contraction.analysis import TensorAccess
from mirlo.passes.schedule.blocks.contraction.body import emit_init
from mirlo.passes.schedule.blocks.contraction.forms import BlockAxis
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.passes.schedule.primitives.index import LoopValues
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.launch import launch_points
from mirlo.targets.gpu.schedule.product_leaves import ProductLeaves, Unfinished
from mirlo.targets.gpu.schedule.roles import ProductOperand, Roles
from mirlo.targets.gpu.schedule.stage import PlannedBlocks

MAX_SPLITS = 64


@dataclass(frozen=True)
class SplitK:
    """A product in parts."""

    whole: Roles
    roles: Roles
    """Roles of the parts; the first batch axis counts them."""
    parts: int
    unfinished: Unfinished


@dataclass(frozen=True)
class SplitKPlan:
    """A plan for the parts, and for their addition."""

    divided: SplitK
    inner: PlannedBlocks

    @property
    def name(self) -> str:
        return f"{self.inner.name} in {self.divided.parts} parts"

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the launches at the insertion point."""
        divided = self.divided
        kind = divided.unfinished.type
        memory.place(divided.unfinished, memory.buffers.scratch(kind.shape, kind.element_type))
        leaves, partial_sums = ProductLeaves(divided.whole, memory), ProductLeaves(divided.roles, memory)
        self.inner.emit(memory)
        whole = divided.whole
        axes = [*whole.batch, *whole.rows.axes, *whole.columns.axes]
        part = divided.roles.batch[0]

        def element(indices: list[Value]) -> None:
            values = dict(zip((axis.id for axis in axes), indices, strict=True))
            where = LoopValues(values)
            results = (partial_sums.load_result(where.at({part.id: number})) for number in range(divided.parts))
            leaves.store(reduce(add, results), values)

        launch_points([axis.extent for axis in axes], element)


def divide(roles: Roles, parts: int) -> SplitK | Decline:
    """Split the reduction of a product into this many parts."""
    contraction = roles.contraction
    kind = contraction.product.accumulate_type
    if emit_init(contraction.block, kind).value:
        return decline("the sums do not start from zero")
    axis = next((axis for axis in roles.sums if axis.extent % parts == 0), None)
    if axis is None or parts < 2:
        return decline("no reduction axis can be divided into this many equal parts", parts=parts)
    first = max(contraction.extents) + 1
    part, rest = BlockAxis(first, parts, False), BlockAxis(first + 1, axis.extent // parts, True)

    def form(old: IndexExpr) -> IndexExpr:
        factor = old.stride(axis)
        if not factor:
            return old
        terms = {a: f for a, f in old.terms.items() if a != axis.id}
        return IndexExpr({**terms, part.id: factor * rest.extent, rest.id: factor}, old.constant)

    def access(old: TensorAccess) -> TensorAccess:
        return TensorAccess(old.value, [form(dim) for dim in old.dims], old.outside)

    def side(old: ProductOperand) -> ProductOperand:
        return replace(old, access=access(old.access))

    written = [part, *roles.batch, *roles.rows.axes, *roles.columns.axes]
    unfinished = Unfinished(ir.RankedTensorType.get([a.extent for a in written], kind))
    changed = replace(
        contraction,
        lhs=access(contraction.lhs), rhs=access(contraction.rhs),
        axes=[part, *(a for a in contraction.axes if a is not axis), rest],
        stages=[], writes=[(unfinished, TensorAccess(unfinished, [IndexExpr({a.id: 1}) for a in written]))],
    )  # fmt: skip
    divided = Roles(
        changed, side(roles.rows), side(roles.columns), (part, *roles.batch),
        tuple(rest if a is axis else a for a in roles.sums), dict(changed.extents),
    )  # fmt: skip
    return SplitK(roles, divided, parts, unfinished)


def divisions(roles: Roles, fewest_steps: int) -> Iterator[SplitK]:
    """Yield a product in 2, 4, ... parts of at least `fewest_steps` k-steps."""
    parts = 2
    while parts <= MAX_SPLITS and roles.depth // parts >= fewest_steps:
        divided = divide(roles, parts)
        if not isinstance(divided, Decline):
            yield divided
        parts *= 2
