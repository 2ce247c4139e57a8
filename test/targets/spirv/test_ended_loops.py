"""Loops of a thread that a device ends before their last iteration give an error, not wrong numbers."""

from __future__ import annotations

import random

import numpy as np
import pytest
from devices import needs_vulkan
from onnx_models import F32, make_model, node

import mirlo
from mirlo import R, T
from mirlo.runtime.executable import Executable
from mirlo.targets.spirv.ended_loops import MOST_ITERATIONS
from mirlo.targets.spirv.vulkan import DeviceError, device
from mirlo.tools.fuzz.differential import LIMITED, RIGHT, judge_graph
from mirlo.tools.fuzz.graphs import RandomGraph
from mirlo.tools.fuzz.modes import MODES

pytestmark = needs_vulkan()

SEEDED = random.Random(77)
NESTS = [
    (0, 1), (1, 0), (1, 1), (1, MOST_ITERATIONS - 3), (1, MOST_ITERATIONS - 1), (1, MOST_ITERATIONS),
    (1, MOST_ITERATIONS + 1), (2, 1 << 15),
    (MOST_ITERATIONS, 1), (1000, 1000),
    *((SEEDED.randrange(1, 300), SEEDED.randrange(1, 600)) for _ in range(12)),
]  # fmt: skip
"""Iterations of two nested loops."""
SCRATCH = [1, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097, 20000]
"""Elements of 4 bytes of a thread's private memory, around the sizes at which it moves."""


def counted(outer: int, inner: int, private: int = 1) -> Executable:
    """Return a model that adds the iterations of nested loops to its input, by way of private memory."""

    @mirlo.prim_func
    def count(x: T.Buffer[(1,), T.i32], y: T.Out[(1,), T.i32]):
        memory = T.alloc((private,), T.i32)
        memory[private - 1] = x[0]
        for _ in T.serial(outer):
            for _ in T.serial(inner):
                memory[private - 1] = memory[private - 1] + 1
        y[0] = memory[private - 1]

    @mirlo.script
    def model(x: R.Tensor[(1,), R.i32]):
        return R.call_tir(count, x)

    return mirlo.compile(model, target="spirv", cache=False)


def reports(model: Executable) -> bool:
    return any(kernel.get("reports", False) for kernel in model.artifact.metadata["kernels"].values())


@pytest.mark.parametrize(("outer", "inner"), NESTS)
def test_iterations_are_computed_or_refused(outer: int, inner: int) -> None:
    model = counted(outer, inner)
    least, most = outer * inner, outer * (1 + inner)  # a loop of one iteration is none
    assert reports(model) or least <= MOST_ITERATIONS
    assert not reports(model) or most > MOST_ITERATIONS
    for start in (5, 7):
        try:
            result = model(np.array([start], np.int32))
        except DeviceError as error:
            assert most > MOST_ITERATIONS and "ended loops of 'count" in str(error)
        else:
            assert result[0] == start + outer * inner
            assert least <= MOST_ITERATIONS or "llvmpipe" not in device().name


@pytest.mark.parametrize("private", SCRATCH)
def test_private_memory_of_any_size(private: int) -> None:
    assert counted(3, 50, private)(np.array([1], np.int32))[0] == 151


def test_loops_of_dynamic_sizes() -> None:
    det = make_model([node("Det", "x", "y")], {"x": (F32, ("n", "m", "m"))}, ["y"])
    model = mirlo.compile(det, target="spirv", cache=False)
    assert reports(model)
    for number, size in [(1, 8), (9, 24), (0, 8), (2, 0), (1, 36), (4, 36), (1, 64), (2, 5)]:
        x = np.random.default_rng(size).standard_normal((number, size, size)).astype(np.float32) / 6
        try:
            result = model(x)
        except DeviceError:
            assert number * size**3 / 3 > MOST_ITERATIONS / 2
        else:
            np.testing.assert_allclose(result, np.linalg.det(x.astype(np.float64)), rtol=1e-3)
            assert number * size**3 / 3 <= MOST_ITERATIONS or "llvmpipe" not in device().name


@pytest.mark.sample(0)
@pytest.mark.parametrize("size", [3, 64])
def test_random_graphs_count_limits_of_the_device(size: int) -> None:
    """A graph that the device cannot compute is neither right nor a bug."""
    x = np.eye(size, dtype=np.float32)
    model = make_model([node("Det", "x", "y")], {"x": (F32, x.shape)}, ["y"], output_types={"y": (F32, ())})
    verdict = judge_graph(RandomGraph(0, model, {"x": x}, [], {"y": 1e-6}), "spirv")
    assert verdict.state == (RIGHT if size == 3 or "llvmpipe" not in device().name else LIMITED)
    assert LIMITED not in MODES["graphs"].bugs and LIMITED in MODES["graphs"].states
