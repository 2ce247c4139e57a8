"""Operators of relax whose sizes are dynamic: a call refuses the sizes that inference refuses as numbers, no others.

It accesses its own memory only.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_compiler import sanitizer_flags, with_c
from libraries import make_program, make_source_program
from size_cases import DynamicCase, arrays_of, is_accepted, other_sizes, size_cases, with_one_less

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core import dims as D
from mirlo.extend.ops import (
    DialectOp,
    TensorType,
    Trait,
    operand,
    register_dialect,
    require_at_most,
    require_multiple,
    result,
)
from mirlo.passes.registry import PassError
from mirlo.runtime.errors import InputError, MirloError
from mirlo.targets.c.compiler import find_compiler
from mirlo.testing import temporary_registrations
from mirlo.tools.conformance import programs
from mirlo.tools.fuzz.guards import guarded_places, judge_call

PARTS = 8
"""Tests over which the operators are spread."""
UNCOMPILED = ("slice_bounds",)
"""Operators of which a size decides the algorithm."""


def _departures(operator: str, case: DynamicCase, target: str) -> Iterator[str]:
    """Yield the sizes for which a call does what inference does not say."""
    try:
        function = mirlo.compile(case.module(case.shapes), target, jobs=1, opt_level=0)
    except PassError:  # a size decides the algorithm
        fewer = with_one_less(case.shapes, [array.shape for array in case.program.arrays])
        if DynamicCase(case.program, fewer).sizes:
            yield from _departures(operator, DynamicCase(case.program, fewer), target)
        return
    places = guarded_places(function)
    for sizes in other_sizes(case.sizes):
        shapes, accepted = case.static(sizes), is_accepted(case, sizes)
        feeds = dict(zip((spec.name for spec in function.inputs), arrays_of(case, sizes), strict=True))
        problem = judge_call(places, feeds)
        if problem is not None:
            yield f"{operator} of {shapes}: {problem}"
        try:
            function.run(feeds)
        except MirloError as error:
            if accepted:
                yield f"{operator} of {shapes}: {error}"
        else:
            if not accepted:
                yield f"{operator} of {shapes} is computed"


@pytest.mark.sample(6)
@pytest.mark.parametrize("target", ["llvm", with_c("c")])
@pytest.mark.parametrize("part", range(PARTS))
def test_calls_refuse_what_inference_refuses(part: int, target: str) -> None:
    with make_context(), ir.Location.unknown():
        listed = list(size_cases())
        assert len({operator for operator, _ in listed}) >= 30, "operators that state conditions"
        wrong = [text for operator, case in listed[part::PARTS] for text in _departures(operator, case, target)]
    assert not wrong, "\n".join(wrong)


@pytest.fixture
def pair_sine() -> Iterator[type[DialectOp]]:
    with temporary_registrations(__name__):

        class PairSine(DialectOp, name="pair_sine", dialect=register_dialect("pairs")):
            """The sine of pairs of columns, no more than there are rows."""

            TRAITS = (Trait.ELEMENTWISE,)
            x, output = operand(), result()

            @staticmethod
            def infer(x: TensorType) -> TensorType:
                require_multiple(x.shape[1], 2, f"the columns of {x} must be pairs")
                require_at_most(x.shape[1], x.shape[0], f"{x} must have no more columns than rows")
                return x

            @staticmethod
            def meaning(x: Any) -> Any:
                return np.sin(x)

        yield PairSine


@pytest.mark.parametrize("target", ["llvm", with_c("c"), with_c("c,llvm")])
def test_operators_of_plug_ins(target: str, pair_sine: type[DialectOp]) -> None:
    program = programs.TestProgram("pairs", [np.ones((6, 4), np.float32)], lambda values: [pair_sine.make(*values)])
    with make_context(), ir.Location.unknown():
        case = DynamicCase(program, [[D.symbol("n"), D.symbol("m")]])
        assert not list(_departures("pairs.pair_sine", case, target))
        function = mirlo.compile(case.module(case.shapes), target)
    for shape, text in (((6, 3), "must be pairs, where m = 3"), ((2, 4), "no more columns than rows")):
        with pytest.raises(InputError, match=text):
            function(np.ones(shape, np.float32))


@pytest.mark.sample(0)
@pytest.mark.parametrize("code", [with_c("llvm"), with_c("c")])
@pytest.mark.parametrize("part", range(PARTS))
def test_libraries_return_the_status(code: str, part: int, tmp_path: Path) -> None:
    """A program in C gets `MIRLO_SIZES`, and the text of the condition."""
    flags = [] if code == "llvm" else sanitizer_flags(find_compiler(), "address,undefined", tmp_path / "probe")
    with make_context(), ir.Location.unknown():
        cases = [case for operator, case in size_cases() if operator not in UNCOMPILED][part::PARTS]
        module = programs.module_of([case.typed(case.shapes) for case in cases])[0]
        make = make_program if code == "llvm" else make_source_program
        program = make(module, tmp_path / "model", find_compiler(), flags=flags)
        refused = 0
        for case in cases:
            for sizes in other_sizes(case.sizes):
                given = [arrays_of(each, sizes if each is case else each.sizes) for each in cases]
                program.write_inputs([array for arrays in given for array in arrays])
                done = program.start(calls=1)
                accepted = is_accepted(case, sizes)
                assert done.returncode == (0 if accepted else 2), (case.program.name, sizes, done.stderr)
                assert accepted or "found" in done.stderr
                refused += not accepted
    assert refused >= len(cases)
