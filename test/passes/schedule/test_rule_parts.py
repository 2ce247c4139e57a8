"""Rules for some blocks of a function, beside primitives and other rules for the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from schedules import scheduled

import mirlo
from mirlo import R, Schedule, T
from mirlo.extend import ScheduleError, TensorType
from mirlo.passes.schedule.words.trace import Trace


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


def run_staged(words: Any) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((9, 24), (24, 40)))
    wanted = 2 * a @ b
    found = mirlo.compile(staged_model, schedules={"staged": words}, cache=False)(a, b)
    np.testing.assert_array_equal(found, wanted - wanted.sum(1, keepdims=True))


def by_parts(s: Schedule) -> None:
    s.apply_rule("elementwise", ["scale"], lanes=4)
    s.apply_rule("contraction", ["product"], tile_rows=2, tile_vectors=1)
    s.apply_rule("scalar_nest", ["total"])
    s.apply_rule("elementwise", ["divide"], lanes=8, unroll=3)


def joined(s: Schedule) -> None:
    s.apply_rule("elementwise", blocks=["scale"])
    s.apply_rule("contraction", ["product"])
    s.apply_rule("rows", ["total", "divide"], unroll=[1, 2])


def beside_loops(s: Schedule) -> None:
    """Give the product to a rule, and arrange the loops of the other blocks."""
    s.apply_rule("contraction", ["product"], tile_rows=2, tile_vectors=1)
    s.compute_at("total", s.loops("divide")[0])
    _, lane = s.split(s.loops("divide")[1], (None, 8))
    s.vectorize(lane)
    s.vectorize(s.split("scale_j", (None, 8))[1])
    s.parallel(s.loops("divide")[0])


def loops_alone(s: Schedule) -> None:
    """Leave the first blocks to plain loops."""
    s.apply_rule("rows", ["total", "divide"])


def inlined_first(s: Schedule) -> None:
    s.compute_inline("scale")
    s.apply_rule("contraction", ["product"])
    s.parallel("divide_i")


def inlined_for_the_whole(s: Schedule) -> None:
    s.compute_inline("scale")
    s.apply_rule("stages")


@pytest.mark.parametrize("words", [by_parts, joined, beside_loops, loops_alone, inlined_first, inlined_for_the_whole])
def test_parts_have_rules_of_their_own(words: Callable[[Schedule], None]) -> None:
    run_staged(words)


PART_ERRORS: dict[str, Callable[[Schedule], object]] = {
    "apply_rule: expected blocks that follow one another, found product, scale; the order is scale": lambda s: (
        s.apply_rule("contraction", ["product", "scale"])
    ),
    "apply_rule: there is no block 'prodct'; there are scale, product, total, divide": lambda s: (
        s.apply_rule("contraction", ["prodct"])
    ),
    "apply_rule: rule 'elementwise' schedules 'scale' already": lambda s: (
        s.apply_rule("elementwise", ["scale"]), s.apply_rule("rows", ["scale"]),
    ),
    "apply_rule: other words have changed 'scale', whose loops a rule arranges itself": lambda s: (
        s.split("scale_i", (None, 2)), s.apply_rule("elementwise", ["scale"]),
    ),
    "apply_rule: a rule schedules the whole function, after 'split'; name the blocks": lambda s: (
        s.split("scale_i", (None, 2)), s.apply_rule("stages"),
    ),
    "compute_inline: inline 'scale' before the first apply_rule": lambda s: (
        s.apply_rule("contraction", ["product"]), s.compute_inline("scale"),
    ),
    "apply_rule: inline 'scale' before 'parallel': rules see the inlined blocks": lambda s: (
        s.parallel("divide_i"), s.compute_inline("scale"), s.apply_rule("contraction", ["product"]),
    ),
    "'product_i' is a loop of 'product', which rule 'contraction' schedules": lambda s: (
        s.apply_rule("contraction", ["product"]), s.parallel("product_i"),
    ),
    "'product' is scheduled by rule 'contraction'": lambda s: (
        s.apply_rule("contraction", ["product"]), s.cache_write("product"),
    ),
    "pack: rule 'contraction' schedules 'product', which uses 'scaled'": lambda s: (
        s.apply_rule("contraction", ["product"]), s.pack("scaled", (1, 0)),
    ),
    "rule 'blocked' does not schedule parts of a function; these do: contraction": lambda s: (
        s.apply_rule("blocked", ["scale", "product", "total", "divide"])
    ),
    "rule 'stages' declines: 'rows' declines blocks scale, product, total, divide": lambda s: (
        s.apply_rule("rows", ["scale", "product", "total", "divide"])
    ),
    "apply_rule: a rule schedules the whole function, after 'apply_rule'": lambda s: (
        s.apply_rule("elementwise", ["scale"]), s.apply_rule("rows"),
    ),
    "rule 'elementwise' does not choose 'tile_rows'; it chooses lanes, unroll, transposed_rows": lambda s: (
        s.apply_rule("elementwise", ["scale"], tile_rows=2)
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", PART_ERRORS)
def test_parts_that_cannot_be_scheduled(message: str) -> None:
    with pytest.raises(mirlo.MirloError) as caught:
        run_staged(PART_ERRORS[message])
    assert f"the schedule given for '@staged': {message}" in str(caught.value)


def test_parts_on_a_target_that_schedules_whole_functions() -> None:
    with pytest.raises(mirlo.MirloError, match="of target 'nvvm' schedule whole functions only"):
        mirlo.compile(staged_model, "nvvm", schedules={"staged": lambda s: s.apply_rule("stages", ["scale"])})


def test_rules_and_primitives_in_random_order(whole: bool) -> None:
    """Rules for some blocks and random primitives: those that do not apply are rejected, the result stays."""
    rng = np.random.default_rng(3)
    rules = {"scale": "elementwise", "product": "contraction", "total": "rows", "divide": "elementwise"}
    mixed = 0
    trials = 80 if whole else 16
    for _ in range(trials):
        s = Schedule.of(staged, TensorType.of((9, 24), "f32"), TensorType.of((24, 40), "f32"))
        if rng.random() < 0.3:
            s.compute_inline("scale")
        for _ in range(10):
            try:
                random_word(s, rng, rules)
            except ScheduleError:
                continue
        words = [said.word for said in s.trace]
        mixed += "apply_rule" in words and any(word not in ("apply_rule", "compute_inline") for word in words)
        run_staged(s)
        run_staged(Trace.from_json(json.loads(json.dumps(s.trace.as_json()))))
    assert mixed >= trials // 2


def random_word(s: Schedule, rng: np.random.Generator, rules: Mapping[str, str]) -> None:
    block = str(rng.choice([name for name in s.blocks() if s.loops(name)]))
    loop = str(rng.choice(s.loops(block)))
    anywhere = str(rng.choice([name for each in s.blocks() for name in s.loops(each)]))
    words: tuple[Callable[[], object], ...] = (
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
    words[int(rng.integers(len(words)))]()


def test_mixed_words_are_recorded_with_the_choices_of_rules() -> None:
    """They make the same loops again."""

    def words(s: Schedule) -> None:
        s.compute_inline("scale")
        s.apply_rule("contraction", ["product"], tile_rows=3, tile_vectors=1)
        s.vectorize(s.split("divide_j", (None, 8))[1])

    code, (record,) = scheduled(staged_model, {"staged": words}, "llvm")
    text = str(record.words)
    assert "s.apply_rule('contraction', ['product'], pack=0, row_block=0, tile_rows=3, tile_vectors=1)" in text
    assert text.splitlines()[1] == "    s.compute_inline('scale')" and "s.vectorize('divide_j_1')" in text
    assert "tir.given" not in code
    again, (repeated,) = scheduled(staged_model, {"staged": record.words}, "llvm")
    assert again == code and str(repeated.words) == text
