"""Contractions: matrix products and convolutions, in tiles of a thread block if they are large enough."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.value import Value
from mirlo.passes.schedule.blocks.contraction.body import emit_init
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.passes.schedule.loops import attribute_constant, for_loop
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.contraction.fma import plan_small_tiles
from mirlo.targets.gpu.schedule.contraction.tiled import TiledPlan
from mirlo.targets.gpu.schedule.costs import Shape
from mirlo.targets.gpu.schedule.launch import THREADS, launch_points
from mirlo.targets.gpu.schedule.product_leaves import ProductLeaves
from mirlo.targets.gpu.schedule.roles import Roles
from mirlo.targets.gpu.schedule.vectors import multiply_add

THINNEST = 8
"""Fewest rows or columns of a tile."""


@dataclass(frozen=True)
class ThreadPerElementPlan:
    """A contraction that is too thin for tiles: one thread per sum, and its elementwise epilogue."""

    name = "contraction"
    shape = Shape(1, THREADS)

    roles: Roles

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the launch at the insertion point."""
        roles = self.roles
        leaves = ProductLeaves(roles, memory)
        axes = [*roles.batch, *roles.rows.axes, *roles.columns.axes]

        def thread(indices: list[Value]) -> None:
            values = dict(zip((axis.id for axis in axes), indices, strict=True))
            lines = [leaves.line(side, values) for side in (roles.rows, roles.columns)]

            def level(done: dict[int, Value], carried: ir.Value) -> ir.Value:
                if len(done) == len(roles.sums):
                    a, b = (line.read(done) for line in lines)
                    return multiply_add(a, b, carried)
                axis = roles.sums[len(done)]
                return for_loop(0, axis.extent, 1, lambda i, held: [level({**done, axis.id: i}, held)], [carried])[0]

            init = emit_init(roles.contraction.block, roles.contraction.product.accumulate_type)
            leaves.store(level({}, attribute_constant(init)), values)

        launch_points([axis.extent for axis in axes], thread)


def plan_contraction(roles: Roles) -> TiledPlan | ThreadPerElementPlan:
    """Plan any product."""
    if min(map(D.estimate_dim, (roles.rows.extent, roles.columns.extent, roles.depth))) < THINNEST:
        return ThreadPerElementPlan(roles)
    return plan_small_tiles(roles)
