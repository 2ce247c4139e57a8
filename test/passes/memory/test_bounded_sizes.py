"""Upper bounds of data-dependent sizes."""

from __future__ import annotations

from mirlo.dialects.core import dims as D
from mirlo.passes.memory.symbols import FunctionSymbols


def test_each_of_thousands_of_sizes_is_bounded_by_the_one_before() -> None:
    count = 3000
    bounds = {f"s{i}": D.parse(f"s{i - 1} + 1" if i else "n") for i in range(count)}
    symbols = FunctionSymbols(["n"], bounds, {name: number for number, name in enumerate(bounds)})
    for i in (0, 1, count - 1):
        assert symbols.bounded(D.parse(f"4*s{i}")) == D.parse(f"4*n + {4 * i}")


def test_sizes_whose_bounds_shrink_or_are_circular() -> None:
    bounds = {"a": D.parse("n"), "b": D.parse("16 - a"), "c": D.parse("2*b"), "d": D.parse("e"), "e": D.parse("d")}
    symbols = FunctionSymbols(["n"], bounds, {name: number for number, name in enumerate(bounds)})
    assert symbols.bounded(D.parse("a + 3")) == D.parse("n + 3")
    assert symbols.bounded(D.parse("d")) is D.UNKNOWN
    assert symbols.bounded(D.parse("z")) is D.UNKNOWN
    assert D.symbols_of(symbols.bounded(D.parse("c"))) <= {"n"}
