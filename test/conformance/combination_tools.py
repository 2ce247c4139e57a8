"""The tools of a combination: each checks that the rule was used, or raises."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from combination_cells import OPERATORS, REASONS, Cell
from combination_models import (
    COLS,
    ROWS,
    Options,
    Unavailable,
    expected,
    feeds_of,
    forget,
    model_of,
    node_of,
    options_of,
)

import mirlo
from mirlo.driver.tune.database import Database
from mirlo.driver.tune.search import tune
from mirlo.testing import stages_round_trip
from mirlo.tools.bisect.bisect import Departure, bisect
from mirlo.tools.bisect.trial import TrialOptions
from mirlo.tools.conformance.check import check_target
from mirlo.tools.explain.model import explain_model
from mirlo.tools.explain.report import only_node, text_lines
from mirlo.tools.library_program import run_library

UNIT = Path(__file__).with_name("combination_unit.c")
"""The C functions that kernels call, for programs without Python."""


class NotUsed(Exception):
    """A rule had no effect, and nothing said so."""


def run(cell: Cell) -> None:
    """Try one combination; raise what goes wrong."""
    try:
        options = options_of(cell)
        RUN[cell.tool](cell, options)
    finally:
        forget()


def _compiled(cell: Cell, options: Options, **more: Any) -> Any:
    return mirlo.compile(model_of(cell), options.target, cache=False, jobs=1, **options.given, **more)


def _check(cell: Cell, found: Any) -> None:
    result = found["y"]
    if not np.allclose(result, expected(cell)):
        raise NotUsed(
            f"the result is {(result / np.where(expected(cell) == 0, 1, expected(cell)))[0, 0]:.3} of the rule's"
        )


def _compile(cell: Cell, options: Options) -> None:
    _check(cell, _compiled(cell, options).run(feeds_of(cell)))


def _save(cell: Cell, options: Options) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = _compiled(cell, options)
        made.save(Path(folder) / "m.mirlo")
        _check(cell, mirlo.load(Path(folder) / "m.mirlo").run(feeds_of(cell)))


def _library(cell: Cell, options: Options) -> None:
    made = _compiled(cell, options)
    _check(cell, run_library(made.artifact, made._store, feeds_of(cell), [UNIT]))


def _explain(cell: Cell, options: Options) -> None:
    explanation = explain_model(model_of(cell), options.target, tune=False, **options.given)
    if explanation.failure is not None:
        raise mirlo.MirloError(explanation.failure)
    text = "\n".join(text_lines(only_node(explanation, node_of(cell))))
    wanted = {
        "default": "kernels: @", "target": "tripled [", "compilation": "tripled [custom]", "hand-written": "by_hand [",
        "tensorized": "schedule: given", "generator": "taken by a code generator",
    }[cell.rule]  # fmt: skip
    if cell.operator == "custom" and cell.rule == "hand-written":
        wanted = "kernels: @"
    if wanted not in text:
        raise NotUsed(f"{wanted!r} is not reported:\n{text}")


def _bisect(cell: Cell, options: Options) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = bisect(
            model_of(cell), feeds_of(cell), against="reference", bundle=Path(folder) / "bundle",
            progress=lambda text: None,
            settings=TrialOptions(options.target, **options.given),
        )  # fmt: skip
    if cell.rule == "default":
        if found is not None:
            raise NotUsed(f"it departs: {found}")
        return
    if not isinstance(found, Departure) or found.node not in ("op", "loop"):
        raise NotUsed(f"the wrong rule is not found: {found}")
    wanted = {"target": "tripled (", "compilation": "tripled (", "hand-written": "by_hand ("}.get(cell.rule, "")
    if not any(wanted in rule for rule in (*found.culprit.rules, "")):
        raise NotUsed(f"{wanted!r} is not among the rules: {found.culprit.rules}")


def _conformance(cell: Cell, options: Options) -> None:
    if not OPERATORS[cell.operator].name:
        raise Unavailable("no operator")
    if options.given:
        raise Unavailable("one compilation")
    is_good = _checked(cell.operator, cell.rule, options.target, cell.place == "region")
    if is_good != (cell.rule == "default"):
        raise NotUsed(f"a rule that is {'right' if is_good else 'wrong'} by the check")


@cache
def _checked(operator: str, rule: str, target: str, in_region: bool) -> bool:
    """Return whether the check of a target finds nothing wrong; the place of an operator does not matter to it."""
    matrix = check_target(target, [OPERATORS[operator].name])
    if matrix.unreached or matrix.untaken:
        raise NotUsed(f"no case took {[*(str(rule) for rule, _ in matrix.unreached), *dict(matrix.untaken)]}")
    return not any(matrix.count(status) for status in ("wrong", "failed"))


def _script(cell: Cell, options: Options) -> None:
    stages_round_trip(model_of(cell), options.target, **options.given)


def _tune(cell: Cell, options: Options) -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = Database(Path(folder) / "tuned.json")
        shapes = {"x": (ROWS, COLS)} if cell.place == "dynamic" else None
        tune(model_of(cell), database, target=options.target, shapes=shapes, seconds=0.2)
        _check(cell, _compiled(cell, options, tune=database).run(feeds_of(cell)))


RUN: dict[str, Callable[[Cell, Options], None]] = {
    "compile": _compile, "save": _save, "library": _library, "explain": _explain, "bisect": _bisect,
    "check-target": _conformance, "script": _script, "tune": _tune,
}  # fmt: skip


def outcome(cell: Cell) -> tuple[str, str]:
    """Return "ok", a documented reason's number, or "FAILED", and the error."""
    try:
        run(cell)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        for number, reason in enumerate(REASONS, 1):
            if reason.covers(cell) and reason.message in text:
                return str(number), text
        return "FAILED", text
    return "ok", ""
