"""What measurements may choose for products on NVIDIA GPUs, and that schedules take it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from test_formats import product

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.tir.view import is_tensor_form, prim_functions
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.schedule.tuned import TUNING
from mirlo.passes.session import Session
from mirlo.passes.targets import find_target
from mirlo.targets.nvvm.schedule.products import STRATEGIES


class Best:
    """A database with one result, which records the requests."""

    def __init__(self, values: dict[str, int]):
        self.values = values
        self.asked: list[str] = []

    def find(self, key: str) -> dict[str, int]:
        self.asked.append(key)
        return self.values


def scheduled(text: str, options: str, values: dict[str, int]) -> tuple[str, list[dict[str, int]]]:
    """Return the kernel as text for these measured choices, and the choices that were offered."""
    target = find_target("nvvm")
    asked = SimpleNamespace(target_options=options)
    steps = [str(step) for step in Pipeline(target.pipeline(asked))]
    at = next(i for i, step in enumerate(steps) if step.startswith("apply-tuning"))
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        Pipeline(f"builtin.module({','.join(steps[:at])})").run(module, Session(), [])
        (function,) = [f for f in prim_functions(module.operation) if is_tensor_form(f)]
        offered: Any = target.space(function, asked)
        session = Session()
        session.options[TUNING] = Best(values)
        end = next(i for i, step in enumerate(steps) if step.startswith("schedule"))
        Pipeline(f"builtin.module({','.join(steps[at : end + 1])})").run(module, session, [])
        return str(module), offered


HALVES = product(("4096x4096", "f16"), ("4096x4096", "f16"), "4096x4096", "f16")


@pytest.mark.parametrize(
    ("options", "values", "threads", "name"),
    [
        ("chip=sm_90a", {}, 384, "warpgroups"),
        ("chip=sm_90a", {"way": 0, "tile": 6}, 256, "warpgroups"),
        ("chip=sm_90a", {"way": 1, "tile": 0}, 128, "tensor cores"),
        ("chip=sm_80", {"way": 0, "tile": 0}, 128, "tensor cores"),  # what was measured on another chip
        ("chip=sm_100a", {"way": 3, "tile": 4}, 256, "tensor memory"),
        ("chip=sm_90a", {"way": 9, "tile": 9}, 384, "warpgroups"),  # what another version knew
    ],
)
def test_schedules_take_what_was_found(options: str, values: dict[str, int], threads: int, name: str) -> None:
    text, _ = scheduled(HALVES, options, values)
    assert f'stages = "{name}"' in text and f"arith.constant {threads} : index" in text


def test_what_is_offered() -> None:
    _, offered = scheduled(HALVES, "chip=sm_90a", {})
    ways = [way.tiles for way in STRATEGIES[:3]]  # this chip has no tensor memory
    assert len(offered) == sum(map(len, ways)) - 1, "all but the one that is taken anyway"
    assert [values["way"] for values in offered] == sorted(values["way"] for values in offered)
    _, offered = scheduled(HALVES, "chip=sm_80", {})
    assert {values["way"] for values in offered} == {1, 2}
    wide = product(("64x40", "f64"), ("40x64", "f64"), "64x64", "f64")
    assert scheduled(wide, "chip=sm_80", {})[1] == []


def attention(rows: int, keys: int, size: int) -> str:
    q, k = f"tensor<1x8x{rows}x{size}xf16>", f"tensor<1x8x{keys}x{size}xf16>"
    return f"""func.func @main(%q: {q}, %k: {k}, %v: {k}) -> {q} {{
  %y = "relax.attention"(%q, %k, %v) {{causal = false}} : ({q}, {k}, {k}) -> {q}
  return %y : {q}
}}"""


@pytest.mark.parametrize(
    ("values", "schedule"),
    [
        ({}, "parts = 1 : i64, {stages}, tile = array<i64: 64, 64>, warps = 4"),
        ({"warps": 8, "rows": 2, "keys": 32}, "parts = 1 : i64, {stages}, tile = array<i64: 256, 32>, warps = 8"),
        ({"parts": 4}, "parts = 4 : i64, {stages}, tile = array<i64: 64, 64>, warps = 4"),
        ({"warps": 3, "parts": 1000}, "parts = 1 : i64, {stages}, tile = array<i64: 64, 64>, warps = 4"),
    ],
)
def test_attention_takes_what_was_found(values: dict[str, int], schedule: str) -> None:
    stages = 'rule = "stages", stages = "attention on tensor cores"'
    text, _ = scheduled(attention(1024, 1024, 64), "chip=sm_80", values)
    assert schedule.format(stages=stages) in text


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("values", "schedule"),
    [
        ({}, "slots = 2 : i64, {stages}, tile = array<i64: 128, 176>"),
        (
            {"groups": 1, "keys": 64, "stages": 2},
            'slots = 2 : i64, stages = "attention on warpgroups", tile = array<i64: 64, 64>',
        ),
        ({"parts": 5}, "parts = 3 : i64"),  # six tiles of keys, two for each
        ({"groups": 0}, 'no_warpgroups = "another strategy was measured to be faster"'),
        ({"groups": 3, "keys": 128}, "tile = array<i64: 128, 176>"),  # would not fit
    ],
)
def test_attention_by_warpgroups_takes_what_was_found(values: dict[str, int], schedule: str) -> None:
    text, _ = scheduled(attention(2048, 1024, 128), "chip=sm_90a", values)
    assert schedule.format(stages='stages = "attention on warpgroups"') in text


def test_what_is_offered_for_attention_by_warpgroups() -> None:
    _, offered = scheduled(attention(2048, 1024, 128), "chip=sm_90a", {})
    assert {"groups": 0} in offered and {"groups": 2, "keys": 128, "stages": 2, "parts": 1} in offered
    assert all(values.get("groups", 0) < 3 for values in offered), "three do not fit"


def test_what_is_offered_for_attention_and_for_parts() -> None:
    _, offered = scheduled(attention(1024, 1024, 128), "chip=sm_80", {})
    assert {"parts": 2} in offered and all(values.get("rows", 1) == 1 for values in offered), "two do not fit"
    _, offered = scheduled(attention(1, 4096, 128), "chip=sm_80", {})
    assert offered and all(set(values) == {"parts"} for values in offered)
    long = product(("16x16384", "f16"), ("16384x16", "f16"), "16x16", "f16")
    text, offered = scheduled(long, "chip=sm_80", {"parts": 4})
    assert "in 4 parts" in text and {"parts": 1} in offered
