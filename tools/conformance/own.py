"""Cases of the intrinsics of plug-ins that declare a meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from mirlo.dialects.core.dtypes import dtype
from mirlo.dialects.tir.own_intrinsics import OWN, OwnIntrinsic
from mirlo.passes.lower.formats import FORMATS
from mirlo.runtime.callbacks import Expected, check_result
from mirlo.tools.conformance.arguments import INT_KINDS
from mirlo.tools.conformance.errors import WIDE, ulp_errors
from mirlo.tools.conformance.meanings import Meaning
from mirlo.tools.conformance.programs import ProgramOutcome, TestProgram, intrinsic_program
from mirlo.tools.conformance.samples import sample

SAMPLES = 1024
LIMIT = 100
"""Integers are drawn from -100 to 100: what happens where they overflow is not declared."""

OwnCheck = tuple[str, TestProgram, Callable[[ProgramOutcome], "str | float"]]
"""The element type, the program, and the judgement of its outcome: an error in units in the last place, or what is
wrong."""


def own_names() -> list[str]:
    """Return the intrinsics of plug-ins that can be checked."""
    return sorted(name for name, row in OWN.items() if why_unchecked(row) is None)


def why_unchecked(row: OwnIntrinsic) -> str | None:
    """Return why an intrinsic of a plug-in cannot be checked, or None."""
    if not row.pure or "handle" in row.operand_kinds or row.result not in ("same", "bool"):
        return "it does not compute one element of others"
    return None if row.meaning is not None else "it declares no meaning"


def own_checks(
    name: str, program_of: Callable[[str, Sequence[np.ndarray]], TestProgram] = intrinsic_program
) -> Iterable[OwnCheck]:
    """Return the checks of an intrinsic, one for each element type of its operands."""
    row = OWN[name]
    kinds = tuple(FORMATS) if row.operand_kinds[0] == "float" else INT_KINDS
    for kind in kinds:
        arrays = [_drawn(row, operand, kind, position) for position, operand in enumerate(row.operand_kinds)]
        program = program_of(name, arrays)
        yield kind, program, partial(_judged, row, kind, program.arrays)


def _drawn(row: OwnIntrinsic, operand: str, kind: str, seed: int) -> np.ndarray:
    if operand == "float":
        return sample(kind, SAMPLES, Meaning(np.abs, row.near), seed)
    element = dtype(kind if row.operand_kinds[0] == "int" else "i32").to_numpy()
    return np.random.default_rng(seed).integers(-LIMIT, LIMIT, SAMPLES).astype(element)


def _judged(row: OwnIntrinsic, kind: str, arrays: Sequence[np.ndarray], outcome: ProgramOutcome) -> str | float:
    (got,) = outcome.results
    assert row.meaning is not None
    wide = [array.astype(WIDE) if array.dtype.kind not in "iu" else array for array in arrays]
    expected: np.ndarray = np.asarray(row.meaning(*wide))
    same = Expected(f"an array of the shape {got.shape}", lambda each: each.shape == got.shape)
    check_result(expected, row.meaning, same, f"intrinsic '{row.name}'")
    if row.result == "bool" or kind not in FORMATS:
        count = int((got != expected.astype(got.dtype)).sum())
        return f"{count} of {got.size} results differ" if count else 0.0
    errors = ulp_errors(got, expected, kind)
    worst = int(np.argmax(errors))
    if errors[worst] <= row.ulp:
        return float(errors[worst])
    at = ", ".join(f"{float(array[worst])!r}" for array in arrays)
    return (
        f"{row.name}({at}) = {float(got[worst])!r} instead of {float(expected[worst])!r}: {errors[worst]:.1f} ulp, "
        f"at most {row.ulp} are allowed"
    )
