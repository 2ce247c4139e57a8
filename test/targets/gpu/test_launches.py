"""Functions of several loops on GPUs: what one launch runs, and in which order."""

from __future__ import annotations

import numpy as np
import pytest
from devices import needs_vulkan
from onnx_models import F32, I64, make_model, node

import mirlo
from mirlo import R, Schedule, T
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.pipeline import Pipeline
from mirlo.testing.ptx.driver import emulated

COLUMNS = 8
TARGETS = ["nvvm{chip=sm_80}", pytest.param("spirv", marks=needs_vulkan())]
NOTHING = ", ".join(["0"] * 15)
BLOCK = """
  %v{n} = "tir.block"(%v{first}, %v{second}) ({{
  ^bb0(%i: index, %j: index, %a: f32, %b: f32):
    %half = arith.constant 0.5 : f32
    %scaled = arith.mulf %a, %half : f32
    %sum = arith.addf %scaled, %b : f32
    "tir.yield"(%sum) {{operandSegmentSizes = array<i32: 1, 0, 0, 0>}} : (f32) -> ()
  }}) {{axes = ["spatial", "spatial"], domain = {domain}, init = [unit], name = "b{n}",
    maps = [affine_map<(d0, d1) -> (d0, 7 - d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
    operandSegmentSizes = array<i32: 2, {nothing}>, resultSegmentSizes = array<i32: 1, 0, 0, 0>
  }} : ({kind}, {kind}) -> {kind}"""
CHAIN = """
func.func private @chain(%v0: {kind}, %v1: {kind}) -> ({kinds}) attributes {{tir.prim_func}} {{{blocks}
  return {values} : {kinds}
}}
func.func @main(%x: {kind}, %y: {kind}) -> ({kinds}) {{
  %r:{count} = "relax.call_tir"(%x, %y) {{callee = @chain, operandSegmentSizes = array<i32: 2, {nothing}>,
    resultSegmentSizes = array<i32: {count}, 0, 0, 0>}} : ({kind}, {kind}) -> ({kinds})
  return {results} : {kinds}
}}"""


def chain(rng: np.random.Generator, rows: int | str, returned: list[int]) -> tuple[str, list[tuple[int, int]]]:
    """Return a module whose blocks read elements that other threads made, and what each block reads."""
    dims = f', #relax.dims<["{rows}", {COLUMNS}]>' if isinstance(rows, str) else ""
    kind = f"tensor<{'?' if dims else rows}x{COLUMNS}xf32{dims}>"
    domain = f'["{rows}", {COLUMNS}]' if dims else f"[{rows}, {COLUMNS}]"
    reads = [(int(rng.integers(max(0, n - 2), n)), int(rng.integers(n))) for n in range(2, 5)]
    blocks = "".join(
        BLOCK.format(n=n, first=first, second=second, domain=domain, kind=kind, nothing=NOTHING)
        for n, (first, second) in enumerate(reads, 2)
    )
    count = len(returned)
    text = CHAIN.format(
        kind=kind, kinds=", ".join([kind] * count), blocks=blocks, values=", ".join(f"%v{i}" for i in returned),
        count=count, nothing=NOTHING, results=", ".join(f"%r#{i}" for i in range(count)),
    )  # fmt: skip
    return text, reads


def words(s: Schedule, rng: np.random.Generator) -> None:
    """Compute the elements of each block in blocks of threads, or in threads."""
    for block in s.blocks():
        row, column = s.loops(block)
        axes = [("blockIdx.x", "threadIdx.x"), ("blockIdx.y", "blockIdx.x")][int(rng.integers(2))]
        s.bind(row, axes[0])
        s.bind(column, axes[1])


