"""Element types of which cases are drawn for schedule rules: none that a rule takes disappears from its row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mirlo.passes.rules import SCHEDULE
from mirlo.tools.conformance.check import names, own_rules
from mirlo.tools.conformance.rule_search import MAX_OPERATORS, RuleSearch, name_of_rule, operators_for, trusted_target

PAGE = Path(__file__).parents[3] / "docs" / "support-matrix.md"
TARGET = "llvm{cpu=x86-64-v4}"
FLOATS, ALL = "f32 f64 f16 bf16", "f32 f64 f16 bf16 i8 i32 i64 u8"
ROWS = {
    "contraction": ALL,
    "paged": FLOATS,
    "blocked": FLOATS,
    "staged_contractions": "f16 bf16 i8 u8",
    "elementwise": f"{ALL} bool",
    "rows": f"{ALL} bool",
    "window": ALL,
    "stages": ALL,
    "winograd_input": "f32",
    "winograd_output": "f32",
}
"""The types that rows of rules have at least."""
DRAWN = {
    "contraction": ("matmul", "conv"),
    "elementwise": ("add", "abs"),
    "rows": ("softmax", "argmax"),
    "window": ("max_pool", "avg_pool"),
}
"""Operators of which a rule takes all of its types."""


@pytest.mark.sample(4)
@pytest.mark.parametrize("rule", DRAWN)
def test_cases_of_all_types_are_drawn(rule: str) -> None:
    names()
    (own,) = (each for each in own_rules("llvm", names(), True) if each.kind == SCHEDULE.kind and each.name == rule)
    operators = tuple(f"relax.{name}" for name in DRAWN[rule])
    search = RuleSearch(name_of_rule(own), TARGET, trusted_target(TARGET), rule=own, operators=operators)
    chosen = search._taken(search.graphs()[0])
    assert set(ALL.split()) <= {typed.type_of(typed.arguments[0]).dtype.name for typed in chosen}


def test_operators_of_a_rule_have_all_types_between_them() -> None:
    names()
    rule = next(each for each in own_rules("llvm", names(), True) if each.kind == SCHEDULE.kind)
    many = ["abs", "acos", "acosh", "add", "argmax", "ceil", "clip", "conv", "cos", "cumsum", "matmul", "where"]
    taken = {f"relax.{name}": {"float32"} for name in many} | {"relax.matmul": {"float32", "int64"}}
    chosen = operators_for(rule, taken | {"relax.where": {"bool"}, "relax.unknown": {"uint8"}})
    assert {"relax.matmul", "relax.where"} <= set(chosen) and len(chosen) == len(set(chosen)) == MAX_OPERATORS
    assert operators_for(rule, {"relax.add": {"float32"}}) == ["relax.add"]
    types = ["float64", "float16", "int8", "int16", "int32", "int64", "uint8", "bool"]
    each = dict(zip(taken, ({name} for name in types), strict=False))
    assert operators_for(rule, each) == list(each)


@pytest.mark.parametrize("rule", ROWS)
def test_rows_of_the_page_have_their_types(rule: str) -> None:
    _, _, part = PAGE.read_text(encoding="utf-8").partition("## Schedule rules")
    header, row = (re.search(f"^\\| {start}.*$", part, re.MULTILINE) for start in ("\\| f32", f"`schedule.{rule}`"))
    assert header is not None and row is not None
    kinds, cells = ([cell.strip() for cell in found[0].split("|")[2:-1]] for found in (header, row))
    assert set(ROWS[rule].split()) <= {kind for kind, cell in zip(kinds, cells, strict=True) if cell == "ok"}
