"""A search for cases that a rule takes: larger sizes, more operands, constants, kernels of several blocks, vectors."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from mirlo.dialects.context import graph_operations
from mirlo.dialects.core.traits import Trait
from mirlo.dialects.tir.intrinsics import INTRINSICS
from mirlo.passes.rules import INTRINSIC, LEGALIZE, SCHEDULE, Attempt, Rule
from mirlo.runtime.records import dataclass
from mirlo.tools.conformance.arguments import intrinsic_arguments, intrinsic_kinds
from mirlo.tools.conformance.case import COLUMNS, TABLE, OperatorCase
from mirlo.tools.conformance.derived import expected
from mirlo.tools.conformance.kernels import kernel_case, kernel_program, vector_program
from mirlo.tools.conformance.programs import ProgramOutcome, TestProgram, operator_class, operator_program, run

TILES = (4, 8, 16, 32, 64, 128)
"""Multiples of sizes that are tried for a rule that declines all usual cases."""
MAX_TILE = 256
SMALL = 3
"""Sizes up to this one may stay: they are those of windows and strides, and of what is repeated."""
COUNTS = (8, 32)
"""How often the operands of an operator that takes any number are repeated."""
STEPS = ("product", "map", "rows")
MOST_STEPS = 3


@dataclass(frozen=True)
class FoundCase:
    """A program that is tried, under the name and element type of the row of the matrix that it belongs to."""

    name: str
    kind: str
    program: TestProgram
    case: OperatorCase | None = None
    """None for an intrinsic, on its usual arguments."""


def search(rule: Rule, declines: Sequence[Attempt], target: str) -> Iterator[tuple[FoundCase, ProgramOutcome]]:
    """Yield the first cases that a rule takes, with their outcomes."""
    for batch in _candidates(rule, declines):
        is_found = False
        for case in batch:
            outcome = run([case.program], target, lambda done: None)[0]
            if rule in outcome.rules:
                yield case, outcome
                is_found = True
        if is_found:
            return


def search_loops(pattern: str, target: str) -> Iterator[tuple[FoundCase, ProgramOutcome]]:
    """Yield the first cases of which a pattern of prim functions takes a part, `target.pattern`."""
    for batch in (*_kernels(), *(_contractions(tile) for tile in (1, *TILES))):
        cases = list(batch)
        outcomes = run([case.program for case in cases], target, lambda done: None)
        taken = [(case, outcome) for case, outcome in zip(cases, outcomes, strict=True) if pattern in outcome.patterns]
        yield from taken
        if taken:
            return


def usual_kernels() -> Iterator[FoundCase]:
    """Yield kernels of one and of two blocks."""
    return itertools.chain.from_iterable(itertools.islice(_kernels(), MOST_STEPS - 1))


def _contractions(tile: int) -> Iterator[FoundCase]:
    """Yield contractions whose sizes are multiples of a tile."""
    for name, op in graph_operations().items():
        if Trait.CONTRACTION in op.TRAITS:
            yield from _tiled(name, tile)


def _candidates(rule: Rule, declines: Sequence[Attempt]) -> Iterator[Iterator[FoundCase]]:
    """Yield batches of cases, the small ones first."""
    facts = [value for attempt in declines if attempt.rule == rule for value in attempt.decline.facts.values()]
    named = [value for value in facts if isinstance(value, int) and 1 < value <= MAX_TILE]
    tiles = tuple(dict.fromkeys([*named, *TILES]))
    if rule.kind == LEGALIZE.kind:
        yield from (_repeated(rule.subject, count) for count in COUNTS)
        yield from (_tiled(rule.subject, tile) for tile in tiles)
        yield from (_with_constants(rule.subject, tile) for tile in tiles)
    elif rule.kind == INTRINSIC.kind:
        if rule.subject in INTRINSICS:
            yield _on_vectors(rule.subject)
    elif rule.kind == SCHEDULE.kind:
        yield from _kernels()
        heavy = [name for name, op in graph_operations().items() if Trait.CONTRACTION in op.TRAITS]
        yield from (_with_constants(name, tile) for tile in tiles for name in heavy)


def _short(subject: str) -> str:
    return subject.removeprefix("relax.")


def _tiled(subject: str, tile: int) -> Iterator[FoundCase]:
    for kind in COLUMNS:
        for case in TABLE.tiled_cases(_short(subject), kind, tile):
            yield FoundCase(subject, kind, operator_program(_short(subject), case), case)


def _with_constants(subject: str, tile: int) -> Iterator[FoundCase]:
    """Yield cases whose windows stay small, with all operands but the first as constants."""
    for case in TABLE.tiled_cases(_short(subject), "f32", tile, SMALL):
        yield FoundCase(subject, "f32", operator_program(_short(subject), case, constants=True), case)


def _repeated(subject: str, count: int) -> Iterator[FoundCase]:
    """Yield cases of an operator of any number of operands, with many."""
    cls = operator_class(_short(subject))
    fields = cls._operand_layout.fields
    if cls.meaning is None or not any(field.kind == "variadic" for field in fields):
        return
    for kind in COLUMNS:
        for case in TABLE.cases(_short(subject), kind):
            operands = tuple(o * count if isinstance(o, list) else o for o in case.operands)
            with contextlib.suppress(ValueError):
                changed = replace(case, operands=operands, expected=expected(cls, operands, case.attributes))
                yield FoundCase(subject, kind, operator_program(_short(subject), changed), changed)


def _on_vectors(name: str) -> Iterator[FoundCase]:
    """Yield an intrinsic on vectors of two dims."""
    for kind in intrinsic_kinds(name):
        arrays = intrinsic_arguments(name, kind)
        yield FoundCase(f"tir.{name}", kind, vector_program(name, arrays))


def _kernels() -> Iterator[Iterator[FoundCase]]:
    """Yield kernels of one block after another: products, maps, and operations on rows."""
    for count in range(1, MOST_STEPS + 1):
        yield map(_kernel, itertools.product(STEPS, repeat=count))


def _kernel(steps: tuple[str, ...]) -> FoundCase:
    case = kernel_case(steps, np.random.default_rng(len(steps)))
    return FoundCase("kernel." + "_".join(steps), "f32", kernel_program(steps, case), case)