@pytest.mark.sample(12)
@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("inputs", [[], [0], [1, 0], [1, 1]], ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_each_nest_sees_what_those_before_it_write(target: str, inputs: list[int], seed: int) -> None:
    """So does a function that returns its inputs: copies are no reason to run its loops in one launch."""
    rng = np.random.default_rng([seed, len(inputs)])
    returned = [*inputs[:1], 4, *inputs[1:], *([3] if rng.random() < 0.5 else [])]
    rows = "n" if rng.random() < 0.3 else 5
    text, reads = chain(rng, rows, returned)
    with emulated("sm_80", races=True) as driver:
        with make_context(), ir.Location.unknown():
            model = mirlo.compile(
                ir.Module.parse(text), target, schedules={"chain": lambda s: words(s, rng)}, cache=False
            )
        for count in (5, 3) if rows == "n" else (5,):
            values = [rng.integers(-8, 8, (count, COLUMNS)).astype(np.float32) for _ in range(2)]
            found = model(*values)
            for first, second in reads:
                values.append(values[first][:, ::-1] * np.float32(0.5) + values[second])
            for one, i in zip(found if len(returned) > 1 else [found], returned, strict=True):
                np.testing.assert_array_equal(one, values[i])
    if target != "spirv":
        made = set(returned)
        for n in (4, 3, 2):
            made |= set(reads[n - 2]) if n in made else set()
        assert len(driver.launched) >= len(made - {0, 1})


SIZE = 64


@mirlo.prim_func
def one_block(x: T.Buffer[(SIZE,), T.f32], y: T.Out[(SIZE,), T.f32], z: T.Out[(SIZE,), T.f32]):
    total = T.alloc((1,), T.f32)
    y[0] = 7.0
    for i in T.thread_binding(SIZE - 1, "threadIdx.x"):
        total[0] = x[i + 1]
        y[i + 1] = x[i] + y[0]
    for i in T.thread_binding(SIZE, "threadIdx.x"):
        total[0] = y[SIZE - 1 - i]
        z[i] = total[0]


@mirlo.prim_func
def interleaved(x: T.Buffer[(SIZE,), T.f32], y: T.Out[(SIZE,), T.f32], z: T.Out[(SIZE,), T.f32]):
    tile = T.alloc((SIZE,), T.f32, scope="shared")
    scratch = T.alloc((1024, 1024), T.f32)
    for i in T.thread_binding(SIZE, "threadIdx.x"):
        tile[i] = x[i]
    for i in T.thread_binding(SIZE, "blockIdx.x"):
        scratch[i, 0] = x[i] * 2.0
    for i in T.thread_binding(SIZE, "blockIdx.x"):
        y[i] = scratch[SIZE - 1 - i, 0]
    for i in T.thread_binding(SIZE, "threadIdx.x"):
        z[i] = tile[SIZE - 1 - i] + y[SIZE - 1 - i]


@mirlo.prim_func
def dependent(x: T.Buffer[(SIZE,), T.f32], y: T.Out[(SIZE,), T.f32], z: T.Out[(SIZE,), T.f32]):
    own = T.alloc((1,), T.f32)
    for i in T.thread_binding(SIZE, "blockIdx.x"):
        own[0] = x[i]
        y[i] = own[0]
    for i in T.thread_binding(SIZE, "blockIdx.x"):
        own[0] = y[SIZE - 1 - i]
        z[i] = own[0]


@mirlo.script
def two_by_hand(x: R.Tensor[(SIZE,), R.f32]):
    y, z = R.call_tir(one_block, x)
    doubled, both = R.call_tir(interleaved, x)
    return y, z, doubled, both


@mirlo.script
def dependent_model(x: R.Tensor[(SIZE,), R.f32]):
    return R.call_tir(dependent, x)


@pytest.mark.parametrize("target", TARGETS)
def test_loops_that_use_the_same_memory_of_threads_are_one_launch(target: str) -> None:
    """Other loops are separate launches, in an order that respects dependences."""
    x = np.arange(SIZE, dtype=np.float32)
    with emulated("sm_80", races=True) as driver:
        y, z, doubled, both = np.stack(mirlo.compile(two_by_hand, target, cache=False)(x))
    np.testing.assert_array_equal(y, np.concatenate([[7], x[:-1] + 7]))
    np.testing.assert_array_equal(z, y[::-1])
    np.testing.assert_array_equal(doubled, 2 * x[::-1])
    np.testing.assert_array_equal(both, x[::-1] + doubled[::-1])
    if target != "spirv":
        assert len(driver.launched) == 2 + 3


@pytest.mark.parametrize("target", ["nvvm", "spirv"])
def test_blocks_of_one_launch_do_not_depend_on_one_another(target: str) -> None:
    with pytest.raises(mirlo.MirloError) as caught:
        mirlo.compile(dependent_model, target, cache=False)
    assert (
        "'@dependent': one launch runs loops that use the same memory of threads, and one of them uses 'y' that "
        "another one writes: blocks of threads do not wait for one another; write one loop"
    ) in str(caught.value)


SCATTERS = {"ScatterElements": (("d", "e", "f"), ("d", "e", "f")), "ScatterND": (("n", 2), ("n", "c"))}
"""The dims of the indices and of the updates."""


@pytest.mark.sample(6)
@pytest.mark.parametrize("is_static", [False, True])
@pytest.mark.parametrize("reduction", ["none", "add", "max"])
@pytest.mark.parametrize(("operator", "axis"), [("ScatterElements", 0), ("ScatterElements", 2), ("ScatterND", None)])
@pytest.mark.parametrize("target", TARGETS)
def test_scatters_share_their_updates_among_threads(
    target: str, operator: str, axis: int | None, reduction: str, is_static: bool
) -> None:
    """The device copies the operand; a row along the axis, or an element of a slice, is one thread's."""
    rng = np.random.default_rng(5)
    sizes = dict(zip("abcdefn", (5, 4, 3, 4, 3, 2, 9), strict=True))
    dims = dict(zip("xiu", (("a", "b", "c"), *SCATTERS[operator]), strict=True))
    shapes = {name: [sizes.get(str(dim), 2) for dim in listed] for name, listed in dims.items()}
    feeds = {name: rng.standard_normal(shapes[name]).astype(np.float32) for name in "xu"}
    feeds["i"] = rng.integers(-4, 4, shapes["i"]) if axis is None else rng.integers(-9, 9, shapes["i"])
    inputs = {name: (I64 if name == "i" else F32, shapes[name] if is_static else dims[name]) for name in "xiu"}
    attributes = {"reduction": reduction, **({} if axis is None else {"axis": axis})}
    model = make_model([node(operator, "x i u", "y", **attributes)], inputs, ["y"])
    with emulated("sm_80", races=True) as driver:
        found = mirlo.compile(model, target, cache=False).run(feeds)["y"]
    np.testing.assert_allclose(found, mirlo.compile(model).run(feeds)["y"], rtol=1e-6, atol=1e-6)
    if target != "spirv":
        assert len(driver.launched) == 1, "the device copies the operand without a kernel"


N, M = T.dims("N", "M")


@mirlo.prim_func
def parallel_and_serial(x: T.Buffer[(N, M), T.f32], y: T.Out[(N, M), T.f32], z: T.Out[(N,), T.f32]):
    for i in T.parallel(N):
        for j in T.parallel(M):
            y[i, j] = x[i, j] + 1.0
    for i in T.serial(N):
        z[i] = y[i, 0]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(3, 5), (40, 7), (0, 4), (4, 0)])
