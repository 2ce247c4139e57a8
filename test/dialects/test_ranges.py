"""The range of an affine expression against all of its values."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.dims import symbol
from mirlo.dialects.tir.affine import affine_range

DIMS = 3


def random_affine(rng: random.Random, depth: int) -> tuple[str, str]:
    """Return an expression in the syntax of affine maps, and in that of Python."""
    if depth == 0 or rng.random() < 0.2:
        position = rng.randrange(DIMS)
        number = str(rng.randint(0, 5))
        return rng.choice([(f"d{position}", f"d[{position}]")] * 3 + [(number, number)])
    left, left_python = random_affine(rng, depth - 1)
    kind = rng.choice(["+", "+", "-", "*", "floordiv", "ceildiv", "mod"])
    if kind in ("+", "-"):
        right, right_python = random_affine(rng, depth - 1)
        return f"({left} {kind} {right})", f"({left_python} {kind} {right_python})"
    number = rng.randint(1, 5) if kind != "*" else rng.randint(-3, 3)
    python = {
        "*": f"({left_python} * {number})",
        "floordiv": f"({left_python} // {number})",
        "ceildiv": f"(-(-{left_python} // {number}))",
        "mod": f"({left_python} % {number})",
    }
    return f"({left} {kind} {number})", python[kind]


@pytest.fixture(scope="module")
def context() -> Any:
    with make_context() as made:
        yield made


def parse(text: str) -> Any:
    return ir.Attribute.parse(f"affine_map<(d0, d1, d2) -> ({text})>").value.results[0]


@pytest.mark.parametrize("seed", range(400))
def test_range_is_exact(seed: int, context: Any) -> None:
    rng = random.Random(seed)
    text, python = random_affine(rng, 3)
    extents = tuple(rng.randint(1, 6) for _ in range(DIMS))
    found = affine_range(parse(text), extents)
    if found is None:
        return
    values = {eval(python, {"d": point}) for point in itertools.product(*map(range, extents))}
    assert (found.low, found.high) == (min(values), max(values)), (text, extents)
    assert not found.is_dense or values == set(range(found.low, found.high + 1)), (text, extents)


@pytest.mark.parametrize(
    "text, extents, expected",
    [
        ("d0 * 2 + d1", (4, 3, 1), (0, 8)),
        ("d0 - 1", (4, 1, 1), (-1, 2)),
        ("(d0 + 3) mod 4", (2, 1, 1), (0, 3)),
        ("(d0 * 2) floordiv 3", (5, 1, 1), (0, 2)),
        ("d0 * 4 + d1 mod 4", (2, 9, 1), (0, 7)),
        ("d0 - d0 mod 2", (4, 1, 1), (0, 2)),
        ("(d0 * 4 + d1) mod 8", (3, 4, 1), (0, 7)),
    ],
)
def test_known_ranges(text: str, extents: tuple[int, ...], expected: tuple[int, int], context: Any) -> None:
    found = affine_range(parse(text), extents)
    assert found is not None and (found.low, found.high) == expected


@pytest.mark.parametrize(
    "text, extents", [("d0 mod 2 - d0 mod 3", (4, 1, 1)), ("d0", (0, 1, 1)), ("d0", (symbol("n"), 1, 1))]
)
def test_what_is_not_known(text: str, extents: Any, context: Any) -> None:
    assert affine_range(parse(text), extents) is None
