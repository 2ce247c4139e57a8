"""`block_rows`: two products and the rows between them, a block of rows at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import mirlo
from mirlo import R, Schedule, T
from mirlo.extend.ops import TensorType
from mirlo.extend.schedules import ScheduleError
from mirlo.testing import assert_verified

KEYS, SIZE = 77, 16


def attention_of(count: int | str) -> tuple[object, object]:
    """Return an attention over rows as a prim function, and a model of it."""
    rows = T.dims("rows") if isinstance(count, str) else count

    @mirlo.prim_func
    def attend(
        q: T.Buffer[(rows, SIZE), T.f32],
        k: T.Buffer[(SIZE, KEYS), T.f32],
        v: T.Buffer[(KEYS, SIZE), T.f32],
        o: T.Out[(rows, SIZE), T.f32],
    ):
        scores = T.alloc((rows, KEYS), T.f32)
        highest = T.alloc((rows, 1), T.f32)
        weights = T.alloc((rows, KEYS), T.f32)
        total = T.alloc((rows, 1), T.f32)
        sums = T.alloc((rows, SIZE), T.f32)
        for i, j, c in T.grid(rows, KEYS, SIZE):
            with T.block("scores"):
                vi, vj, vc = T.axes("SSR", i, j, c)
                with T.init():
                    scores[vi, vj] = 0.0
                scores[vi, vj] += q[vi, vc] * k[vc, vj]
        for i, u, j in T.grid(rows, 1, KEYS):
            with T.block("highest"):
                vi, vu, vj = T.axes("SSR", i, u, j)
                with T.init():
                    highest[vi, vu] = T.f32("-inf")
                highest[vi, vu] = T.max(highest[vi, vu], scores[vi, vj])
        for i, j in T.grid(rows, KEYS):
            with T.block("weights"):
                vi, vj = T.axes("SS", i, j)
                weights[vi, vj] = T.exp(scores[vi, vj] - highest[vi, 0])
        for i, u, j in T.grid(rows, 1, KEYS):
            with T.block("total"):
                vi, vu, vj = T.axes("SSR", i, u, j)
                with T.init():
                    total[vi, vu] = 0.0
                total[vi, vu] += weights[vi, vj]
        for i, c, j in T.grid(rows, SIZE, KEYS):
            with T.block("sums"):
                vi, vc, vj = T.axes("SSR", i, c, j)
                with T.init():
                    sums[vi, vc] = 0.0
                sums[vi, vc] += weights[vi, vj] * v[vj, vc]
        for i, c in T.grid(rows, SIZE):
            with T.block("result"):
                vi, vc = T.axes("SS", i, c)
                o[vi, vc] = sums[vi, vc] / total[vi, 0]

    @mirlo.script
    def model(q: R.Tensor[(count, SIZE), R.f32], k: R.Tensor[(SIZE, KEYS), R.f32], v: R.Tensor[(KEYS, SIZE), R.f32]):
        return R.call_tir(attend, q, k, v)

    return attend, model


def arrays(rows: int) -> tuple[np.ndarray, ...]:
    shapes = (rows, SIZE), (SIZE, KEYS), (KEYS, SIZE)
    return tuple(np.random.default_rng(i).standard_normal(s, dtype=np.float32) for i, s in enumerate(shapes))


def expected(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = q.astype(np.float64) @ k
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights @ v / weights.sum(-1, keepdims=True)


BLOCKS = ("scores", "highest", "weights", "total", "sums")


def arrange(s: Schedule, blocks: Callable[[Schedule], object] | None = None) -> None:
    """Arrange both products in register tiles, and the rows between them in vectors."""
    for block, rows in (("scores", 6), ("sums", 8)):
        i, j, c = s.loops(block)
        panel, vector, lane = s.split(j, (None, 2, 16) if block == "scores" else (None, 1, 16))
        tiles, row = s.split(i, (None, rows), tail="shift", rests=(3, 1))
        s.reorder(panel, tiles, c, row, vector, lane)
        if block == "sums":
            s.reverse_compute_inline("result")
        s.register_tile(block, (row, vector, lane), (c,))
    s.merge(*(s.loops(block)[0] for block in BLOCKS[1:4]))
    for block in BLOCKS[1:4]:
        step, lane = s.split(s.loops(block)[-1], (None, 8))
        s.vectorize(lane)
        if block != "weights":
            s.accumulate(block, step)
    if blocks is not None:
        blocks(s)


def in_blocks(rows: str | int, threads: int = 0) -> Callable[[Schedule], None]:
    return lambda s: arrange(s, lambda s: s.block_rows(BLOCKS, rows, threads=threads))


@pytest.mark.parametrize("size", [1, 7, 24, 50])
@pytest.mark.parametrize("rows", [24, 50])
def test_blocks_of_static_sizes(rows: int, size: int) -> None:
    _, model = attention_of(rows)
    compiled = mirlo.compile(model, schedules={"attend": in_blocks(size)}, threads=2)
    values = arrays(rows)
    np.testing.assert_allclose(compiled(*values), expected(*values), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [14, "max(6, floordiv(rows, 3))"])
@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_that_threads_claim(threads: int, size: str | int) -> None:
    _, model = attention_of("rows")
    compiled = mirlo.compile(model, schedules={"attend": in_blocks(size, threads)}, threads=2)
    for rows in (1, 13, 50):
        values = arrays(rows)
        np.testing.assert_allclose(compiled(*values), expected(*values), rtol=1e-4, atol=1e-5)


def test_blocks_are_verified() -> None:
    """The exact check takes the loop over blocks, and the memory of a block."""
    _, model = attention_of(50)
    assert_verified(model, schedules={"attend": in_blocks(14)})


def schedule_of(rows: int | str = 50) -> Schedule:
    attend, _ = attention_of(rows)
    kinds = [TensorType.of(shape, "f32") for shape in ((rows, SIZE), (SIZE, KEYS), (KEYS, SIZE))]
    return Schedule.of(attend, *kinds)


def test_what_the_nests_share_is_stored_for_a_block() -> None:
    s = schedule_of()
    in_blocks(14)(s)
    assert "for scores_rows in 4 parallel over blocks of 14 rows:" in str(s)
    text = str(s.emit())
    assert f"memref<{50 * KEYS}xf32>" not in text and f"memref<{14 * KEYS}xf32>" in text


def test_values_between_blocks_share_memory() -> None:
    """Weights are written where the scores are that they are computed from."""
    texts = []
    for names in ([], [("scores", "weights")]):
        s = schedule_of()
        arrange(s)
        for pair in names:
            s.share_memory(*pair)
        s.block_rows(BLOCKS, 14)
        texts.append(str(s.emit()))
    assert [text.count(f"memref<{14 * KEYS}xf32>") > 0 for text in texts] == [True, True]
    allocated = [sum("memref.alloca" in line or "memref.view" in line for line in text.split("\n")) for text in texts]
    assert allocated[1] == allocated[0] - 1


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "dynamic sizes without threads": (lambda: in_blocks(14)(schedule_of("rows")), "how many threads claim blocks"),
    "no mask": (
        lambda: arrange(schedule_of(), lambda s: s.block_rows(BLOCKS, 14, ends=[s.loops("scores")[0]])),
        "no mask hides columns",
    ),
    "no tiles": (lambda: schedule_of().block_rows(BLOCKS, 14), "expected register tiles of 'scores' and 'sums'"),
    "a nest left out": (
        lambda: arrange(schedule_of(), lambda s: s.block_rows(["scores", "sums"], 14)),
        "whose nests follow one another",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    attempt, message = REFUSED[name]
    with pytest.raises(ScheduleError, match=message):
        attempt()
