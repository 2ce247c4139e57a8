"""Loops over more blocks than a device has along an axis: they take another axis, or blocks compute several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from devices import needs_vulkan

import mirlo
from mirlo import R, Schedule, T
from mirlo.passes.targets import ThreadLimits
from mirlo.targets.gpu import threads
from mirlo.testing.ptx import driver
from mirlo.testing.ptx.kernel import PtxKernel
from mirlo.testing.ptx.memory import GlobalMemory

N, M = T.dims("N", "M")
FIXED = 65_535 + 3
"""Iterations: a few more than Vulkan's devices have blocks along an axis."""


@mirlo.prim_func
def dynamic_sums(x: T.Buffer[(N, M), T.f32], y: T.Out[(N, M), T.f32]):
    total = T.alloc((N,), T.f32)
    for i, j in T.grid(N, M):
        with T.block("total"):
            vi, vj = T.axes("SR", i, j)
            with T.init():
                total[vi] = 0.0
            total[vi] += x[vi, vj]
    for i, j in T.grid(N, M):
        with T.block("result"):
            vi, vj = T.axes("SS", i, j)
            y[vi, vj] = x[vi, vj] + total[vi]


@mirlo.script
def dynamic_model(x: R.Tensor[("n", "m"), R.f32]):  # noqa: F821, UP037
    return R.call_tir(dynamic_sums, x)


@mirlo.prim_func
def shifted(x: T.Buffer[(FIXED,), T.f32], y: T.Out[(FIXED,), T.f32]):
    for i in T.grid(FIXED):
        with T.block("moved"):
            vi = T.axes("S", i)
            y[vi] = x[FIXED - 1 - vi] + 1.0


@mirlo.script
def shifted_model(x: R.Tensor[(FIXED,), R.f32]):
    return R.call_tir(shifted, x)


def a_block_each(s: Schedule) -> None:
    """Compute an element in a block."""
    for axis, loop in zip(("blockIdx.y", "blockIdx.x"), s.loops("result"), strict=True):
        s.bind(loop, axis)
    s.bind("total_i", "blockIdx.z")


def a_block_for_a_row(s: Schedule) -> None:
    """Divide the sum of a row among the threads of a block: those of the next row wait for those that read it."""
    row, column = s.loops("result")
    s.compute_at("total", row)
    s.set_scope("total", "shared")
    for loop in (column, s.loops("total")[-1]):
        s.bind(s.split(loop, (None, 8))[1], "threadIdx.x")
    s.bind(row, "blockIdx.x")


def check(target: str, primitives: Callable[[Schedule], None], shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).integers(-4, 5, shape).astype(np.float32)
    compiled = mirlo.compile(dynamic_model, target, schedules={"dynamic_sums": lambda s: primitives(s)}, cache=False)
    np.testing.assert_array_equal(compiled(x), x + x.sum(1, keepdims=True))


@needs_vulkan()
@pytest.mark.parametrize("shape", [(FIXED, 2), (2 * FIXED, 1), (5, 0)], ids=str)
@pytest.mark.parametrize("primitives", [a_block_each, a_block_for_a_row])
def test_dynamic_loops_over_more_blocks_than_a_device_has(
    primitives: Callable[[Schedule], None], shape: tuple[int, int]
) -> None:
    check("spirv", primitives, shape)


@pytest.mark.parametrize("primitives", [a_block_each, a_block_for_a_row])
def test_blocks_that_compute_several_iterations_have_no_races(primitives: Callable[[Schedule], None]) -> None:
    grids: list[tuple[int, int, int]] = []

    def launch(kernel: PtxKernel, memory: GlobalMemory, grid: tuple[int, int, int], *rest: Any) -> None:
        grids.append(grid)
        execute(kernel, memory, grid, *rest)

    execute = driver.launch
    with (
        driver.emulated("sm_80", races=True),
        patch.object(threads, "thread_limits", lambda _: ThreadLimits(max_grid=(4, 3, 2))),
        patch.object(driver, "launch", launch),
    ):
        for shape in ((4, 8), (9, 21)):
            check("nvvm{chip=sm_80}", primitives, shape)
    # An axis without a loop has the rows of blocks of one that has; further ones have loops in blocks.
    assert grids[-2:] == [(5, 1, 2), (4, 3, 6)] if primitives is a_block_each else grids[-1:] == [(4, 3, 1)]


@needs_vulkan()
def test_fixed_loops_over_more_blocks_than_a_device_has() -> None:
    compiled = mirlo.compile(
        shifted_model, "spirv", schedules={"shifted": lambda s: s.bind("moved_i", "blockIdx.x")}, cache=False
    )
    x = np.arange(FIXED, dtype=np.float32)
    np.testing.assert_array_equal(compiled(x), x[::-1] + 1)
    assert [numbers[:3] for _, *numbers in compiled.artifact.metadata["program"]["commands"]] == [[FIXED // 2, 2, 1]]
