"""Each choice that a contraction's plan is made of, by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import mirlo
from mirlo import T
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.view import PrimView
from mirlo.passes.rules import Decline
from mirlo.passes.schedule.blocks.contraction.analysis import analyze
from mirlo.targets.llvm.choices import ContractionChoices
from mirlo.targets.llvm.machine import PRESETS
from mirlo.targets.llvm.schedule.contraction.groups import DotGroup
from mirlo.targets.llvm.schedule.contraction.plan import (
    choose_packing,
    choose_register_tile,
    converts_rows,
    extends_panels,
    plan_sides,
    row_candidates,
    unrolled_taps,
)
from mirlo.targets.llvm.schedule.contraction.sides import (
    ContractionSides,
    PlanRequest,
    find_lanes,
    fuse_sum,
    sort_sides,
)
from mirlo.targets.llvm.schedule.contraction.sums import choose_sum, contiguous_axis, has_partial_sums, keeps_order

AVX512, AVX2 = PRESETS["avx512"], PRESETS["avx2"]
MODULES: list[ir.Module] = []
"""What sides refer to."""
M, K, N = T.dims("M", "K", "N")


@mirlo.prim_func
def product(a: T.Buffer[(M, K), T.f32], b: T.Buffer[(K, N), T.f32], c: T.Out[(M, N), T.f32]):
    for i, j, k in T.grid(M, N, K):
        with T.block("product"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]


@mirlo.prim_func
def scores(a: T.Buffer[(M, K), T.f32], b: T.Buffer[(N, K), T.f32], c: T.Out[(M, N), T.f32]):
    for i, j, k in T.grid(M, N, K):
        with T.block("scores"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vj, vk]


@mirlo.prim_func
def depthwise(x: T.Buffer[(14, 14, 96), T.f32], w: T.Buffer[(3, 3, 96), T.f32], y: T.Out[(14, 14, 96), T.f32]):
    for i, j, c, p, q in T.grid(14, 14, 96, 3, 3):
        with T.block("depthwise"):
            vi, vj, vc, vp, vq = T.axes("SSSRR", i, j, c, p, q)
            with T.init():
                y[vi, vj, vc] = 0.0
            y[vi, vj, vc] += x.at(vi + vp - 1, vj + vq - 1, vc, outside=0.0) * w[vp, vq, vc]


@pytest.fixture(autouse=True)
def in_a_context() -> Iterator[None]:
    with make_context(), ir.Location.unknown():
        yield


def sides_of(function: Any, *shapes: tuple[int, ...], allow_edge: bool = True) -> ContractionSides:
    """Return the sides of the only block of a function."""
    module = ir.Module.create()
    MODULES.append(module)
    types = [TensorType.of(shape, "f32") for shape in shapes]
    function_op, _ = function.specialize(types, None, function.name, {})
    module.body.append(function_op.operation)
    view = PrimView(function_op)
    contraction = analyze(view.blocks, frozenset(view.returned))
    assert not isinstance(contraction, Decline)
    lanes = find_lanes(contraction)
    assert not isinstance(lanes, Decline)
    sides = sort_sides(contraction, lanes, allow_edge)
    assert not isinstance(sides, Decline)
    return sides


def of_product(m: int, k: int, n: int) -> ContractionSides:
    return sides_of(product, (m, k), (k, n))


def of_scores(m: int, k: int, n: int) -> ContractionSides:
    return sides_of(scores, (m, k), (n, k))


def of_depthwise(allow_edge: bool = True) -> ContractionSides:
    return sides_of(depthwise, (14, 14, 96), (3, 3, 96), allow_edge=allow_edge)


def test_axes_are_sorted_by_what_they_index() -> None:
    sides = of_product(20, 30, 40)
    assert sides.lane_axis.extent == 40
    assert [axis.extent for axis in sides.shared] == [20] == [axis.extent for axis in sides.moving]
    assert sides.panels == [] == sides.windows and sides.is_fixed


def test_rows_of_windows_skip_products_at_edges_or_have_a_border() -> None:
    edges, padded = of_depthwise(), of_depthwise(allow_edge=False)
    assert edges.rows.edge is not None and edges.rows.padded_shape is None
    assert padded.rows.edge is None and padded.rows.padded_shape == (14, 16, 96)
    assert len(edges.windows) == 2 and len(edges.apart) == 4
    assert [axis.extent for axis in row_candidates(edges, edges.moving)] == [14]
    assert row_candidates(edges, []) == []


def test_the_taps_of_windows_are_unrolled_up_to_one_that_loops_limit() -> None:
    edges = of_depthwise()
    order = choose_sum(PlanRequest(AVX512), edges).order
    assert [axis.extent for axis in unrolled_taps(edges.rows, order)] == [3]
    assert unrolled_taps(edges.rows, []) == []
    padded = of_depthwise(allow_edge=False)
    assert len(unrolled_taps(padded.rows, choose_sum(PlanRequest(AVX512), padded).order)) == 1


def test_axes_of_sums_are_fused_unless_windows_move_along_them() -> None:
    edges = of_depthwise()
    order = choose_sum(PlanRequest(AVX512), edges).order
    assert [axis.extent for axis in fuse_sum(edges, order, is_packed=False)[0]] == [3, 3]
    assert fuse_sum(edges, [], is_packed=True)[0] == []
    reduce, fused = fuse_sum(of_scores(20, 30, 40), of_scores(20, 30, 40).contraction.reduce, is_packed=True)
    assert [axis.extent for axis in reduce] == [30] and fused.lane_axis.extent == 40


@pytest.mark.parametrize(("rows", "dot", "is_along"), [(1, None, True), (400, None, False), (400, True, True)])
def test_lanes_run_along_contiguous_sums_of_few_rows(rows: int, dot: bool | None, is_along: bool) -> None:
    sides, request = of_scores(rows, 64, 128), PlanRequest(AVX512, choices=ContractionChoices(dot=dot))
    chosen = choose_sum(request, sides)
    assert chosen.may_dot and (chosen.dot is not None) == is_along
    assert (choose_register_tile(request, sides, chosen).search is None) == is_along
    assert contiguous_axis(of_product(rows, 64, 128), chosen.order) is None


def test_an_invariant_machine_sums_few_rows_and_many_alike() -> None:
    invariant = PlanRequest(replace(AVX512, invariant=True))
    for depth in (64, 16384):
        few, many = (choose_sum(invariant, of_scores(rows, depth, 128)) for rows in (1, 400))
        assert few.has_partial_sums == many.has_partial_sums == (depth == 64)
        assert (few.dot is not None) == (depth == 64) and many.dot is None
    sides = of_scores(4, 64, 128)
    assert keeps_order(invariant.machine, sides.contraction) and not keeps_order(AVX512, sides.contraction)
    assert not has_partial_sums(PlanRequest(AVX512), sides, sides.contraction.reduce, 16)
    assert not has_partial_sums(invariant, sides, [], 16)


def test_tiles_fit_the_registers_or_are_what_a_caller_requests() -> None:
    sides = of_product(128, 768, 768)
    for machine in (AVX512, AVX2):
        request = PlanRequest(machine)
        tile = choose_register_tile(request, sides, choose_sum(request, sides))
        assert tile.rows * tile.vectors < machine.vector_registers and tile.row_axis == sides.shared[0]
    request = PlanRequest(AVX2, choices=ContractionChoices(3, 1))
    tile = choose_register_tile(request, sides, choose_sum(request, sides))
    assert (tile.rows, tile.vectors) == (3, 1)


def test_one_row_has_no_axis_of_rows() -> None:
    sides, request = of_product(1, 64, 128), PlanRequest(AVX512)
    tile = choose_register_tile(request, sides, choose_sum(request, sides))
    assert sides.shared == [] and (tile.row_axis, tile.rows) == (None, 1)


def test_columns_are_packed_where_they_are_strided_or_many_rows_read_them() -> None:
    def packing(sides: ContractionSides, **choices: Any) -> tuple[bool, bool]:
        request = PlanRequest(AVX512, choices=ContractionChoices(**choices))
        chosen = choose_sum(request, sides)
        result = choose_packing(request, sides, chosen, choose_register_tile(request, sides, chosen))
        return result.packs_panels, result.is_optional

    assert packing(of_scores(400, 64, 128)) == (True, False)
    assert packing(of_scores(400, 64, 128), dot=True) == (False, False)
    assert packing(of_product(512, 512, 512)) == (True, True)
    assert packing(of_product(512, 512, 512), pack=False) == (False, True)
    assert packing(of_product(1, 512, 512)) == (False, True)


def test_rows_of_the_type_of_sums_are_not_converted() -> None:
    sides, request = of_product(512, 512, 512), PlanRequest(AVX512)
    chosen = choose_sum(request, sides)
    assert chosen.group is None and not converts_rows(sides, chosen, choose_register_tile(request, sides, chosen))


def test_panels_of_int8_are_extended_for_many_rows_that_are_widened() -> None:
    group = DotGroup(2, "vpmaddwd", widens=True, is_stored=True)
    assert extends_panels(of_product(400, 64, 64), group) and not extends_panels(of_product(4, 64, 64), group)
    assert not extends_panels(of_product(400, 64, 64), replace(group, widens=False))
    assert not extends_panels(of_product(1, 64, 64), group)


def test_a_plan_has_the_order_of_loops_that_a_caller_requests() -> None:
    sides = of_product(512, 2048, 512)
    choices = ContractionChoices(pack=False, depth_block=512, row_block=2, tile_rows=8, tile_vectors=2)
    plan = plan_sides(PlanRequest(AVX512, (), choices), sides)
    assert (plan.loops.order.depth_block, plan.loops.order.row_block) == (512, 16)
    assert not plan.packing.packs_panels


@pytest.mark.parametrize("name", ["rows_outside", "row_block", "depth_block"])
def test_each_choice_of_loops_chooses_their_order(name: str) -> None:
    assert not ContractionChoices(tile_rows=4, pack=True, dot=False, lead_bytes=0, share=1).has_order
    assert ContractionChoices(**{name: 0}).has_order
