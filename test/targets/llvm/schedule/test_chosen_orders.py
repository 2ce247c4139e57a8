"""Which order of the loops the cost model chooses, and that results are those of the plain order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from chosen_values import Always, run_with, weights_of

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.tir.view import PrimView, prim_functions
from mirlo.driver.tune.tasks import tasks_of
from mirlo.passes.lower.parallel import ParallelRecord
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.rules import Decline
from mirlo.passes.schedule.tuned import TUNING
from mirlo.passes.session import Session
from mirlo.passes.targets import CompileOptions, find_target
from mirlo.runtime.params import ParameterStore
from mirlo.targets.llvm.choices import ContractionChoices
from mirlo.targets.llvm.machine import PRESETS, Machine
from mirlo.targets.llvm.options import parse_options
from mirlo.targets.llvm.schedule.contraction.costs import expected_cycles, fastest_order
from mirlo.targets.llvm.schedule.contraction.orders import LoopOrder
from mirlo.targets.llvm.schedule.contraction.plan import plan_of
from mirlo.targets.llvm.schedule.contraction.tiled_contraction import TiledContraction
from mirlo.targets.llvm.schedule.contraction.tiles import TileProblem, choose_tile, step_cycles

MODULES: list[ir.Module] = []
"""What plans refer to."""
AVX512, AVX2 = PRESETS["avx512"], PRESETS["avx2"]

PRODUCT = """
func.func @main(%x: tensor<{m}x{k}xf32>) -> tensor<{m}x{n}xf32> {{
  %w = "relax.constant"() {{param = "w"}} : () -> tensor<{k}x{n}xf32>
  %0 = "relax.matmul"(%x, %w) : (tensor<{m}x{k}xf32>, tensor<{k}x{n}xf32>) -> tensor<{m}x{n}xf32>
  return %0 : tensor<{m}x{n}xf32>
}}"""

BATCHED = """
func.func @main(%x: tensor<{b}x{m}x{k}xf32>, %y: tensor<{b}x{k}x{n}xf32>) -> tensor<{b}x{m}x{n}xf32> {{
  %0 = "relax.matmul"(%x, %y)
    : (tensor<{b}x{m}x{k}xf32>, tensor<{b}x{k}x{n}xf32>) -> tensor<{b}x{m}x{n}xf32>
  return %0 : tensor<{b}x{m}x{n}xf32>
}}"""

CONVOLUTION = """
func.func @main(%x: tensor<1x{s}x{s}x{c}xf32>) -> tensor<1x{o}x{o}x{f}xf32> {{
  %w = "relax.constant"() {{param = "w"}} : () -> tensor<{w}x{w}x{i}x{f}xf32>
  %0 = "relax.conv"(%x, %w) {{strides = array<i64: {d}, {d}>, padding = array<i64: {p}, {p}, {p}, {p}>,
    groups = {g} : i64, data_layout = "N*C", kernel_layout = "*IO"}}
    : (tensor<1x{s}x{s}x{c}xf32>, tensor<{w}x{w}x{i}x{f}xf32>) -> tensor<1x{o}x{o}x{f}xf32>
  return %0 : tensor<1x{o}x{o}x{f}xf32>
}}"""


def _convolution(size: int, channels: int, filters: int, window: int = 1, stride: int = 1, groups: int = 1) -> str:
    pad = window // 2
    out = (size + 2 * pad - window) // stride + 1
    return CONVOLUTION.format(
        s=size, c=channels, f=filters, w=window, d=stride, p=pad, o=out, g=groups, i=channels // groups
    )


def _plan(text: str, machine: Machine, choices: ContractionChoices | None = None, threads: int = 1) -> TiledContraction:
    """Return the plan of the only contraction of a model; its constants are packed when it is compiled."""
    choices = choices or ContractionChoices(pack=True)
    with make_context(), ir.Location.unknown():
        (task,), _ = tasks_of(ir.Module.parse(text), "llvm{cpu=x86-64-v3}", 1)
        module = ir.Module.parse(task.module)
        MODULES.append(module)
        view = PrimView(prim_functions(module.operation)[0])
        plan = plan_of(view.blocks, frozenset(view.returned), machine, view.arguments[1:], choices, threads)
        assert not isinstance(plan, Decline)
        return plan


def test_results_beyond_the_l2_cache_are_written_in_blocks_of_rows() -> None:
    """MobileNetV2's expansion of 112 x 112 pixels to 96 channels."""
    order = _plan(_convolution(112, 16, 96), AVX512).loops.order
    assert 16 <= order.row_block <= 32
    assert not _plan(_convolution(28, 16, 96), AVX512).loops.order.is_reordered


def test_rows_beyond_the_l2_cache_are_read_once() -> None:
    """ResNet-50's reduction of 56 x 56 pixels from 256 to 128 channels: 3.2 MB of rows for each panel."""
    assert _plan(_convolution(56, 256, 128), AVX512).loops.order.row_block > 0
    # With a stride, a quarter of the pixels is read.
    near = replace(AVX512, l2_bytes=2 << 20)
    assert not _plan(_convolution(56, 256, 128, stride=2), near).loops.order.is_reordered


