"""A prim function whose blocks need different loops: a product, a reduction of rows, and elementwise ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import mirlo
from mirlo import R, Schedule, T


@mirlo.prim_func
def staged(a: T.Buffer[(9, 24), T.f32], b: T.Buffer[(24, 40), T.f32], c: T.Out[(9, 40), T.f32]):
    scaled = T.alloc((9, 24), T.f32)
    product = T.alloc((9, 40), T.f32)
    total = T.alloc((9,), T.f32)
    for i, k in T.grid(9, 24):
        with T.block("scale"):
            vi, vk = T.axes("SS", i, k)
            scaled[vi, vk] = a[vi, vk] * 2.0
    for i, j, k in T.grid(9, 40, 24):
        with T.block("product"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                product[vi, vj] = 0.0
            product[vi, vj] += scaled[vi, vk] * b[vk, vj]
    for i, j in T.grid(9, 40):
        with T.block("total"):
            vi, vj = T.axes("SR", i, j)
            with T.init():
                total[vi] = 0.0
            total[vi] += product[vi, vj]
    for i, j in T.grid(9, 40):
        with T.block("divide"):
            vi, vj = T.axes("SS", i, j)
            c[vi, vj] = product[vi, vj] - total[vi]


@mirlo.script
def staged_model(a: R.Tensor[(9, 24), R.f32], b: R.Tensor[(24, 40), R.f32]):
    return R.call_tir(staged, a, b)


def assert_staged(primitives: Any, target: str = "llvm") -> None:
    """Compare the result of the function, with these primitives, with that of numpy."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((9, 24), (24, 40)))
    wanted = 2 * a @ b
    found = mirlo.compile(staged_model, target, schedules={"staged": primitives}, cache=False)(a, b)
    np.testing.assert_array_equal(found, wanted - wanted.sum(1, keepdims=True))


def random_primitive(s: Schedule, rng: np.random.Generator, rules: Mapping[str, str]) -> None:
    block = str(rng.choice([name for name in s.blocks() if s.loops(name)]))
    loop = str(rng.choice(s.loops(block)))
    anywhere = str(rng.choice([name for each in s.blocks() for name in s.loops(each)]))
    primitives: tuple[Callable[[], object], ...] = (
        lambda: s.apply_rule(rules[block], [block]) if block in rules else None,
        lambda: s.apply_rule(rules[block], [block], lanes=8) if rules.get(block) == "elementwise" else None,
        lambda: s.split(loop, (None, int(rng.integers(2, 9)))),
        lambda: s.reorder(loop, str(rng.choice(s.loops(block)))),
        lambda: s.vectorize(s.loops(block)[-1]),
        lambda: s.compute_at(block, anywhere),
        lambda: s.reverse_compute_at(block, anywhere),
        lambda: s.cache_write(block),
        lambda: s.decompose_reduction(block, loop),
    )
    primitives[int(rng.integers(len(primitives)))]()
