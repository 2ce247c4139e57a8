"""Tiles of any size for instructions: axes that are extended to multiples, and what messages of `tensorize` advise."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mirlo
from mirlo import R, Schedule, T
from mirlo.extend.ops import TensorType
from mirlo.extend.schedules import ScheduleError, tensor_intrin

TILE = 8
M, N, K = T.dims("M", "N", "K")


@mirlo.prim_func
def means(a: T.Buffer[(TILE, TILE), T.f32], b: T.Buffer[(TILE, TILE), T.f32], c: T.Out[(TILE, TILE), T.f32]):
    for i, j, k in T.grid(TILE, TILE, TILE):
        with T.block("mma"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]


@mirlo.prim_func(buffers=True)
def does(a: T.Buffer[(TILE, TILE), T.f32], b: T.Buffer[(TILE, TILE), T.f32], c: T.Out[(TILE, TILE), T.f32]):
    for i, j, k in T.grid(TILE, TILE, TILE):
        c[i, j] += a[i, k] * b[k, j]


@mirlo.prim_func
def squares(a: T.Buffer[(TILE,), T.f32], c: T.Out[(TILE,), T.f32]):
    for j in T.grid(TILE):
        with T.block("square"):
            vj = T.axes("S", j)
            c[vj] = a[vj] * a[vj]


@mirlo.prim_func(buffers=True)
def squares_by_hand(a: T.Buffer[(TILE,), T.f32], c: T.Out[(TILE,), T.f32]):
    for j in T.serial(0, TILE):
        c[j] = a[j] * a[j]


tensor_intrin("any_size.mma", means, does)
tensor_intrin("any_size.squares", squares, squares_by_hand)


@mirlo.prim_func
def product(a: T.Buffer[(M, K), T.f32], b: T.Buffer[(K, N), T.f32], c: T.Out[(M, N), T.f32]):
    for i, j, k in T.grid(M, N, K):
        with T.block("matmul"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]


def model(rows: Any, depth: Any, columns: Any) -> Any:
    @mirlo.script
    def multiplied(a: R.Tensor[(rows, depth), R.f32], b: R.Tensor[(depth, columns), R.f32]):
        return R.call_tir(product, a, b)

    return multiplied


def whole(s: Schedule) -> None:
    """Copy operands and the result as a whole."""
    s.pad_einsum("matmul", (TILE, TILE, TILE))
    _, _, ko, ii, _, _ = s.tile(s.loops("matmul"), (TILE, TILE, TILE))
    s.decompose_reduction("matmul", ko)
    s.tensorize(ii, "any_size.mma")


def by_tiles(s: Schedule) -> None:
    """Copy one tile at a time."""
    left, right, out = s.pad_einsum("matmul", (TILE, TILE, TILE))
    _, jo, ko, ii, _, _ = s.tile(s.loops("matmul"), (TILE, TILE, TILE))
    s.compute_at(left, ko)
    s.compute_at(right, ko)
    s.reverse_compute_at(out, jo)
    s.decompose_reduction("matmul", ko)
    s.tensorize(ii, "any_size.mma")


SIZES: dict[tuple[Any, Any, Any], tuple[tuple[int, int, int], ...]] = {
    (13, 27, 21): ((13, 27, 21),),
    (16, 24, 8): ((16, 24, 8),),
    ("m", 27, 21): ((0, 27, 21), (5, 27, 21), (8, 27, 21), (13, 27, 21)),
    ("m", 27, "n"): ((5, 27, 0), (5, 27, 8), (9, 27, 13)),
    ("m", "k", "n"): ((5, 0, 3), (5, 8, 3), (16, 13, 8)),
}


@pytest.mark.parametrize("target", ("llvm", "c"))
@pytest.mark.parametrize("primitives", (whole, by_tiles))
@pytest.mark.parametrize("shape", SIZES)
def test_products_of_any_size(shape: tuple[Any, Any, Any], primitives: Callable[[Schedule], None], target: str) -> None:
    """Padding keeps results equal; as a whole only where strides are known, else the message says how."""
    if primitives is whole and isinstance(shape[2], str):  # b, or a and b, have rows of dynamic length
        with pytest.raises(mirlo.MirloError, match=r"takes tiles whose strides are known; .* in a loop outside"):
            mirlo.compile(model(*shape), schedules={"product": primitives}, target=target, cache=False, jobs=1)
        return
    executable = mirlo.compile(model(*shape), schedules={"product": primitives}, target=target, cache=False, jobs=1)
    for rows, depth, columns in SIZES[shape]:
        random = np.random.default_rng(0)
        a, b = (random.integers(-4, 5, size).astype(np.float32) for size in ((rows, depth), (depth, columns)))
        np.testing.assert_array_equal(executable(a, b), a @ b)


@mirlo.prim_func
def shifted(x: T.Buffer[(32,), T.f32], y: T.Out[(32,), T.f32]):
    for j in T.grid(32):
        with T.block("shifted"):
            vj = T.axes("S", j)
            y[vj] = x.at(vj - 1, outside=7.0) * x.at(vj - 1, outside=7.0)


@mirlo.prim_func
def squared(x: T.Buffer[(30,), T.f32], y: T.Out[(30,), T.f32]):
    for j in T.grid(30):
        with T.block("squared"):
            vj = T.axes("S", j)
            y[vj] = x[vj] * x[vj]


def computed(function: Any, primitives: Callable[[Schedule], object]) -> np.ndarray:
    size = function.parameters[0].shape[0]

    @mirlo.script
    def called(x: R.Tensor[(size,), R.f32]):
        return R.call_tir(function, x)

    executable = mirlo.compile(called, schedules={function.name: primitives}, cache=False, jobs=1)
    return np.asarray(executable(np.arange(size, dtype=np.float32)))


def by_eight(s: Schedule, block: str) -> None:
    s.tensorize(s.split(s.loops(block)[0], (None, TILE))[1], "any_size.squares")


def test_a_tail_is_padded_as_the_message_advises() -> None:
    with pytest.raises(mirlo.MirloError, match=r"leaves out points .* \(pad_einsum\) before they are split"):
        computed(squared, lambda s: by_eight(s, "squared"))

    def padded(s: Schedule) -> None:
        s.pad_einsum("squared", (TILE,))
        by_eight(s, "squared")

    np.testing.assert_array_equal(computed(squared, padded), np.arange(30.0) ** 2)


def test_edges_are_copied_as_the_message_advises() -> None:
    with pytest.raises(mirlo.MirloError, match=r"beyond its edges.* let it read a copy with a border \(pad\)"):
        computed(shifted, lambda s: by_eight(s, "shifted"))

    def bordered(s: Schedule) -> None:
        s.pad("shifted", "x", (0,))
        by_eight(s, "shifted")

    np.testing.assert_array_equal(computed(shifted, bordered), np.concatenate([[49.0], np.arange(31.0) ** 2]))


@mirlo.prim_func
def largest(a: T.Buffer[(5, 6), T.f32], c: T.Out[(5,), T.f32]):
    for i, j in T.grid(5, 6):
        with T.block("largest"):
            vi, vj = T.axes("SR", i, j)
            with T.init():
                c[vi] = -1e30
            c[vi] = max(c[vi], a[vi, vj])


@mirlo.prim_func
def divided(a: T.Buffer[(5,), T.i32], b: T.Buffer[(5,), T.i32], c: T.Out[(5,), T.i32]):
    for i in T.grid(5):
        with T.block("divided"):
            vi = T.axes("S", i)
            c[vi] = a[vi] // b[vi]


@mirlo.prim_func
def part(a: T.Buffer[(9,), T.f32], c: T.Out[(5,), T.f32]):
    for i in T.grid(5):
        with T.block("part"):
            vi = T.axes("S", i)
            c[vi] = a[vi] + 1.0


REFUSED: tuple[tuple[Any, tuple[TensorType, ...], Callable[[Schedule, str], object], str], ...] = (
    (squared, (TensorType.of((30,), "f32"),), lambda s, b: s.pad_einsum(b, (8, 8)), "has 1 axes: expected a number"),
    (squared, (TensorType.of((30,), "f32"),), lambda s, b: s.pad_einsum(b, (0,)), "from 1 up for each, found [0]"),
    (
        squared, (TensorType.of((30,), "f32"),),
        lambda s, b: (s.split(s.loops(b)[0], (None, 8)), s.pad_einsum(b, (8,))), "pad it first",
    ),
    (largest, (TensorType.of((5, 6), "f32"),), lambda s, b: s.pad_einsum(b, (1, 8)), "adds more than products"),
    (
        divided, (TensorType.of((5,), "i32"),) * 2, lambda s, b: s.pad_einsum(b, (8,)),
        "divides integers ('arith.",
    ),
    (part, (TensorType.of((9,), "f32"),), lambda s, b: s.pad_einsum(b, (8,)), "accesses a part of dim 0 of 'a[9]'"),
)  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[3])
def test_what_cannot_be_padded(case: tuple[Any, Any, Any, str]) -> None:
    function, types, primitives, message = case
    s = Schedule.of(function, *types)
    with pytest.raises(ScheduleError, match=re.escape(message)):
        primitives(s, s.blocks()[0])


def test_no_axis_needs_padding() -> None:
    """A maximum may be extended along the axes that it does not reduce."""
    s = Schedule.of(largest, TensorType.of((5, 6), "f32"))
    copy, out = s.pad_einsum("largest", (4, 6))
    assert [s.extent(loop) for loop in s.loops("largest")] == [8, 6]
    assert [s.extent(loop) for loop in s.loops(copy)] == [8, 6]
    assert [s.extent(loop) for loop in s.loops(out)] == [5]