def test_columns_that_do_not_stay_are_not_read_for_each_block_of_few_rows() -> None:
    """BERT's last product: 9.4 MB of columns."""
    machine = replace(AVX512, l2_bytes=2 << 20, l3_bytes_per_cycle=16.0)
    order = _plan(PRODUCT.format(m=128, k=3072, n=768), machine).loops.order
    assert (order.row_block, order.depth_block) == (0, 512)
    assert not _plan(PRODUCT.format(m=128, k=768, n=768), machine).loops.order.is_reordered


def test_partial_sums_stay_in_the_l2_cache() -> None:
    """Results of 4 MB would leave the cache with each block of K and return from beyond it."""
    machine = replace(AVX512, l3_bytes_per_cycle=16.0)
    assert _plan(PRODUCT.format(m=1024, k=3072, n=1024), machine).loops.order.depth_axis is None


@pytest.mark.parametrize("machine", [AVX512, AVX2], ids=["avx512", "avx2"])
@pytest.mark.parametrize(("size", "is_far"), [(112, True), (14, False)])
def test_channels_are_outermost_where_an_image_stays(machine: Machine, size: int, is_far: bool) -> None:
    """A depthwise convolution reads each line three times: in adjacent rows, or while all of them are in the cache."""
    plan = _plan(_convolution(size, 96, 96, 3, groups=96), machine, ContractionChoices())
    assert plan.loops.order.rows_outside == is_far


MESH = parse_options("cpu=emeraldrapids").machine


@pytest.mark.parametrize(
    ("size", "channels", "filters", "threads", "row_block"),
    [(14, 64, 384, 2, 99), (14, 384, 64, 2, 98), (14, 384, 64, 4, 28), (14, 384, 64, 1, 0), (14, 384, 64, 8, 0)]
    + [(7, 960, 160, 2, 0), (14, 512, 2048, 2, 0)],
)
def test_few_threads_divide_rows_where_weights_are_small(
    size: int, channels: int, filters: int, threads: int, row_block: int
) -> None:
    """MobileNetV2: with 7 lines one of two threads would have more work, and large weights would be read twice."""
    plan = _plan(_convolution(size, channels, filters), MESH, threads=threads)
    assert plan.loops.order.row_block == row_block
    near = replace(MESH, exchanged_bytes_per_cycle=0.0)
    one = _plan(_convolution(size, channels, filters), near)
    assert _plan(_convolution(size, channels, filters), near, threads=threads).loops.order == one.loops.order


@pytest.mark.parametrize(("size", "threads", "is_outside"), [(14, 2, True), (7, 2, False), (14, 1, False)])
def test_few_threads_divide_the_lines_of_depthwise_convolutions(size: int, threads: int, is_outside: bool) -> None:
    plan = _plan(_convolution(size, 384, 384, 3, groups=384), MESH, ContractionChoices(), threads)
    assert plan.loops.order.rows_outside == is_outside


def test_the_rows_of_a_batch_are_its_own() -> None:
    """Winograd's products: the rows of one of 16 batches are small, whatever all of them together are."""
    tile = _plan(BATCHED.format(b=16, m=16, k=512, n=512), AVX2).tile
    assert (tile.rows, tile.vectors) in ((4, 3), (6, 2))


def test_the_rows_of_a_convolution_are_those_of_all_lines() -> None:
    """The lines above are multiplied with the same panel: they are not what a tile of one line reads again."""
    plan = _plan(_convolution(56, 128, 128, 3, stride=2), AVX2)
    assert plan.tile.rows * plan.tile.vectors >= 10


SHAPES = [
    *(PRODUCT.format(m=m, k=k, n=n) for m in (17, 130, 700) for k in (33, 700, 2100) for n in (40, 300, 900)),
    *(
        _convolution(s, c, f, w, d)
        for s in (9, 30)
        for c in (16, 70)
        for f in (40, 300)
        for w in (1, 3)
        for d in (1, 2)
    ),
    *(_convolution(s, 64, 64, w, d, 64) for s in (9, 30, 57) for w in (3, 5) for d in (1, 2)),
]


@pytest.mark.sample(12)
@pytest.mark.parametrize("text", SHAPES)
@pytest.mark.parametrize("machine", ["l2=32KiB", "l2=256KiB"])
def test_chosen_orders_compute_the_same(text: str, machine: str) -> None:
    """Small caches make the model choose blocks for small shapes."""
    target = f"llvm{{{machine}}}"
    plain = run_with(text, {"winograd": 0, "row_block": 0}, target=target)
    for threads in (1, 2):
        found = run_with(text, {"winograd": 0}, threads, target)
        np.testing.assert_allclose(found, plain, rtol=2e-4, atol=2e-3)


