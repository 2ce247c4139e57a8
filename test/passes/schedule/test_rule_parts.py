"""Rules for some blocks of a function, combined with primitives and other rules."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from dynamic_programs import CASES
from schedules import scheduled
from staged_program import assert_staged, random_primitive, staged, staged_model

import mirlo
from mirlo import Schedule
from mirlo.extend.ops import TensorType
from mirlo.extend.schedules import ScheduleError
from mirlo.passes.schedule.primitives.trace import Trace


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


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "schedule", [by_parts, joined, beside_loops, loops_alone, inlined_first, inlined_for_the_whole]
)
def test_parts_have_rules_of_their_own(schedule: Callable[[Schedule], None]) -> None:
    assert_staged(schedule)


def test_primitives_arrange_the_blocks_that_rules_leave() -> None:
    s = Schedule.of(staged, TensorType.of((9, 24), "f32"), TensorType.of((24, 40), "f32"))
    s.apply_rule("contraction", ["product"])
    s.parallel("divide_i")
    s.apply_rule("elementwise", ["scale"])
    assert [said.primitive for said in s.trace] == ["apply_rule", "parallel", "apply_rule"]


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
    "apply_rule: other primitives have changed 'scale', whose loops a rule arranges itself": lambda s: (
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
    "parallel: 'product_i' is a loop of 'product', which rule 'contraction' schedules": lambda s: (
        s.apply_rule("contraction", ["product"]), s.parallel("product_i"),
    ),
    "cache_write: 'product' is scheduled by rule 'contraction'": lambda s: (
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
        assert_staged(PART_ERRORS[message])
    assert f"the schedule given for '@staged': {message}" in str(caught.value)


def test_parts_on_a_target_that_schedules_whole_functions() -> None:
    with pytest.raises(mirlo.MirloError, match="apply_rule: the target has no rule for parts of a function"):
        mirlo.compile(staged_model, "c", schedules={"staged": lambda s: s.apply_rule("scalar_nest", ["scale"])})


def test_loops_beside_rules_that_cannot_be_emitted() -> None:
    def primitives(s: Schedule) -> None:
        s.apply_rule("rows", ["total"])
        s.cache_write("transposed", "local")

    with pytest.raises(mirlo.MirloError, match="given for '@rows': 'd_local' is m x n elements, of a size that only"):
        mirlo.compile(CASES["rows"][0], schedules={"rows": primitives}, cache=False)


@pytest.mark.sample(0)
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
                random_primitive(s, rng, rules)
            except ScheduleError:
                continue
        primitives = [said.primitive for said in s.trace]
        mixed += "apply_rule" in primitives and any(
            primitive not in ("apply_rule", "compute_inline") for primitive in primitives
        )
        assert_staged(s)
        assert_staged(Trace.from_json(json.loads(json.dumps(s.trace.as_json()))))
    assert mixed >= trials // 2


def test_mixed_primitives_are_recorded_with_the_choices_of_rules() -> None:
    """They make the same loops again."""

    def primitives(s: Schedule) -> None:
        s.compute_inline("scale")
        s.apply_rule("contraction", ["product"], tile_rows=3, tile_vectors=1)
        s.vectorize(s.split("divide_j", (None, 8))[1])

    code, (record,) = scheduled(staged_model, {"staged": primitives}, "llvm")
    text = str(record.trace)
    assert "s.apply_rule('contraction', ['product'], pack=0, row_block=0, tile_rows=3, tile_vectors=1)" in text
    assert text.splitlines()[1] == "    s.compute_inline('scale')" and "s.vectorize('divide_j_1')" in text
    assert "tir.given" not in code
    again, (repeated,) = scheduled(staged_model, {"staged": record.trace}, "llvm")
    assert again == code and str(repeated.trace) == text
