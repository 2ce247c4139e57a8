"""Loops that a tensor intrinsic does not fit, and implementations that do not fit its description, are errors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import mirlo
import mirlo.extend.ops
from mirlo import R, Schedule, T
from mirlo.extend.schedules import ScheduleError, tensor_intrin

N, TILE = 32, 8


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


@mirlo.prim_func(buffers=True)
def too_wide(a: T.Buffer[(TILE,), T.f32], c: T.Out[(2 * TILE,), T.f32]):
    for j in T.serial(0, 2 * TILE):
        c[j] = a[0]


@mirlo.prim_func(buffers=True)
def too_few(c: T.Out[(TILE,), T.f32]):
    for j in T.serial(0, TILE):
        c[j] = 0.0


@mirlo.prim_func
def indices(a: T.Buffer[(TILE,), T.f32], c: T.Out[(TILE,), T.f32]):
    for j in T.grid(TILE):
        with T.block("index"):
            vj = T.axes("S", j)
            c[vj] = a[vj] * T.f32(vj)


@mirlo.prim_func
def copies(a: T.Buffer[(TILE,), T.f64], c: T.Out[(TILE,), T.f64]):
    for j in T.grid(TILE):
        with T.block("copy"):
            vj = T.axes("S", j)
            c[vj] = a[vj]


@mirlo.prim_func(buffers=True)
def copies_by_hand(a: T.Buffer[(TILE,), T.f64], c: T.Out[(TILE,), T.f64]):
    for j in T.serial(0, TILE):
        c[j] = a[j]


@mirlo.prim_func
def transposed(a: T.Buffer[(4, 4), T.f32], c: T.Out[(4, 4), T.f32]):
    for i, j in T.grid(4, 4):
        with T.block("product"):
            vi, vj = T.axes("SS", i, j)
            c[vi, vj] = a[vi, vj] * a[vj, vi]


@mirlo.prim_func(buffers=True)
def transposed_by_hand(a: T.Buffer[(4, 4), T.f32], c: T.Out[(4, 4), T.f32]):
    for i in T.serial(0, 4):
        for j in T.serial(0, 4):
            c[i, j] = a[i, j] * a[j, i]


@mirlo.prim_func
def a_part(a: T.Buffer[(TILE,), T.f32], c: T.Out[(TILE,), T.f32]):
    for j in T.grid(TILE - 1):
        with T.block("square"):
            vj = T.axes("S", j)
            c[vj] = a[vj] * a[vj]


for name, means, does in (
    ("squares", squares, squares_by_hand), ("indices", indices, squares_by_hand), ("blocks", squares, squares),
    ("copies", copies, copies_by_hand), ("transposed", transposed, transposed_by_hand),
    ("a_part", a_part, squares_by_hand),
):  # fmt: skip
    tensor_intrin(f"fits.{name}", means, does)


@mirlo.prim_func
def blocks(x: T.Buffer[(N,), T.f32], y: T.Out[(N,), T.f32], z: T.Out[(4, 4), T.f32]):
    more = T.alloc((N,), T.f32)
    p = T.alloc((4, 4), T.f32)
    q = T.alloc((4, 4), T.f32)
    shifted = T.alloc((N,), T.f32)
    numbered = T.alloc((N,), T.f32)
    for j in T.grid(N):
        with T.block("more"):
            vj = T.axes("S", j)
            more[vj] = x[vj] + 1.0
    for j in T.grid(N):
        with T.block("shifted"):
            vj = T.axes("S", j)
            shifted[vj] = x.at(vj - 1, outside=7.0) * x.at(vj - 1, outside=7.0)
    for j in T.grid(N):
        with T.block("numbered"):
            vj = T.axes("S", j)
            numbered[vj] = shifted[vj] * T.f32(vj)
    for j in T.grid(N):
        with T.block("square"):
            vj = T.axes("S", j)
            y[vj] = more[vj] * more[vj]
    for i, j in T.grid(4, 4):
        with T.block("p"):
            vi, vj = T.axes("SS", i, j)
            p[vi, vj] = numbered[4 * vi + vj]
    for i, j in T.grid(4, 4):
        with T.block("q"):
            vi, vj = T.axes("SS", i, j)
            q[vi, vj] = numbered[4 * vi + vj] + 1.0
    for i, j in T.grid(4, 4):
        with T.block("product"):
            vi, vj = T.axes("SS", i, j)
            z[vi, vj] = p[vi, vj] * q[vj, vi]


@mirlo.script
def model(x: R.Tensor[(N,), R.f32]):
    y, z = R.call_tir(blocks, x)
    return y, z


def run(primitives: Callable[[Schedule], object]) -> None:
    """Compare the results of the model with these primitives with those of numpy."""
    x = np.random.default_rng(0).standard_normal(N, dtype=np.float32)
    square, product = mirlo.compile(model, schedules={"blocks": primitives}, cache=False)(x)
    numbered = np.concatenate([[49.0], x[:-1] ** 2]) * np.arange(N)
    p = numbered[:16].reshape(4, 4)
    np.testing.assert_allclose(square, (x + 1) ** 2, rtol=1e-5)
    np.testing.assert_allclose(product, p * (p + 1).T, rtol=1e-5)


def by(block: str, name: str) -> Callable[[Schedule], list[str]]:
    """Return primitives that compute a block by an intrinsic; they return the loops around it, and its own."""

    def primitives(s: Schedule) -> list[str]:
        loops = s.split(s.loops(block)[0], (None, TILE))
        s.tensorize(loops[1], f"fits.{name}")
        return loops

    return primitives


MISFITS: dict[str, Callable[[Schedule], object]] = {
    "'shifted' reads 'x' beyond its edges, where 'fits.squares' would read other memory": by("shifted", "squares"),
    r"'numbered' computes with its index 8\*numbered_i_0 \+ numbered_i_1, 'fits.indices' with": (
        by("numbered", "indices")
    ),
    "'square' computes elements of 'more', which is inlined": lambda s: (
        s.compute_inline("more"), by("square", "squares")(s)
    ),
    "'square' computes elements of 'more', which is inlined: 'fits.squares'": lambda s: (
        by("square", "squares")(s), s.compute_inline("more")
    ),
    "'copy_of_x' is a copy: 'fits.squares' is for blocks": lambda s: by(s.cache_read("more", "x"), "squares")(s),
    "'fits.transposed' reads 'a' several times, 'product' ": lambda s: s.tensorize("product_i", "fits.transposed"),
    "'a_part', which describes 'fits.a_part', is not one block": by("square", "a_part"),
    "'squares', which implements 'fits.blocks', is blocks, expected loops": by("square", "blocks"),
    "vectorize: 'square_i_1' is computed by 'fits.squares'": lambda s: s.vectorize(by("square", "squares")(s)[1]),
}  # fmt: skip


@pytest.mark.parametrize("message", MISFITS)
def test_loops_that_an_intrinsic_does_not_fit(message: str) -> None:
    with pytest.raises(mirlo.MirloError, match=message.replace("copy_of_x", "x_copy")):
        run(MISFITS[message])


def test_a_copy_of_another_type() -> None:
    @mirlo.prim_func
    def copied(x: T.Buffer[(TILE,), T.f32], y: T.Out[(TILE,), T.f32]):
        for j in T.grid(TILE):
            with T.block("copied"):
                vj = T.axes("S", j)
                y[vj] = x[vj]

    s = Schedule.of(copied, mirlo.extend.ops.TensorType.of((TILE,), "f32"))
    with pytest.raises(ScheduleError, match="tensorize: 'x' is f32, expected the f64 of 'fits.copies'"):
        s.tensorize("copied_i", "fits.copies")


AFTER: dict[str, Callable[[Schedule, list[str]], object]] = {
    "split": lambda s, loops: s.split(loops[0], (None, 2)),
    "rename": lambda s, loops: s.parallel(s.split(loops[0], (2, 2))[0]),
    "read a copy": lambda s, loops: s.compute_at(s.cache_read("square", "more", "local"), loops[0]),
    "write a copy": lambda s, loops: s.reverse_compute_at(s.cache_write("square", "local"), loops[0]),
    "both": lambda s, loops: (s.cache_read("square", "more"), s.cache_write("square")),
}


@pytest.mark.parametrize("primitives", AFTER)
def test_primitives_after_tensorize(primitives: str) -> None:
    """The intrinsic takes the loops and buffers that there are in the end."""
    run(lambda s: AFTER[primitives](s, by("square", "squares")(s)))


@pytest.mark.parametrize(
    ("does", "message"),
    [
        (
            too_wide,
            r"'fits.bad': .* with the parameters of its description, squares.*found too_wide.* c: Out\[\(16,\)",
        ),
        (too_few, r"found too_few\(c: Out\[\(8,\), f32\]\)"),
        (lambda a, c: None, "tensor intrinsic 'fits.bad': expected a @mirlo.prim_func, found <function"),
    ],
)
def test_implementations_that_do_not_fit(does: mirlo.extend.PrimFunc, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        tensor_intrin("fits.bad", squares, does)