@pytest.mark.sample(8)
@pytest.mark.parametrize("text", SHAPES)
@pytest.mark.parametrize("machine", [AVX512, AVX2, PRESETS["neon"]], ids=["avx512", "avx2", "neon"])
def test_no_order_is_expected_to_be_slower_than_panels_outermost(text: str, machine: Machine) -> None:
    small = replace(machine, l2_bytes=64 << 10)
    plan = _plan(text, small)
    if plan.has_own_rows:
        return
    own = replace(plan, loops=replace(plan.loops, order=LoopOrder()))
    assert fastest_order(own) == plan.loops.order
    before, after = expected_cycles(own), expected_cycles(plan)
    assert before is None or after is not None and after <= before


@pytest.mark.parametrize(("machine", "tile"), [(AVX512, (8, 2)), (AVX2, (4, 2))], ids=["avx512", "avx2"])
def test_tiles_of_windows_share_what_they_load(machine: Machine, tile: tuple[int, int]) -> None:
    lanes = machine.lanes(4)
    problem = TileProblem(56, 20 * lanes, lanes, 9, True, False, 4, taps=3)
    assert choose_tile(problem, machine)[:2] == tile
    # Three rows of two share four vectors of three taps, and with a stride of 2 five, if accumulators leave half of the
    # registers.
    fast = replace(machine, fma_per_cycle=1 << 20, fma_latency=0, loads_per_cycle=0.1, vector_registers=32)
    for stride, vectors in ((1, 4 / 3), (2, 5 / 3), (4, 2)):
        wide = replace(problem, tap_stride=stride)
        assert step_cycles(2, 4, wide, fast) == pytest.approx(10 * (4 * vectors + 4))
        assert step_cycles(2, 4, wide, replace(fast, vector_registers=8)) == pytest.approx(10 * (4 * 2 + 4))


@pytest.mark.sample(8)
@pytest.mark.parametrize("text", SHAPES)
@pytest.mark.parametrize("order", [{}, {"depth_block": 64}, {"row_block": 1}, {"rows_outside": 1}], ids=str)
def test_threads_share_all_orders(text: str, order: dict[str, int]) -> None:
    target = find_target("llvm")
    options = CompileOptions("llvm", threads=2, target_options="l2=32KiB thread_work=1")
    passes, outlining, _ = target.pipeline(options).partition("outline-parallel")
    assert outlining
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        session = Session(weights_of(module, np.random.default_rng(1)))
        session.options[TUNING] = Always({"winograd": 0, **order})
        Pipeline(f"{passes}outline-parallel{{threads=2 work=1}})").run(module, session)
    records = [note for note in session.notes if isinstance(note, ParallelRecord)]
    assert any(record.shared for record in records)
    reasons = [reason for record in records for reason in record.declined]
    assert all("the loop runs once" in str(reason) for reason in reasons), reasons


DYNAMIC = """
func.func @main(%x: tensor<?x{k}xf32, #relax.dims<["m", {k}]>>, %r: tensor<?x{n}xf32, #relax.dims<["m", {n}]>>)
    -> tensor<?x{n}xf32, #relax.dims<["m", {n}]>> {{
  %w = "relax.constant"() {{param = "w"}} : () -> tensor<{k}x{n}xf32>
  %0 = "relax.matmul"(%x, %w) : (tensor<?x{k}xf32, #relax.dims<["m", {k}]>>, tensor<{k}x{n}xf32>)
    -> tensor<?x{n}xf32, #relax.dims<["m", {n}]>>
  %1 = "relax.add"(%0, %r) : (tensor<?x{n}xf32, #relax.dims<["m", {n}]>>, tensor<?x{n}xf32, #relax.dims<["m", {n}]>>)
    -> tensor<?x{n}xf32, #relax.dims<["m", {n}]>>
  return %1 : tensor<?x{n}xf32, #relax.dims<["m", {n}]>>
}}"""


@pytest.mark.sample(0)
@pytest.mark.parametrize("cpu", ["", "cpu=x86-64-v3 ", "cpu=x86-64-v2 "])
@pytest.mark.parametrize(
    "order", [{}, {"row_block": 1}, {"row_block": 3}, {"row_block": 2, "tile_rows": 7, "tile_vectors": 1}], ids=str
)
@pytest.mark.parametrize(("k", "n"), [(20, 70), (130, 300)])
def test_blocks_of_a_dynamic_number_of_rows(k: int, n: int, order: dict[str, int], cpu: str) -> None:
    """Whole blocks, with remainders of nothing, less than a tile, several tiles."""
    rng = np.random.default_rng(2)
    weight = rng.standard_normal((k, n), dtype=np.float32)
    for threads in (1, 2):
        store = ParameterStore()
        store.add("w", weight)
        with make_context(), ir.Location.unknown():
            module = ir.Module.parse(DYNAMIC.format(k=k, n=n))
            target = f"llvm{{{cpu}l2=16KiB thread_work=1}}"
            f = mirlo.compile(module, target, params=store, tune=Always(order), threads=threads, cache=False)
        for rows in (*range(1, 40), 63, 64, 65, 128, 133):
            x, r = (rng.standard_normal((rows, size), dtype=np.float32) for size in (k, n))
            np.testing.assert_allclose(f(x, r), x @ weight + r, rtol=1e-4, atol=1e-3)
