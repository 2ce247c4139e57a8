"""Every operator and intrinsic on every element type, as the conformance tests have them, some in a model each time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.runtime.errors import MirloError

from ..unit import Check
from .folder import Folder, stored, with_options

TOGETHER = 24
"""Programs in a model."""
SAMPLES = 2048


@dataclass(frozen=True)
class Case:
    """A program, and what its results must be."""

    name: str
    program: Any
    expected: tuple[np.ndarray, ...]
    how: str
    bound: float
    facts: dict[str, Any]


def add_operators(folder: Folder, only: str = "") -> None:
    """Add units of the relax operators."""
    _add(folder, "operators", list(_operators(only)))


def add_intrinsics(folder: Folder, only: str = "") -> None:
    """Add units of the intrinsics."""
    _add(folder, "intrinsics", list(_intrinsics(only)))


def _operators(only: str) -> Iterator[Case]:
    from mirlo.tools.conformance.case import COLUMNS, TABLE
    from mirlo.tools.conformance.check import names
    from mirlo.tools.conformance.programs import operator_program

    for name in names():
        space, _, short = name.partition(".")
        for kind in COLUMNS if space == "relax" and only in short else ():
            for case in TABLE.cases(short, kind):
                expected = tuple(np.asarray(array) for array in case.expected)
                yield Case(f"{name} {kind}", operator_program(short, case), expected, "relative", case.tolerance, {})


def _intrinsics(only: str) -> Iterator[Case]:
    from mirlo.dialects.tir.intrinsics import INTRINSICS
    from mirlo.tools.conformance import check
    from mirlo.tools.conformance.programs import intrinsic_program

    for name in INTRINSICS:
        for kind in check.intrinsic_kinds(name) if only in name else ():
            arrays = check.intrinsic_arguments(name, kind, SAMPLES)
            with np.errstate(all="ignore"):
                reference, bound = check.intrinsic_reference(name, arrays), check.intrinsic_bound(name, kind)
            program = intrinsic_program(name, arrays)
            if bound is None:
                yield Case(f"tir.{name} {kind}", program, (reference,), "exact", 0.0, {})
                continue
            # f64 holds what is expected to half a unit of its own.
            slack = 0.5 if kind == "f64" else 0.0
            with np.errstate(over="ignore"):
                wide = reference.astype(np.float64)
            facts: dict[str, Any] = {"format": kind, "unit_from": check.least_unit(name)}
            if name in check.PRODUCTS:
                from mirlo.passes.lower.formats import FORMATS

                facts["from"] = FORMATS[kind].smallest_normal
            yield Case(f"tir.{name} {kind}", program, (wide,), "ulp", bound + slack, facts)


def _add(folder: Folder, group: str, cases: list[Case]) -> None:
    for first in range(0, len(cases), TOGETHER):
        batch = cases[first : first + TOGETHER]
        try:
            _add_together(folder, group, batch)
        except (MirloError, ir.MLIRError):
            for case in batch:
                try:
                    _add_together(folder, group, [case])
                except (MirloError, ir.MLIRError) as problem:
                    folder.left_out.append((f"{group}/{case.name}", str(problem).strip().splitlines()[0]))


def _add_together(folder: Folder, group: str, cases: list[Case]) -> None:
    import mirlo
    from mirlo.tools.conformance.case import TOLERANCE
    from mirlo.tools.conformance.programs import module_of

    with make_context(), ir.Location.unknown():
        module, counts = module_of([case.program for case in cases])
        executable = mirlo.compile(module, target=with_options(folder.target, ""), cache=False)
    arrays = {f"i{n}": x for n, x in enumerate(x for case in cases for x in case.program.arrays)}
    inputs = tuple({"key": key} for key in arrays)
    checks: list[Check] = []
    at = 0
    for case, count in zip(cases, counts, strict=True):
        keys = [f"o{at + n}" for n in range(count)]
        specs = executable.outputs[at : at + count]
        for key, array, spec in zip(keys, case.expected, specs, strict=True):
            arrays[key] = _narrowed(array, spec.dtype)
        bound = case.bound
        if case.how == "relative":
            bound = max(bound, *(TOLERANCE.get(spec.dtype, 0.0) for spec in specs))
        checks.append(stored(case.name, range(at, at + count), keys, bound, case.how, **case.facts))
        at += count
    first, last = (case.name.split(".")[-1] for case in (cases[0], cases[-1]))
    folder.add(
        executable, f"{first} to {last}", group, inputs=inputs, checks=tuple(checks), arrays=arrays, seconds=90.0
    )


def _narrowed(expected: np.ndarray, dtype: str) -> np.ndarray:
    """Return the expected results of an operator, in the type of the results if that is an integer type."""
    if dtype.startswith(("i", "u")) or dtype == "bool":
        from mirlo.runtime.dtypes import numpy_dtype

        kind = numpy_dtype(dtype)
        # Files of numpy do not keep others, such as integers of 4 bits.
        if kind.isbuiltin == 1:
            return expected.astype(kind)
    return expected.astype(np.float64)
