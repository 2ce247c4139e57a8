"""A primitive that is refused leaves the schedule unchanged: its loops, its trace and its results."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import mirlo
from mirlo import R, Schedule, T
from mirlo.extend.ops import TensorType
from mirlo.extend.schedules import ScheduleError, tensor_intrin
from mirlo.passes.schedule.primitives.arguments import PRIMITIVES

M, N, K = 6, 8, 4
TYPES = (TensorType.of((M, K), "f32"), TensorType.of((K, N), "f32"))
PIPELINE = "builtin.module(schedule,lower-loops,lower-intrinsics,plan-memory)"


@mirlo.prim_func
def chain(a: T.Buffer[(M, K), T.f32], b: T.Buffer[(K, N), T.f32], c: T.Out[(M, N), T.f32]):
    scaled = T.alloc((M, K), T.f32)
    product = T.alloc((M, N), T.f32)
    for i, k in T.grid(M, K):
        with T.block("scale"):
            vi, vk = T.axes("SS", i, k)
            scaled[vi, vk] = a[vi, vk] * 2.0
    for i, j, k in T.grid(M, N, K):
        with T.block("matmul"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                product[vi, vj] = 0.0
            product[vi, vj] += scaled[vi, vk] * b[vk, vj]
    for i, j in T.grid(M, N):
        with T.block("shift"):
            vi, vj = T.axes("SS", i, j)
            c[vi, vj] = product[vi, vj] + product.at(vi, vj - 1, outside=0.0) + scaled[vi, 0]


@mirlo.script
def model(a: R.Tensor[(M, K), R.f32], b: R.Tensor[(K, N), R.f32]):
    return R.call_tir(chain, a, b)


@mirlo.prim_func
def means(a: T.Buffer[(8,), T.f32], c: T.Out[(8,), T.f32]):
    for j in T.grid(8):
        with T.block("copy"):
            vj = T.axes("S", j)
            c[vj] = a[vj]


@mirlo.prim_func(buffers=True)
def does(a: T.Buffer[(8,), T.f32], c: T.Out[(8,), T.f32]):
    for j in T.vectorized(8):
        c[j] = a[j]


tensor_intrin("test.copy_8", means, does)


def _call(s: Schedule, rng: random.Random) -> tuple[str, list[Any]]:
    """Return a primitive and arguments that are often wrong."""
    blocks, buffers = s.blocks(), s.buffers()
    block = rng.choice(blocks)
    own = s.loops(block) or ["none"]
    loops = own if rng.random() < 0.8 else [name for each in blocks for name in s.loops(each)]

    def some(names: list[str]) -> list[str]:
        return [rng.choice(names) for _ in range(rng.randint(1, 3))]

    size = rng.choice([1, 2, 3, 4, 8])
    primitive = rng.choice(PRIMITIVES)
    scope = rng.choice(["", "local", "shared"])
    arguments: dict[str, list[Any]] = {
        "split": [
            rng.choice(loops), rng.choice([(None, size), (size, 2), (None, None)]),
            rng.choice(["mask", "peel", "shift"]), rng.choice(["", "", rng.choice(buffers)]),
        ],
        "rotate": [rng.choice(loops), rng.choice(loops)],
        "compute_with": [block, rng.choice(blocks)], "stream": [block],
        "partition": [rng.choice(loops), rng.choice([(), (1,), (2, 4), (5, 3)]), rng.choice([(), (), (size,), (4, 2)])],
        "fuse": some(loops), "reorder": some(loops),
        "merge": [rng.choice(s.loops(each) or ["none"]) for each in blocks[blocks.index(block) :][:2]],
        "share_memory": [rng.choice(buffers), rng.choice(buffers)],
        "tile": [some(loops), [size] * rng.randint(1, 3)],
        "bind": [rng.choice(loops), "threadIdx.x"],
        "add_unit_loop": [block], "clamp": [block], "compute_inline": [block], "reverse_compute_inline": [block],
        "cache_read": [rng.choice([block, some(blocks)]), rng.choice(buffers), scope],
        "cache_write": [block, scope],
        "set_scope": [rng.choice(buffers), scope],
        "pack": [rng.choice(buffers), rng.choice([(), (1, 0), (0, 0)]), rng.choice([(), ((1, size),), ((2, size),)])],
        "double_buffer": [rng.choice(buffers), size],
        "storage_align": [rng.choice(buffers), rng.randint(-1, 2), size, rng.randint(0, 2)],
        "convert": [block],
        "register_tile": [block, some(loops), some(loops), rng.choice(["fma", "tdpbf16ps"])],
        "prefetch": [block, rng.choice(buffers), rng.choice(["", rng.choice(loops)]), size],
        "pad": [block, rng.choice(buffers), rng.choice([(0,), (0, 1), (5,)])],
        "pad_einsum": [block, [size] * rng.randint(1, 3)],
        "tensorize": [rng.choice(loops), "test.copy_8"],
        "block_rows": [
            some(blocks), rng.choice([size, rng.choice(loops)]), some(loops), rng.choice([0, 2]),
            rng.choice([(), some(buffers)]), size,
        ],
        "copy_pages": [block, size], "specialize": ["n", size],
        "apply_rule": rng.choice([["scalar_nest"], ["rows", some(blocks)], ["nothing", ["shift", "scale"]]]),
    }  # fmt: skip
    for name in ("parallel", "vectorize", "unroll", "unswitch", "transpose"):
        arguments[name] = [rng.choice(loops)]
    for name in ("compute_at", "reverse_compute_at", "decompose_reduction", "accumulate", "rfactor"):
        arguments[name] = [block, rng.choice(loops)]
    return primitive, arguments[primitive]


def _state(s: Schedule) -> tuple[str, str, list[str], list[str]]:
    return str(s), str(s.trace), s.buffers(), [str(said) for said in s.applied]


def _arrange(s: Schedule, rng: random.Random, primitives: int, with_rules: bool) -> int:
    """Apply random primitives, each of which changes nothing where it is refused; return how many were."""
    refused = 0
    for _ in range(primitives):
        primitive, arguments = _call(s, rng)
        if primitive == "apply_rule" and not with_rules:
            continue
        before = _state(s)
        try:
            getattr(s, primitive)(*arguments)
        except ScheduleError:
            refused += 1
            assert _state(s) == before, f"{primitive}({arguments})"
    return refused


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(16))
def test_refused_primitives_change_nothing(seed: int) -> None:
    s = Schedule.of(chain, *TYPES)
    assert _arrange(s, random.Random(seed), 30, with_rules=seed % 2 == 1)
    assert _state(Schedule.of(chain, *TYPES).replay(s.trace)) == _state(s)


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(8))
def test_refused_primitives_change_no_results(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((M, K), dtype=np.float32), rng.standard_normal((K, N), dtype=np.float32)
    product = 2 * a @ b
    expected = product + np.pad(product, ((0, 0), (1, 0)))[:, :-1] + 2 * a[:, :1]
    try:
        found = mirlo.compile(
            model, pipeline=PIPELINE, cache=False,
            schedules={"chain": lambda s: _arrange(s, random.Random(seed), 8, with_rules=False)},
        )(a, b)  # fmt: skip
    except mirlo.MirloError as error:
        assert "the schedule given for '@chain'" in str(error)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_refused_tile_splits_no_loop() -> None:
    s = Schedule.of(chain, *TYPES)
    before = _state(s)
    with pytest.raises(ScheduleError, match="tile: reorder: 'scale_i_0' is not in one nest"):
        s.tile(("matmul_i", "scale_i"), (2, 2))
    assert _state(s) == before


def test_a_refused_primitive_after_a_rule_changes_nothing() -> None:
    s = Schedule.of(chain, *TYPES)
    s.apply_rule("scalar_nest")
    before = _state(s)
    with pytest.raises(ScheduleError, match="rule 'scalar_nest' schedules the whole function"):
        s.split("matmul_i", (None, 2))
    assert _state(s) == before


def test_an_exception_in_a_primitive_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    s = Schedule.of(chain, *TYPES)
    s.split("matmul_i", (None, 2))
    before = _state(s)

    def interrupted(*names: str) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(s, "reorder", interrupted)
    with pytest.raises(RuntimeError, match="no memory"):
        s.tile(("matmul_j", "matmul_k"), (2, 2))
    assert _state(s) == before


def test_tiles_are_not_rotated_by_where_they_begin() -> None:
    """Where a tile begins follows from its number, which cannot follow from where it begins."""
    s = Schedule.of(means, TensorType.of((8,), "f32"))
    tiles, start, _ = s.split(s.loops("copy")[0], [None, 4], align="a")
    before = _state(s)
    with pytest.raises(ScheduleError, match=f"rotate: '{start}' is where a tile of '{tiles}' begins, which '{start}'"):
        s.rotate(tiles, start)
    assert _state(s) == before
