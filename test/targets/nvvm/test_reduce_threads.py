"""Loops of reductions bound to threads: random schedules, all combiners and types, kernels of several reductions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import ml_dtypes
import numpy as np
import pytest
from devices import needs_vulkan
from dynamic_programs import CASES, arrays_of, schedule_of
from random_primitives import apply_random_primitives

import mirlo
from mirlo import Schedule
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.extend.schedules import ScheduleError
from mirlo.testing.ptx.driver import emulated

NVVM = "nvvm{chip=sm_80}"
TARGETS = [NVVM, pytest.param("spirv", marks=needs_vulkan())]
REDUCE = """
func.func private @reduce(%x: tensor<{rows}x{columns}x{kind}>) -> tensor<{rows}x{kind}> attributes {{tir.prim_func}} {{
  %y = "tir.block"(%x) ({{
  ^bb0(%i: index, %j: index, %value: {kind}, %total: {kind}):
    %next = {op} %total, %value : {kind}
    "tir.yield"(%next) {{operandSegmentSizes = array<i32: 1, 0, 0, 0>}} : ({kind}) -> ()
  }}) {{axes = ["spatial", "reduce"], domain = [{rows}, {columns}], init = [{init} : {kind}], name = "total",
    maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>],
    operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
    resultSegmentSizes = array<i32: 1, 0, 0, 0>}} : (tensor<{rows}x{columns}x{kind}>) -> tensor<{rows}x{kind}>
  return %y : tensor<{rows}x{kind}>
}}
func.func @main(%x: tensor<{rows}x{columns}x{kind}>) -> tensor<{rows}x{kind}> {{
  %y = "relax.call_tir"(%x) {{callee = @reduce,
    operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
    resultSegmentSizes = array<i32: 1, 0, 0, 0>}} : (tensor<{rows}x{columns}x{kind}>) -> tensor<{rows}x{kind}>
  return %y : tensor<{rows}x{kind}>
}}
"""
FLOATS = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
INTEGERS = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}
OPS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "arith.addf": partial(np.add.reduce, axis=1), "arith.mulf": partial(np.multiply.reduce, axis=1),
    "arith.maximumf": partial(np.maximum.reduce, axis=1), "arith.minimumf": partial(np.minimum.reduce, axis=1),
    "arith.addi": partial(np.add.reduce, axis=1), "arith.muli": partial(np.multiply.reduce, axis=1),
    "arith.maxsi": partial(np.maximum.reduce, axis=1), "arith.minsi": partial(np.minimum.reduce, axis=1),
    "arith.maxui": partial(np.maximum.reduce, axis=1), "arith.minui": partial(np.minimum.reduce, axis=1),
    "arith.andi": partial(np.bitwise_and.reduce, axis=1), "arith.ori": partial(np.bitwise_or.reduce, axis=1),
    "arith.xori": partial(np.bitwise_xor.reduce, axis=1),
}  # fmt: skip
SHAPES = ((1, 1), (3, 200), (9, 64), (2, 700))
"""Rows and columns: less than a thread each, tails, whole warps, several elements a thread."""
COMBINERS = [
    (op, kind, SHAPES[(place + number) % len(SHAPES)])
    for place, op in enumerate(OPS)
    for number, kind in enumerate(FLOATS if op.endswith("f") else INTEGERS)
]
"""Each combiner of each type, and with all shapes; each type with all shapes, too."""


def across_threads(s: Schedule, rng: np.random.Generator) -> None:
    """Reduce rows over threads: of a warp, of several, or of half of one; in any order of the loops."""
    row, column = s.loops("total")
    threads, lanes, steps = (int(rng.choice(each)) for each in ((8, 24, 32, 64, 96), (1, 2, 4), (1, 3)))
    if rng.random() < 0.5:
        outer, unrolled, thread, lane = s.split(column, (None, steps, threads, lanes))
    else:
        thread, outer, unrolled, lane = s.split(column, (threads, None, steps, lanes))
    s.unroll(unrolled)
    s.vectorize(lane)
    if rng.random() < 0.7:
        row, own = s.split(row, (None, int(rng.choice([2, 3, 4]))))
        # Rows are the threads that follow one another, or those that reduce are.
        axes = ["threadIdx.y", "threadIdx.x"]
        rng.shuffle(axes)
        s.bind(own, axes[0])
        s.bind(thread, axes[1])
    elif rng.random() < 0.5 and outer != thread and isinstance(s.extent(outer), int):
        s.bind(outer, "threadIdx.y")
        s.bind(thread, "threadIdx.x")
    else:
        s.bind(thread, "threadIdx.x")
    s.bind(row, "blockIdx.x")


def _across_two_axes(s: Schedule, extents: tuple[int | None, ...], axes: tuple[str, str]) -> None:
    row, column = s.loops("total")
    s.bind(row, "blockIdx.x")
    for loop, axis in zip(s.split(column, extents), axes, strict=True):
        s.bind(loop, axis)


@pytest.mark.parametrize("axes", [("threadIdx.y", "threadIdx.x"), ("threadIdx.x", "threadIdx.y")], ids=str)
@pytest.mark.parametrize("columns", [1, 16, 64, 96])
def test_threads_of_two_axes_reduce_a_row(columns: int, axes: tuple[str, str]) -> None:
    text = REDUCE.format(rows=3, columns=columns, kind="i32", op="arith.addi", init=1)
    x = np.arange(3 * columns, dtype=np.int32).reshape(3, columns)
    with emulated("sm_80", races=True), make_context():
        schedule = partial(_across_two_axes, extents=(None, min(columns, 32)), axes=axes)
        f = mirlo.compile(ir.Module.parse(text), NVVM, schedules={"reduce": schedule}, cache=False)
        np.testing.assert_array_equal(f(x), x.sum(1) + 1)


@pytest.mark.sample(21)
@pytest.mark.parametrize(("op", "kind", "shape"), COMBINERS, ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_all_combiners(target: str, op: str, kind: str, shape: tuple[int, int]) -> None:
    if target == "spirv" and kind == "f64":
        pytest.skip("rounded differently by Mesa's software device")
    rng = np.random.default_rng([*shape, len(op), len(kind)])
    init = rng.integers(1, 4)
    text = REDUCE.format(
        rows=shape[0], columns=shape[1], kind=kind, op=op, init=float(init) if kind in FLOATS else init
    )
    # Small integers: their sums are exact in any order. Products of ones and a few twos stay small.
    products = op.startswith("arith.mul")
    values = 1 + (rng.random(shape) < 0.02) if products else rng.integers(0 if "u" in op[-3:] else -3, 4, shape)
    x = values.astype(FLOATS.get(kind) or INTEGERS[kind])
    combined = OPS[op](np.concatenate([np.full((shape[0], 1), init, x.dtype), x], 1).astype(wide(x.dtype)))
    with emulated("sm_80", races=True), make_context():
        f = mirlo.compile(
            ir.Module.parse(text), target, schedules={"reduce": partial(across_threads, rng=rng)}, cache=False
        )
        np.testing.assert_array_equal(f(x), combined.astype(x.dtype))


def wide(kind: np.dtype) -> np.dtype:
    """Return a type in which sums of small integers are exact; integers wrap around in their own."""
    return np.dtype(np.float64 if kind.kind in "fV" else kind)


@pytest.mark.sample(0)
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("target", TARGETS)
def test_random_schedules_with_threads(target: str, seed: int) -> None:
    """Those that are accepted have the results of plain loops, without races."""
    rng = np.random.default_rng(seed)
    name = str(rng.choice(list(CASES), p=[0.8, 0.2]))
    model, _, wanted = CASES[name]
    with emulated("sm_80", races=True):
        while True:
            s = schedule_of(name)
            apply_random_primitives(s, rng, int(rng.integers(0, 3)), threads=True)
            if not s.trace.calls:
                continue
            try:
                f = mirlo.compile(model, target, schedules={name: s.trace}, cache=False)
                break
            except mirlo.MirloError as error:
                assert is_refused(error), f"{error}\n{s.trace}"
        for shape in ((0, 1, 0), (3, 9, 5), (6, 35, 34)):
            arrays = arrays_of(name, shape, rng)
            found = f(*arrays)
            results = found if isinstance(found, (list, tuple)) else [found]
            for one, other in zip(results, wanted(*arrays), strict=True):
                np.testing.assert_array_equal(one, other, err_msg=f"{shape} {s.trace}")


def is_refused(error: BaseException | None) -> bool:
    """Return whether an error says that the schedule is not possible."""
    while error is not None:
        if isinstance(error, ScheduleError) or "loops over" in str(error):
            return True
        error = error.__cause__
    return False
