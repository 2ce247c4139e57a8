"""Words on loops whose sizes only the run time knows, and on tails: masks, peeled loops, accumulators in registers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from random_words import apply_random_words

import mirlo
from mirlo import R, Schedule, T
from mirlo.extend import ScheduleError, TensorType

N, M, K = T.dims("N", "M", "K")


@mirlo.prim_func
def rows(a: T.Buffer[(N, M), T.f32], c: T.Out[(N, M), T.f32], d: T.Out[(M, N), T.f32]):
    total = T.alloc((N,), T.f32)
    largest = T.alloc((N,), T.f32)
    for i, j in T.grid(N, M):
        with T.block("total"):
            vi, vj = T.axes("SR", i, j)
            with T.init():
                total[vi] = 1.0
            total[vi] += a[vi, vj]
    for i, j in T.grid(N, M):
        with T.block("largest"):
            vi, vj = T.axes("SR", i, j)
            with T.init():
                largest[vi] = -100.0
            largest[vi] = T.max(largest[vi], a[vi, vj] * total[vi])
    for i, j in T.grid(N, M):
        with T.block("result"):
            vi, vj = T.axes("SS", i, j)
            c[vi, vj] = a[vi, vj] * total[vi] + largest[vi] + a.at(vi, vj - 1, outside=7.0)
    for j, i in T.grid(M, N):
        with T.block("transposed"):
            vj, vi = T.axes("SS", j, i)
            d[vj, vi] = a[vi, vj] + T.f32(vj)


@mirlo.prim_func
def product(
    a: T.Buffer[(N, K), T.f32], b: T.Buffer[(K, M), T.f32], ids: T.Buffer[(N,), T.i64], c: T.Out[(N, M), T.f32]
):
    scaled = T.alloc((N, K), T.f32)
    summed = T.alloc((N, M), T.f32)
    for i, k in T.grid(N, K):
        with T.block("scale"):
            vi, vk = T.axes("SS", i, k)
            scaled[vi, vk] = a[vi, vk] * 2.0
    for i, j, k in T.grid(N, M, K):
        with T.block("matmul"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                summed[vi, vj] = 1.0
            summed[vi, vj] += scaled[vi, vk] * b[vk, vj]
    for i, j in T.grid(N, M):
        with T.block("pick"):
            vi, vj = T.axes("SS", i, j)
            c[vi, vj] = T.max(summed[ids[vi], vj], summed[vi, vj])


SIZES = ("n", "m", "k")


@mirlo.script
def rows_model(a: R.Tensor[("n", "m"), R.f32]):  # noqa: UP037, F821
    return R.call_tir(rows, a)


@mirlo.script
def product_model(a: R.Tensor[("n", "k"), R.f32], b: R.Tensor[("k", "m"), R.f32], ids: R.Tensor[("n",), R.i64]):  # noqa: UP037, F821
    return R.call_tir(product, a, b, ids)


def wanted_rows(a: np.ndarray) -> list[np.ndarray]:
    total = a.sum(1, keepdims=True) + 1
    largest = (a * total).max(1, keepdims=True, initial=-100)
    before = np.concatenate([np.full((len(a), 1), 7, np.float32), a], 1)[:, : a.shape[1]]
    return [a * total + largest + before, (a + np.arange(a.shape[1], dtype=np.float32)).T]


def wanted_product(a: np.ndarray, b: np.ndarray, ids: np.ndarray) -> list[np.ndarray]:
    summed = 2 * a @ b + 1
    return [np.maximum(summed[ids], summed)]


CASES = {"rows": (rows_model, rows, wanted_rows), "product": (product_model, product, wanted_product)}
PLAIN = "builtin.module(schedule,lower-loops,lower-intrinsics,plan-memory)"
SHAPES = ((0, 1, 0), (1, 0, 1), (1, 1, 1), (3, 2, 5), (8, 16, 4), (7, 17, 9), (20, 33, 6))


def arrays_of(name: str, shape: tuple[int, int, int], rng: np.random.Generator) -> list[np.ndarray]:
    """Return inputs of these sizes: small integers, whose sums are exact in any order."""
    n, m, k = shape
    shapes = {"rows": [(n, m)], "product": [(n, k), (k, m)]}[name]
    arrays = [rng.integers(-4, 5, each).astype(np.float32) for each in shapes]
    return [*arrays, rng.integers(0, n, n)] if name == "product" else arrays


def check(name: str, words: Schedule | Callable[[Schedule], None], pipeline: str = PLAIN, **options: object) -> None:
    model, _, wanted = CASES[name]
    f = mirlo.compile(model, pipeline=pipeline, schedules={name: words}, cache=False, **options)
    rng = np.random.default_rng(0)
    for shape in SHAPES:
        arrays = arrays_of(name, shape, rng)
        found = f(*arrays)
        for one, other in zip(found if isinstance(found, (list, tuple)) else [found], wanted(*arrays), strict=True):
            np.testing.assert_array_equal(one, other, err_msg=f"{shape}")


def schedule_of(name: str) -> Schedule:
    dims = {"rows": [("n", "m")], "product": [("n", "k"), ("k", "m")]}[name]
    from mirlo.dialects.core.dims import symbol

    types = [TensorType.of(tuple(map(symbol, each)), "f32") for each in dims]
    ids = [TensorType.of((symbol("n"),), "i64")] if name == "product" else []
    return Schedule.of(CASES[name][1], *types, *ids)


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", CASES)
def test_random_words_do_not_change_results(name: str, seed: int, whole: bool) -> None:
    rng = np.random.default_rng([seed, len(name)])
    for _ in range(15 if whole else 1):
        s = schedule_of(name)
        apply_random_words(s, rng, 16)
        try:
            check(name, s)
        except mirlo.MirloError as error:
            # Which loops an accumulator is in, and the size of a copy, are known when all words are said.
            assert any(text in str(error) for text in ("accumulate: ", "of a size that only the run time knows")), error


def test_random_words_use_all_kinds_of_tails() -> None:
    """What the tests above compile."""
    found: Counter[str] = Counter()
    for name in CASES:
        for seed in range(20):
            s = schedule_of(name)
            apply_random_words(s, np.random.default_rng([seed, len(name)]), 16)
            found.update(said.word for said in s.trace)
            found.update(said.named["tail"] for said in s.trace if "tail" in said.named)
    assert all(found[word] >= 8 for word in ("accumulate", "vectorize", "peel", "compute_at", "fuse", "unroll")), found


def in_registers(s: Schedule) -> None:
    """Sum four rows by two vectors; scale and pick in vectors."""
    i, j, k = s.loops("matmul")
    outer, row = s.split(i, (None, 4), tail="peel")
    columns, vectors, lanes = s.split(j, (None, 2, 8), tail="peel")
    s.reorder(outer, columns, k, row, vectors, lanes)
    s.unroll(row)
    s.unroll(vectors)
    s.vectorize(lanes)
    s.accumulate("matmul", k)
    s.compute_at("scale", outer)
    s.vectorize(s.split(s.loops("pick")[1], (None, 8))[1])
    s.parallel(outer)


def test_words_for_tails_are_printed_saved_and_said_again(tmp_path: Path) -> None:
    s = schedule_of("product")
    in_registers(s)
    text = str(s)
    assert " parallel peeled:" in text and "for matmul_k in k with matmul in registers:" in text
    s.save(tmp_path / "product.json")
    again = schedule_of("product").replay(tmp_path / "product.json")
    scope: dict[str, Callable[[Schedule], None]] = {}
    exec(str(s.trace), scope)
    assert str(again) == str(schedule_of("product").replay(scope["schedule"])) == text
    check("product", again)


def test_threads_have_dynamic_buffers_of_their_own() -> None:
    """What a thread needs of `scaled` has as many columns as only the run time knows."""
    pipeline = PLAIN.replace("plan-memory", "plan-memory,outline-parallel{threads=2 work=1}")
    for _ in range(5):
        check("product", in_registers, pipeline, threads=2)


ERRORS: dict[str, Callable[[Schedule], object]] = {
    "vectorize: 'pick_j' has m iterations, which only the run time knows; split it first": lambda s: (
        s.vectorize("pick_j")
    ),
    "unroll: 'pick_j' has m iterations": lambda s: s.unroll("pick_j"),
    "split of 'pick_j': 4 * 8 is less than its m, which only the run time knows: expected a factor of None": lambda s: (
        s.split("pick_j", (4, 8))
    ),
    "split: expected a tail of 'mask' or 'peel', found 'skip'": lambda s: s.split("pick_j", (None, 8), tail="skip"),
    "accumulate: 'pick' is not a reduction": lambda s: s.accumulate("pick", "pick_j"),
    "accumulate: expected the outermost loop of the reduction 'matmul', 'matmul_k', found 'matmul_j'": lambda s: (
        s.accumulate("matmul", "matmul_j")
    ),
    "reorder: 'matmul' is in registers over 'matmul_k': reorder before that": lambda s: (
        s.accumulate("matmul", "matmul_k"), s.reorder("matmul_k", "matmul_j"),
    ),
    "split: 'matmul' is in registers over 'matmul_k': split before that": lambda s: (
        s.accumulate("matmul", "matmul_k"), s.split("matmul_k", (None, 2)),
    ),
    "rfactor: 'matmul' or 'matmul_k' has a size that only the run time knows; accumulate": lambda s: (
        s.rfactor("matmul", "matmul_k")
    ),
    "'matmul' is decomposed: move it before that": lambda s: (
        s.accumulate("matmul", "matmul_k"), s.compute_at("matmul", "pick_i"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", ERRORS)
def test_a_word_that_cannot_be_applied_says_why(message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        ERRORS[message](schedule_of("product"))
    assert message in str(caught.value)


LATE_ERRORS: dict[str, Callable[[Schedule], object]] = {
    "accumulate: 'matmul_j' is inside of 'matmul_k' and serial: unroll or vectorize it": lambda s: (
        s.reorder("matmul_k", "matmul_j"), s.accumulate("matmul", "matmul_k"),
    ),
    "accumulate: 'matmul' has 80 accumulators in 'matmul_k': at most 64": lambda s: (
        s.split("matmul_j", (None, 80)), s.reorder("matmul_k", "matmul_j_1"), s.unroll("matmul_j_1"),
        s.accumulate("matmul", "matmul_k"),
    ),
    "'summed_local' is n x m elements, of a size that only the run time knows": lambda s: (
        s.cache_write("matmul", "local")
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", LATE_ERRORS)
def test_a_schedule_that_cannot_be_emitted_says_why(message: str) -> None:
    with pytest.raises(mirlo.MirloError) as caught:
        check("product", lambda s: LATE_ERRORS[message](s) and None)
    assert f"the schedule given for '@product': {message}" in str(caught.value)