def test_parallel_loops_of_dynamic_extents(target: str, shape: tuple[int, int]) -> None:
    """Each loop that no rule has bound is a launch: the parallel one of many threads, the serial one of one."""
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)

    @mirlo.script
    def main(x: R.Tensor[("N", "M"), R.f32]):  # noqa: F821, UP037
        return R.call_tir(parallel_and_serial, x)

    with emulated("sm_80", races=True) as driver:
        y, z = mirlo.compile(main, target, cache=False)(x)
    np.testing.assert_array_equal(y, x + 1)
    if x.size:
        np.testing.assert_array_equal(z, x[:, 0] + 1)
        assert target == "spirv" or len(driver.launched) == 2


ROWS = 3


@mirlo.prim_func
def private_copies(x: T.Buffer[(ROWS,), T.f32], y: T.Out[(ROWS,), T.f32]):
    own = T.alloc((ROWS,), T.f32)
    for i in T.serial(ROWS):
        own[i] = x[i]
    for i in T.serial(ROWS):
        y[i] = own[i]


@pytest.mark.parametrize("target", TARGETS)
def test_private_memory_is_not_copied_by_the_device(target: str) -> None:
    @mirlo.script
    def main(x: R.Tensor[(ROWS,), R.f32]):
        return R.call_tir(private_copies, x)

    x = np.arange(ROWS, dtype=np.float32)
    with emulated("sm_80", races=True):
        np.testing.assert_array_equal(mirlo.compile(main, target, cache=False)(x), x)


VIEWED = """
func.func private @kernel(%x: memref<2x4xf32>, %y: memref<2x4xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %own = memref.alloca() : memref<2x4xf32>
  %flat = memref.collapse_shape %own [[0, 1]] : memref<2x4xf32> into memref<8xf32>
  %from = memref.collapse_shape %x [[0, 1]] : memref<2x4xf32> into memref<8xf32>
  %to = memref.collapse_shape %y [[0, 1]] : memref<2x4xf32> into memref<8xf32>
  scf.for %i = %c0 to %c8 step %c1 {
    %0 = memref.load %from[%i] : memref<8xf32>
    memref.store %0, %flat[%i] : memref<8xf32>
  }
  scf.for %i = %c0 to %c8 step %c1 {
    %0 = memref.load %flat[%i] : memref<8xf32>
    memref.store %0, %to[%i] : memref<8xf32>
  }
  return
}
"""


def test_views_of_private_memory_are_in_its_kernel() -> None:
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(VIEWED)
        Pipeline("outline-kernels").run(module)
        kernel = str(module).partition("gpu.func")[2]
        assert kernel.count("memref.alloca") == 1 and "gpu.func" not in kernel
        assert "memref.alloca" not in str(module).partition("gpu.func")[0]
