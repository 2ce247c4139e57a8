"""Kernels by hand whose statements are outside of loops over threads: they run once, and threads see what they write.

Random kernels are run on devices and, with loops in place of threads, in Python.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from devices import needs_vulkan

import mirlo
from mirlo import R, T
from mirlo.testing.ptx.driver import emulated

ROWS, ELEMENTS = 3, 64
KERNEL = """import mirlo
from mirlo import R, T

@mirlo.prim_func
def kernel({parameters}):
{body}
@mirlo.script
def model(x: R.Tensor[(3, 64), R.f32]):
    return R.call_tir(kernel, x)
"""


class Sequential:
    """What a kernel says with `T`, executed in Python: threads one after the other."""

    f32 = np.float32
    serial = staticmethod(range)

    @staticmethod
    def thread_binding(extent: int, axis: str) -> range:
        return range(extent)

    @staticmethod
    def alloc(shape: tuple[int, ...], dtype: Any, scope: str) -> np.ndarray:
        return np.zeros(shape, dtype)


class Writer:
    """A random kernel: blocks compute rows with two arrays, in shared or in main memory."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.has_two_axes, self.in_main = rng.random() < 0.6, rng.random() < 0.5
        self.arrays = ("p[b, {}]", "q[b, {}]") if self.in_main else ("p[{}]", "q[{}]")

    def threads(self, *statements: str) -> list[str]:
        """Return loops over all threads around statements on element `@`."""
        loops = ["for t in T.thread_binding(64, 'threadIdx.x'):"]
        element = "t"
        if self.has_two_axes:
            loops = ["for u in T.thread_binding(8, 'threadIdx.y'):", "    for t in T.thread_binding(8, 'threadIdx.x'):"]
            element = "u * 8 + t"
        return [*loops, *(4 * len(loops) * " " + text.replace("@", element) for text in statements)]

    def step(self) -> list[str]:
        first, second = self.rng.permutation(self.arrays)
        a, b, c = (int(number) for number in self.rng.integers(0, 8, 3))
        exchange = self.threads(f"{first.format('@')} = {first.format('@')} + {second.format('63 - (@)')} * 0.5")
        halve = f"{second.format(a)} = {second.format(a)} * 0.5 + {first.format(b)}"
        add = f"y[b, {c}] = y[b, {c}] + {first.format(b)}"
        shift = f"{first.format('r')} = {first.format(f'r + {a + 1}')} + {second.format(b)}"
        steps = [
            exchange,
            [halve],
            [add],
            ["for r in T.serial(8):", f"    {shift}"],
            ["for r in T.serial(3):", *indented([halve, *exchange])],
        ]
        if self.has_two_axes:
            own = f"{first.format(f'u * 8 + {a}')} = {first.format(f'u * 8 + {a}')} * 0.5 + 1.0"
            inner = f"    {second.format('u * 8 + t')} = {second.format('u * 8 + t')} + {first.format(f'u * 8 + {a}')}"
            column = f"{first.format('t')} = {first.format('t')} * 0.5 + {second.format('63 - t')}"
            x = "for t in T.thread_binding(8, 'threadIdx.x'):"
            steps += [
                ["for u in T.thread_binding(8, 'threadIdx.y'):", *indented([own, x, inner])],
                [x, *indented([column])],
            ]
        return steps[int(self.rng.integers(len(steps)))]

    def body(self) -> str:
        allocated = [] if self.in_main else [f"{name} = T.alloc((64,), T.f32, scope='shared')" for name in "pq"]
        p, q = (array.format("@") for array in self.arrays)
        steps = [line for _ in range(int(self.rng.integers(2, 6))) for line in self.step()]
        start = self.threads(f"{p} = x[b, @]", f"{q} = x[b, 63 - (@)] * 0.5", "y[b, @] = 0.25")
        end = self.threads(f"y[b, @] = y[b, @] + {p} + 3.0 * {self.arrays[1].format('63 - (@)')}")
        blocks = ["for b in T.thread_binding(3, 'blockIdx.x'):", *indented([*start, *steps, *end])]
        return "".join(f"{line}\n" for line in indented([*allocated, *blocks]))

    @property
    def outputs(self) -> str:
        return "ypq" if self.in_main else "y"

    def kernel(self) -> str:
        names = ["x: T.Buffer[(3, 64), T.f32]", *(f"{name}: T.Out[(3, 64), T.f32]" for name in self.outputs)]
        return KERNEL.format(parameters=", ".join(names), body=self.body())


def indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def module_of(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sequential(text: str, outputs: str) -> Callable[..., None]:
    """Return the kernel as a function of Python."""
    _, *lines = text[text.index("def kernel") : text.index("@mirlo.script")].splitlines()
    scope: dict[str, Any] = {"T": Sequential}
    exec("\n".join([f"def kernel(x, {', '.join(outputs)}):", *lines]), scope)
    kernel: Callable[..., None] = scope["kernel"]
    return kernel


@pytest.mark.sample(6)
@pytest.mark.parametrize("target", ["nvvm{chip=sm_80}", pytest.param("spirv", marks=needs_vulkan())])
@pytest.mark.parametrize("seed", range(12))
def test_statements_outside_of_loops_over_threads(target: str, seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    writer = Writer(rng)
    text = writer.kernel()
    path = tmp_path / f"kernel_{seed}.py"
    path.write_text(text)
    x = rng.standard_normal((ROWS, ELEMENTS), dtype=np.float32)
    expected = [np.zeros_like(x) for _ in writer.outputs]
    sequential(text, writer.outputs)(x, *expected)
    with emulated(races=True) if target.startswith("nvvm") else nullcontext():
        found = mirlo.compile(module_of(path).model, target=target, cache=False)(x)
    for array, wanted in zip(found if writer.in_main else [found], expected, strict=True):
        np.testing.assert_allclose(array, wanted, rtol=1e-4, atol=1e-4)


@mirlo.prim_func
def equal_parts(x: T.Buffer[(3, 16), T.f32], y: T.Out[(3, 16), T.f32]):
    p = T.alloc((16,), T.f32, scope="shared")
    q = T.alloc((16,), T.f32, scope="shared")
    for b in T.thread_binding(3, "blockIdx.x"):
        for u in T.thread_binding(4, "threadIdx.y"):
            for t in T.thread_binding(4, "threadIdx.x"):
                p[u * 4 + t] = x[b, u * 4 + t]
                q[u * 4 + t] = x[b, 15 - (u * 4 + t)]
        for u in T.thread_binding(4, "threadIdx.y"):
            p[u * 4 + 1] = p[u * 4 + 1] * 0.5 + 1.0
            for t in T.thread_binding(4, "threadIdx.x"):
                q[u * 4 + t] = q[u * 4 + t] + p[u * 4 + 1]
        for r in T.serial(3):
            p[r + 1] = p[r + 1] * 0.5
            for u in T.thread_binding(4, "threadIdx.y"):
                for t in T.thread_binding(4, "threadIdx.x"):
                    q[u * 4 + t] = q[u * 4 + t] + p[15 - (u * 4 + t)]
        for u in T.thread_binding(4, "threadIdx.y"):
            for t in T.thread_binding(4, "threadIdx.x"):
                y[b, u * 4 + t] = q[15 - (u * 4 + t)]


@mirlo.script
def with_equal_parts(x: R.Tensor[(3, 16), R.f32]):
    return R.call_tir(equal_parts, x)


def test_parts_of_a_kernel_that_are_equal_stay_two() -> None:
    """All threads of a warp reach each barrier: MLIR once made one block of two, and LLVM others of that."""
    x = np.arange(48, dtype=np.float32).reshape(3, 16)
    p, q = x.copy(), x[:, ::-1].copy()
    p[:, 1::4] = p[:, 1::4] * 0.5 + 1
    q += p[:, 1::4].repeat(4, axis=1)
    for r in range(3):
        p[:, r + 1] *= 0.5
        q += p[:, ::-1]
    with emulated():
        found = mirlo.compile(with_equal_parts, target="nvvm{chip=sm_80}", cache=False)(x)
    np.testing.assert_allclose(found, q[:, ::-1])


@mirlo.prim_func
def halved_first(x: T.Buffer[(3, 64), T.f32], y: T.Out[(3, 64), T.f32]):
    p = T.alloc((64,), T.f32, scope="shared")
    own = T.alloc((1,), T.f32)
    for b in T.thread_binding(3, "blockIdx.x"):
        for t in T.thread_binding(64, "threadIdx.x"):
            p[t] = x[b, t]
        p[0] = p[63] * 0.5
        own[0] = p[0]
        for t in T.thread_binding(64, "threadIdx.x"):
            y[b, t] = p[t] + own[0]


@mirlo.script
def with_halved_first(x: R.Tensor[(3, 64), R.f32]):
    return R.call_tir(halved_first, x)


def test_threads_wait_for_what_one_of_them_wrote_before_they_read_it_for_themselves() -> None:
    x = np.arange(192, dtype=np.float32).reshape(3, 64)
    p = x.copy()
    p[:, 0] = x[:, 63] / 2
    with emulated(races=True):
        found = mirlo.compile(with_halved_first, target="nvvm{chip=sm_80}", cache=False)(x)
    np.testing.assert_array_equal(found, p + p[:, :1])


REPEATED = {
    "what the end writes": """
            for t in T.thread_binding(64, "threadIdx.x"):
                p[u, t] = q[u, 63 - t] * 0.5
            for t in T.thread_binding(64, "threadIdx.x"):
                q[u, t] = p[u, 63 - t] + 1.0
""",
    "what the end reads": """
            for t in T.thread_binding(64, "threadIdx.x"):
                p[u, t] = p[u, t] * 0.5 + x[b, u, t]
            for t in T.thread_binding(64, "threadIdx.x"):
                q[u, t] = q[u, t] + p[u, 63 - t]
""",
    "what a statement writes": """
            q[u, 3] = q[u, 3] * 0.5
            for t in T.thread_binding(64, "threadIdx.x"):
                p[u, t] = p[u, t] + q[u, 3]
""",
    "what a statement reads": """
            p[u, 3] = q[u, 63] * 0.5
            for t in T.thread_binding(64, "threadIdx.x"):
                q[u, t] = q[u, t] + p[u, 3]
""",
    "inner loops": """
            for s in T.serial(2):
                for t in T.thread_binding(64, "threadIdx.x"):
                    p[u, t] = q[u, 63 - t] * 0.5
                for t in T.thread_binding(64, "threadIdx.x"):
                    q[u, t] = p[u, 63 - t] + 1.0
""",
}
REPEATED_KERNEL = """
    p = T.alloc((2, 64), T.f32, scope="shared")
    q = T.alloc((2, 64), T.f32, scope="shared")
    for b in T.thread_binding(1, "blockIdx.x"):
        for u in T.thread_binding(2, "threadIdx.y"):
            for t in T.thread_binding(64, "threadIdx.x"):
                p[u, t] = x[b, u, t]
                q[u, t] = x[b, u, 63 - t]
            for r in T.serial(3):{steps}
            for t in T.thread_binding(64, "threadIdx.x"):
                y[b, u, t] = p[u, 63 - t] + q[u, 63 - t]
"""


@pytest.mark.parametrize("steps", REPEATED)
def test_an_iteration_waits_for_the_one_before(steps: str, tmp_path: Path) -> None:
    """Threads wait between what the end of a serial loop accesses and what its beginning does."""
    body = REPEATED_KERNEL.format(steps="\n".join(indented(REPEATED[steps].splitlines())))
    parameters = "x: T.Buffer[(1, 2, 64), T.f32], y: T.Out[(1, 2, 64), T.f32]"
    path = tmp_path / "repeated.py"
    path.write_text(KERNEL.format(parameters=parameters, body=body).replace("(3, 64)", "(1, 2, 64)"))
    x = np.random.default_rng(0).standard_normal((1, 2, 64), dtype=np.float32)
    expected = np.zeros_like(x)
    sequential(path.read_text(), "y")(x, expected)
    with emulated(races=True):
        found = mirlo.compile(module_of(path).model, target="nvvm{chip=sm_80}", cache=False)(x)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


INNER_LOOPS = """
    tile = T.alloc((32, 8), T.f32, scope="shared")
    for b in T.thread_binding(3, "blockIdx.x"):
        for t in T.thread_binding(32, "threadIdx.x"):
            for u in T.thread_binding(8, "threadIdx.y"):
                tile[t, u] = x[b, t, u]
            first[b, t] = tile[t, 7] * 2.0
            for u in T.thread_binding(8, "threadIdx.y"):
                y[b, t, u] = tile[t, 7 - u] + first[b, t]
"""
ONE_AXIS = """
    for b in T.thread_binding(3, "blockIdx.x"):
        for t in T.thread_binding(1, "threadIdx.x"):
            for i in T.serial(32):
                first[b, i] = x[b, i, 0]
        for t in T.thread_binding(16, "threadIdx.x"):
            first[b, t] = x[b, t, 1]
        for u in T.thread_binding(8, "threadIdx.y"):
            for i in T.serial(32):
                y[b, i, u] = x[b, i, u] + first[b, i]
"""
ONE_THREAD = """
    for b in T.thread_binding(3, "blockIdx.x"):
        for t in T.thread_binding(1, "threadIdx.x"):
            for i in T.serial(32):
                first[b, i] = x[b, i, 0]
        if x[b, 0, 0] > 0.0:
            for u in T.thread_binding(8, "threadIdx.y"):
                first[b, u] = 3.0
        for t in T.thread_binding(1, "threadIdx.x"):
            for u in T.thread_binding(8, "threadIdx.y"):
                for i in T.serial(32):
                    y[b, i, u] = first[b, i]
"""
NO_THREADS = """
    for b in T.thread_binding(3, "blockIdx.x"):
        for t in T.thread_binding(32, "threadIdx.x"):
            first[b, t] = x[b, t, 0]
            for u in T.serial(8):
                y[b, t, u] = x[b, 31 - t, u]
        for u in T.thread_binding(0, "threadIdx.y"):
            first[b, u] = 5.0
    for b in T.thread_binding(0, "blockIdx.x"):
        first[b, 0] = 5.0
"""
BODIES = [INNER_LOOPS, ONE_AXIS, ONE_THREAD, NO_THREADS]
PARAMETERS = "x: T.Buffer[(3, 32, 8), T.f32], first: T.Out[(3, 32), T.f32], y: T.Out[(3, 32, 8), T.f32]"


@pytest.mark.sample(0)
@pytest.mark.parametrize("target", ["nvvm{chip=sm_80}", pytest.param("spirv", marks=needs_vulkan())])
@pytest.mark.parametrize("body", BODIES, ids=["inner loops", "one axis", "one thread", "no threads"])
def test_loops_over_some_threads(target: str, body: str, tmp_path: Path) -> None:
    """Threads wait between loops in a loop over threads, and never where only some of them are."""
    text = KERNEL.format(parameters=PARAMETERS, body=body).replace("(3, 64)", "(3, 32, 8)")
    path = tmp_path / "kernel.py"
    path.write_text(text)
    x = np.random.default_rng(0).standard_normal((3, 32, 8), dtype=np.float32)
    expected = [np.zeros((3, 32), np.float32), np.zeros_like(x)]
    sequential(text, ["first", "y"])(x, *expected)
    with emulated("sm_80", races=True) if target.startswith("nvvm") else nullcontext():
        found = mirlo.compile(module_of(path).model, target=target, cache=False)(x)
    for array, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(array, wanted, rtol=1e-6)
