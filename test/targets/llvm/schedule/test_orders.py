"""Orders of the loops of contractions, parts of their sums, what threads share: all compute the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from chosen_values import Always, run_with

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.driver.tune.tasks import tasks_of
from mirlo.runtime.params import ParameterStore

PRODUCT = """
func.func @main(%x: tensor<{m}x{k}xf32>, %r: tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32> {{
  %w = "relax.constant"() {{param = "w"}} : () -> tensor<{k}x{n}xf32>
  %0 = "relax.matmul"(%x, %w) : (tensor<{m}x{k}xf32>, tensor<{k}x{n}xf32>) -> tensor<{m}x{n}xf32>
  %1 = "relax.add"(%0, %r) : (tensor<{m}x{n}xf32>, tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  %2 = "relax.relu"(%1) : (tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  return %2 : tensor<{m}x{n}xf32>
}}"""

CONVOLUTION = """
func.func @main(%x: tensor<2x9x{s}x80xf32>) -> tensor<2x9x{s}x48xf32> {{
  %w = "relax.constant"() {{param = "w"}} : () -> tensor<3x3x80x48xf32>
  %0 = "relax.conv"(%x, %w) {{padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C", kernel_layout = "*IO"}}
    : (tensor<2x9x{s}x80xf32>, tensor<3x3x80x48xf32>) -> tensor<2x9x{s}x48xf32>
  return %0 : tensor<2x9x{s}x48xf32>
}}"""

BATCHED = """
func.func @main(%x: tensor<3x{m}x{k}xf32>, %y: tensor<3x{n}x{k}xf32>) -> tensor<3x{m}x{n}xf32> {{
  %t = "relax.permute"(%y) {{axes = array<i64: 0, 2, 1>}} : (tensor<3x{n}x{k}xf32>) -> tensor<3x{k}x{n}xf32>
  %0 = "relax.matmul"(%x, %t) : (tensor<3x{m}x{k}xf32>, tensor<3x{k}x{n}xf32>) -> tensor<3x{m}x{n}xf32>
  return %0 : tensor<3x{m}x{n}xf32>
}}"""


ORDERS = [
    {"depth_block": 64}, {"depth_block": 100}, {"row_block": 1}, {"row_block": 2}, {"depth_block": 90, "row_block": 1},
    {"rows_outside": 1}, {"rows_outside": 1, "depth_block": 70},
]  # fmt: skip


@pytest.mark.sample(10)
@pytest.mark.parametrize(("order", "threads"), [*((order, 1) for order in ORDERS), (ORDERS[4], 2), (ORDERS[6], 2)])
@pytest.mark.parametrize(
    "text", [PRODUCT.format(m=45, k=257, n=70), CONVOLUTION.format(s=31)], ids=["product", "convolution"]
)
def test_orders_compute_the_same(text: str, order: dict[str, int], threads: int) -> None:
    want = run_with(text, {"winograd": 0})
    got = run_with(text, {"winograd": 0, **order}, threads)
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


@pytest.mark.sample(3)
@pytest.mark.parametrize("share", [0, 1, 2])
@pytest.mark.parametrize("text", [PRODUCT.format(m=90, k=130, n=200), CONVOLUTION.format(s=20)], ids=["x", "conv"])
def test_threads_share_what_is_chosen(text: str, share: int) -> None:
    want = run_with(text, {"winograd": 0})
    got = run_with(text, {"winograd": 0, "share": share}, 2)
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("dot", [0, 1])
def test_lanes_may_run_along_the_sum_or_not(dot: int) -> None:
    for m in (3, 20):
        text = BATCHED.format(m=m, k=50, n=33)
        np.testing.assert_allclose(run_with(text, {"dot": dot}), run_with(text, {}), rtol=2e-4, atol=2e-4)


def _scheduled(text: str, values: dict[str, int], threads: int = 1) -> str:
    """Return the function after `schedule`."""
    from mirlo.passes.pipeline import Pipeline
    from mirlo.passes.schedule.tuned import TUNING
    from mirlo.passes.session import Session
    from mirlo.passes.targets import CompileOptions, find_target

    pipeline = find_target("llvm").pipeline
    assert pipeline is not None
    steps = [str(step) for step in Pipeline(pipeline(CompileOptions("llvm", threads)))]
    end = next(i for i, step in enumerate(steps) if step.startswith("schedule"))
    session = Session(ParameterStore())
    session.options[TUNING] = Always(values)
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        session.params.add("w", np.zeros((257, 70), np.float32))
        Pipeline(f"builtin.module({','.join(steps[: end + 1])})").run(module, session)
        return str(module)


def test_the_schedule_says_what_was_chosen() -> None:
    text = _scheduled(PRODUCT.format(m=45, k=257, n=70), {"depth_block": 100, "row_block": 2, "share": 1})
    assert "depth_block = 100" in text and "row_block = " in text and 'share = "rows"' in text
    told = _scheduled(PRODUCT.format(m=45, k=257, n=70), {"depth_block": 3, "row_block": 99})
    assert "depth_block" not in told.partition("tir.schedule = {")[2].partition("}")[0]


def test_orders_are_offered_where_there_are_any() -> None:
    with make_context(), ir.Location.unknown():
        long = ir.Module.parse(PRODUCT.format(m=45, k=1024, n=70))
        tasks, _ = tasks_of(long, "llvm{cpu=znver3}", 1)
        names = {name for choice in tasks[0].choices for name in choice}
        assert {"depth_block", "row_block", "tile_rows"} <= names and "share" not in names
        assert len(tasks[0].expected) == len(tasks[0].choices)
        (task,), _ = tasks_of(long, "llvm{cpu=znver3}", 2)
        assert {"share": 1} in task.choices and task.key != tasks[0].key


def test_what_was_found_for_one_thread_serves_several() -> None:
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(PRODUCT.format(m=45, k=257, n=70))
        (one,), _ = tasks_of(module, "llvm", 1)
    asked: list[str] = []

    class Known(Always):
        def find(self, key: str) -> Any:
            asked.append(key)
            return {"row_block": 1} if key == one.key else None

    store = ParameterStore()
    store.add("w", np.zeros((257, 70), np.float32))
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(PRODUCT.format(m=45, k=257, n=70))
        mirlo.compile(module, params=store, threads=2, tune=Known({}), cache=False)
    assert len(asked) == 2 and asked[1] == one.key
