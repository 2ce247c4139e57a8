"""Stream-K: products whose last wave of tiles would leave multiprocessors idle.

Tiles that fill whole waves are computed as usual. The rest, some last rows or columns, is a product of its own with
split-K (`split_k.py`). Instead of blocks that wait within a launch, a second kernel adds the parts in a fixed order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.passes.schedule.blocks.contraction.analysis import EpilogueBlock, TensorAccess
from mirlo.passes.schedule.blocks.contraction.forms import BlockAxis
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.roles import ProductOperand, Roles
from mirlo.targets.gpu.schedule.stage import PlannedBlocks as Plan


@dataclass(frozen=True)
class StreamKPlan:
    """A plan for the whole waves of tiles, and one for the rest."""

    whole: Plan
    rest: Plan

    @property
    def name(self) -> str:
        return f"{self.whole.name}, the last round {self.rest.name}"

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the launches at the insertion point."""
        self.whole.emit(memory)
        self.rest.emit(memory)


def cut(roles: Roles, axis: BlockAxis, low: int, high: int) -> Roles:
    """Return the product restricted to low <= i < high along one axis."""
    part = BlockAxis(axis.id, high - low, axis.reduce)

    def form(old: IndexExpr) -> IndexExpr:
        moved: IndexExpr = old + old.stride(axis) * low
        return moved

    def access(old: TensorAccess) -> TensorAccess:
        return TensorAccess(old.value, [form(dim) for dim in old.dims], old.outside)

    def axes(old: tuple[BlockAxis, ...]) -> tuple[BlockAxis, ...]:
        return tuple(part if each.id == axis.id else each for each in old)

    def side(old: ProductOperand) -> ProductOperand:
        return replace(old, access=access(old.access), axes=axes(old.axes))

    old = roles.contraction
    stages = [
        EpilogueBlock(
            s.block, [form(i) for i in s.indices], [None if read is None else access(read) for read in s.reads]
        )
        for s in old.stages
    ]
    changed = replace(
        old, lhs=access(old.lhs), rhs=access(old.rhs), axes=list(axes(tuple(old.axes))), stages=stages,
        writes=[(value, access(write)) for value, write in old.writes],
    )  # fmt: skip
    return Roles(
        changed, side(roles.rows), side(roles.columns), axes(roles.batch), axes(roles.sums), dict(changed.extents)
    )


def cuts(roles: Roles, height: int, width: int, units: int) -> Iterator[tuple[Roles, Roles]]:
    """Yield the product of the whole waves and the rest, cut by rows and by columns."""
    high, wide = -(-roles.rows.extent // height), -(-roles.columns.extent // width)
    blocks = roles.batches * high * wide
    if blocks < units or blocks % units == 0:
        return
    for side, size, beside in ((roles.rows, height, wide), (roles.columns, width, high)):
        if not side.axes:
            continue
        axis = side.axes[0]
        tiles = blocks // units * units // (roles.batches * beside)
        at = tiles * size // (side.extent // axis.extent)
        if 0 < at < axis.extent:
            yield cut(roles, axis, 0, at), cut(roles, axis, at, axis.extent)
