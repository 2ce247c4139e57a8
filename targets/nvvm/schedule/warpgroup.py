"""Contractions by the matrix units of warpgroups (`wgmma`, sm_90a), with accumulators in registers."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import Value
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.loops import for_loop
from mirlo.targets.gpu.schedule.launch import WARP
from mirlo.targets.gpu.schedule.roles import Roles
from mirlo.targets.nvvm.options import Options
from mirlo.targets.nvvm.schedule import bulk
from mirlo.targets.nvvm.schedule.in_flight import after_wait, registers, zeros
from mirlo.targets.nvvm.schedule.pipelined import (
    Consumers,
    PipelinedPlan,
    ResultTile,
    WarpgroupTile,
    plan_pipelined,
)
from mirlo.targets.nvvm.schedule.ring_buffer import GROUP, PRODUCT_ROWS, only
from mirlo.targets.nvvm.schedule.tilemaps import ROW_BYTES, descriptor
from mirlo.targets.nvvm.schedule.units import DEPTH_BYTES, ROWS

TILES = (
    WarpgroupTile(2, 256, together=2),
    WarpgroupTile(2, 256, 0.99),
    WarpgroupTile(2, 192, 0.97),
    WarpgroupTile(2, 128, 0.94, together=2),
    WarpgroupTile(2, 128, 0.97),
    WarpgroupTile(2, 64, 0.8),
    WarpgroupTile(1, 128),
    WarpgroupTile(1, 64),
)


def plan_warpgroups(roles: Roles, options: Options) -> PipelinedPlan | Decline:
    """Plan a product by warpgroups."""
    if not options.chip.has_warpgroups:
        return decline("the chip has no products of warpgroups", chip=options.chip.name)
    return plan_pipelined(roles, options, TILES, WarpgroupConsumers)


class WarpgroupConsumers(Consumers):
    """Each warpgroup multiplies 64 rows, and keeps the products of one k-step in flight."""

    name = "warpgroups"
    arrivals = GROUP // WARP

    def multiply(self, place: ResultTile, at: list[ir.Value]) -> list[ir.Value]:
        ring, kernel = self.kernel.ring, self.kernel

        def step(sums: ir.Value, slot: ir.Value, parity: ir.Value, begins: bool) -> ir.Value:
            ring.full.wait(slot, parity)
            bulk.begin_products()
            left, right = kernel.sides(slot)
            left = left + self.number * (PRODUCT_ROWS * ROW_BYTES)
            for product in range(ROW_BYTES // DEPTH_BYTES):
                sums = self._product(sums, left, right, product, begins and product == 0)
            bulk.end_products(under_way=1)
            return sums

        def following(_: object, sums: ir.Value, slot: ir.Value, parity: ir.Value) -> list[ir.Value]:
            sums = step(sums, slot, parity, False)
            # The products of the previous k-step are done: their stage may be overwritten.
            self._release(ring.before(slot, 1))
            return [sums, *ring.following(slot, parity)]

        kind = self.roles.contraction.product.accumulate_type
        slot, parity = at
        begun = [step(zeros(kind, self.tile.accumulators), slot, parity, True), *ring.following(slot, parity)]
        sums, slot, parity = for_loop(kernel.step, self.roles.depth, kernel.step, following, begun)
        bulk.wait_for_products(0)
        totals = after_wait(registers(sums, kind, self.tile.accumulators))
        self._release(ring.before(slot, 1))
        row = place.row + (self.number * PRODUCT_ROWS + self.warp * ROWS)
        self.store_rows(place, row, totals)
        return [slot, parity]

    def _release(self, slot: Value) -> None:
        """Emit the signal of each warp to all producers that it has consumed a stage."""
        together, empty = self.tile.together, self.kernel.ring.empty
        with only(self.lane.number.below(together)):
            if together > 1:
                empty.arrive_at(slot, self.lane.number)
            else:
                empty.arrive(slot)

    def _product(self, sums: ir.Value, left: Value, right: Value, product: int, begins: bool) -> Value:
        a, b = self.kernel.plan.left, self.kernel.plan.right
        total = {"f32": "f32", "i32": "s32"}[a.form.sums]
        shape = f"#nvvm.shape<m = {PRODUCT_ROWS}, n = {self.tile.width}, k = {a.form.depth}>"
        text = {
            "shape": shape, "typeA": f"#nvvm.wgmma_type<{a.form.name}>", "typeB": f"#nvvm.wgmma_type<{b.form.name}>",
            "typeD": f"#nvvm.wgmma_type<{total}>", "scaleD": f"#nvvm.wgmma_scale_out<{'zero' if begins else 'one'}>",
            "scaleA": "#nvvm.wgmma_scale_in<one>", "scaleB": "#nvvm.wgmma_scale_in<one>",
            "layoutA": f"#nvvm.mma_layout<{'row' if a.along_k else 'col'}>",
            "layoutB": f"#nvvm.mma_layout<{'col' if b.along_k else 'row'}>",
        }  # fmt: skip
        attributes = {name: ir.Attribute.parse(value) for name, value in text.items()}
        operands = [descriptor(f.form, f.along_k, at, product) for f, at in ((a, left), (b, right))]
        return create("nvvm.wgmma.mma_async", sums.type, sums, *operands, **attributes)
