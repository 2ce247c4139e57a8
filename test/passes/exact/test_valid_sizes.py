"""Sizes at which kernels are compared are sizes of calls: what calls check, `mirlo verify` keeps."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pytest
from onnx_models import F32, I64, make_model, node

import mirlo
from mirlo.dialects.core import dims as D
from mirlo.passes.exact.sizes import MOST_POINTS, TRIED, SizeSearch
from mirlo.passes.exact.valid_sizes import FAILED_STEPS, FEW_STEPS, MOST_STEPS, ValidSizes
from mirlo.passes.exact.verdict import DIFFERENT
from mirlo.tools.verify.model import verify_model

Sizes = Mapping[str, int]
Arguments = dict[str, np.ndarray]


@dataclass
class Case:
    """A model whose sizes are related, and the arguments of a call in which some of its symbols have sizes."""

    nodes: list[Any]
    inputs: dict[str, tuple[int, tuple[Any, ...]]]
    arguments: Callable[[Sizes], Arguments]
    outputs: list[str] = field(default_factory=lambda: ["z"])
    constants: dict[str, Any] = field(default_factory=dict)


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _floats(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def split(rng: random.Random) -> Case:
    """Return a Split whose parts add up to an axis."""
    size, count = rng.randint(5, 40), rng.randint(2, 3)
    outputs = [f"y{i}" for i in range(count)]
    nodes = [node("Abs", "x", "a"), node("Split", "a s", " ".join(outputs), axis=0)]

    def arguments(sizes: Sizes) -> Arguments:
        parts = [sizes.get(f"y0.s{i + 1}") for i in range(count)]
        rest = size - sum(part or 0 for part in parts)
        for i, part in enumerate(parts):
            if part is None:
                parts[i], rest = rest, 0
        return {"x": _floats(size), "s": np.array(parts, np.int64)}

    return Case(nodes, {"x": (F32, (size,)), "s": (I64, (count,))}, arguments, outputs)


def split_of_a_dynamic_axis(rng: random.Random) -> Case:
    """Return a Split whose parts add up to an axis of an input."""
    width = rng.randint(1, 9)
    nodes = [node("Abs", "x", "a"), node("Split", "a s", "y0 y1", axis=0), node("Neg", "y1", "z")]

    def arguments(sizes: Sizes) -> Arguments:
        first, second = sizes.get("y0.s1"), sizes.get("y0.s2")
        n = sizes.get("n", (first or 0) + (second or 0))
        first = n - (second or 0) if first is None else first
        return {"x": _floats(n, width), "s": _ints(first, n - first if second is None else second)}

    return Case(nodes, {"x": (F32, ("n", width)), "s": (I64, (2,))}, arguments, ["y0", "z"])


def concat(rng: random.Random) -> Case:
    """Return a Concat that has the size of what is added to it."""
    other = rng.randint(1, 20)
    nodes = [node("Concat", "x y", "a", axis=0), node("Add", "a w", "z")]

    def arguments(sizes: Sizes) -> Arguments:
        n = sizes.get("n", 1)
        return {"x": _floats(n, 7), "y": _floats(other, 7), "w": _floats(sizes.get("k", n + other), 7)}

    shapes = {"x": ("n", 7), "y": (other, 7), "w": ("k", 7)}
    return Case(nodes, {name: (F32, shape) for name, shape in shapes.items()}, arguments)


def reshape(rng: random.Random) -> Case:
    """Return a Reshape to sizes that only the call knows."""
    width = rng.choice([1, 6, 12])
    nodes = [node("Abs", "x", "a"), node("Reshape", "a s", "b", allowzero=1), node("Softmax", "b", "z")]

    def arguments(sizes: Sizes) -> Arguments:
        first, second = sizes.get("b.s1", 1), sizes.get("b.s2")
        n = sizes.get("n", first * (width if second is None else second) // width)
        second = n * width // max(first, 1) if second is None else second
        return {"x": _floats(n, width), "s": _ints(first if "b.s1" in sizes else n * width // max(second, 1), second)}

    return Case(nodes, {"x": (F32, ("n", width)), "s": (I64, (2,))}, arguments)


def multiple(rng: random.Random) -> Case:
    """Return a Reshape that needs a multiple of a number."""
    factor = rng.randint(2, 6)
    nodes = [node("Abs", "x", "a"), node("Reshape", "a s", "b"), node("Softmax", "b", "z")]

    def arguments(sizes: Sizes) -> Arguments:
        return {"x": _floats(sizes.get("n", factor))}

    return Case(nodes, {"x": (F32, ("n",))}, arguments, constants={"s": _ints(-1, factor)})


def expand(rng: random.Random) -> Case:
    """Return an Expand, whose dims are equal or 1."""
    rows = rng.randint(2, 12)
    nodes = [node("Abs", "x", "a"), node("Expand", "a s", "b"), node("Exp", "b", "z")]

    def arguments(sizes: Sizes) -> Arguments:
        wanted = sizes.get("b.s1", sizes.get("n", 1)), sizes.get("b.s2", 1)
        n = sizes.get("n", wanted[0] if wanted[0] != 1 else 1)
        return {"x": _floats(n, rows), "s": _ints(*wanted)}

    return Case(nodes, {"x": (F32, ("n", rows)), "s": (I64, (2,))}, arguments)


def slices(rng: random.Random) -> Case:
    """Return a Slice, whose results are not larger than the axis."""
    size = rng.randint(4, 30)
    nodes = [node("Abs", "x", "a"), node("Slice", "a b e", "c"), node("Exp", "c", "z")]

    def arguments(sizes: Sizes) -> Arguments:
        length = sizes.get("c.s1", sizes.get("c", 1))
        return {"x": _floats(size), "b": _ints(size - length), "e": _ints(size)}

    return Case(nodes, {"x": (F32, (size,)), "b": (I64, (1,)), "e": (I64, (1,))}, arguments)


def windows(rng: random.Random) -> Case:
    """Return a convolution and a TopK that need a least size."""
    size, least = rng.randint(2, 5), rng.randint(2, 9)
    nodes = [node("Conv", "x w", "c"), node("TopK", "c k", "t i", axis=2), node("Exp", "t", "z")]

    def arguments(sizes: Sizes) -> Arguments:
        return {"x": _floats(1, 2, sizes.get("n", size + least - 1))}

    constants = {"w": _floats(3, 2, size), "k": _ints(least)}
    return Case(nodes, {"x": (F32, (1, 2, "n"))}, arguments, constants=constants)


def equal(rng: random.Random) -> Case:
    """Return a sum of arrays with dims that are equal or 1."""
    width = rng.randint(1, 9)
    nodes = [node("Add", "x y", "a"), node("Mul", "a v", "z")]

    def arguments(sizes: Sizes) -> Arguments:
        n = sizes.get("n", 1)
        return {"x": _floats(n, width), "y": _floats(sizes.get("m", n), width), "v": _floats(n, width)}

    shapes = {"x": ("n", width), "y": ("m", width), "v": ("n", width)}
    return Case(nodes, {name: (F32, shape) for name, shape in shapes.items()}, arguments)


CASES = [split, split_of_a_dynamic_axis, concat, reshape, multiple, expand, slices, windows, equal]


def abs_(dim: D.Dim) -> D.Dim:
    return D.maximum(dim, -dim)


def _sum(symbols: list[str], total: int) -> list[D.Dim]:
    dim = sum((D.symbol(name) for name in symbols), start=-total)
    return [dim, -dim]


FACTS: dict[str, list[D.Dim]] = {
    "sum": _sum(["a", "b", "c"], 31),
    "equal": [D.symbol("a") - D.symbol("b"), D.symbol("b") - D.symbol("a")],
    "one or equal": [-D.minimum(1, abs_(D.symbol("a") - 1)) * D.minimum(1, abs_(D.symbol("a") - D.symbol("b")))],
    "one or a number": [-D.minimum(1, abs_(D.symbol("a") - 1)) * D.minimum(1, abs_(D.symbol("a") - 22))],
    "multiple": [-(D.symbol("a") % 12)],
    "a chain": [*_sum(["a", "b"], 40), *_sum(["b", "c"], 20), D.symbol("c") - 7],
    "far": [D.symbol("a") - 100_000],
    "product": [D.symbol("a") * D.symbol("b") - 6 * D.symbol("c"), 6 * D.symbol("c") - D.symbol("a") * D.symbol("b")],
    "quotient": [D.symbol("b") // D.symbol("a") - 2],
    "none": [],
}


@pytest.mark.parametrize("name", FACTS)
def test_sizes_are_found_near_any(name: str) -> None:
    """From each proposal: all facts hold, and what holds already stays."""
    valid = ValidSizes(["a"], FACTS[name])
    assert valid.symbols[0] == "a" and set(valid.symbols) <= {"a", "b", "c"}
    for start in product((0, 1, 3, 17), repeat=3):
        proposed = dict(zip("abc", start, strict=True))
        found = valid.nearest(proposed)
        assert found is not None, proposed
        values = [D.substitute(fact, found) for fact in FACTS[name]]
        assert all(isinstance(value, int) and value >= 0 for value in values) and min(found.values()) >= 0
        if valid.holds(proposed):
            assert found == {name: proposed[name] for name in valid.symbols}


def test_facts_about_other_sizes_are_left_out() -> None:
    """Only facts that relate sizes of the kernel to others count; none is found where none exists."""
    other = D.symbol("x") - D.symbol("y")
    assert ValidSizes(["a"], [other]).facts == [] == ValidSizes([], [other]).facts
    assert ValidSizes(["a"], [3 - D.symbol("a"), D.symbol("a") - 5]).nearest({"a": 4}) is None
    assert ValidSizes(["a"], [3 - D.symbol("a")]).nearest({"a": 4}, fixed=["a"]) is None


@pytest.mark.parametrize("count", [1, 100])
def test_searches_that_find_nothing_have_a_limit(count: int) -> None:
    """Sizes of a chain of products that none has: the first searches try long, all others a little."""
    a, b, c, d = (D.symbol(name) for name in "abcd")
    facts = [a * b - c * d - 1, c * d - a * b + 3, a * c - b * d - 1, b * d - a * c - 2, a - 5, 900 - a]
    valid = ValidSizes(["a", "b", "c", "d"], facts)
    assert all(valid.nearest({"a": size}, TRIED) is None for size in range(count))
    assert 0 < valid.failed_steps <= FAILED_STEPS + MOST_STEPS + FEW_STEPS * count


def test_kernels_of_many_elements_run_at_their_least_sizes() -> None:
    """A pool of images of 900 x 120 x 32 elements has more of them than others at any size of a batch."""
    n = D.parse("n")
    search = SizeSearch(["n"], [("in", (n, 900, 120, 40)), ("out", (n, 900, 120))], [], ["loop"])
    assert [sizes["n"] for sizes in search] == [1, 2] and search.compared == [{"n": 1}, {"n": 2}]
    for width, expected in ((400, [1]), (40, [1, 2]), (4000, [1, 2])):  # at no size is there memory for the last one
        search = SizeSearch(["n"], [("in", (n, 900, 120, width)), ("out", (n, 900, 120))], [], ["loop"])
        assert [sizes["n"] for sizes in search] == expected


def test_sizes_have_a_limit_of_work() -> None:
    """All sizes are tried where points grow in proportion, and the larger ones are not where they grow more."""

    def largest(power: int, factor: int) -> int:
        places: list[str] = ["loop"] * len(TRIED)
        search = SizeSearch(["n"], [], [], places, points=lambda sizes: factor * sizes["n"] ** power)
        for number, _ in enumerate(search):
            search.note(np.eye(1, 3 * len(places), number, dtype=np.int64)[0])  # each size has a new case
        return max(sizes["n"] for sizes in search.compared)

    assert largest(1, MOST_POINTS) == max(TRIED) == largest(0, 0)
    assert largest(3, 1) == max(size for size in TRIED if size**3 <= MOST_POINTS) < max(TRIED)


@pytest.mark.sample(9)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_a_call_accepts_the_sizes_of_kernels(make: Callable[[random.Random], Case], seed: int) -> None:
    case = make(random.Random(seed))
    model = make_model(case.nodes, case.inputs, case.outputs, case.constants)
    f = mirlo.compile(model, cache=False)
    verification = verify_model(model, processor="x86-64-v3", cache=False)
    assert all(verdict.status != DIFFERENT for verdict in verification.verdicts)
    drawn = [sizes for verdict in verification.verdicts for sizes in verdict.sizes if sizes]
    assert len(drawn) > 1
    for sizes in drawn:
        f.run(case.arguments(sizes))
