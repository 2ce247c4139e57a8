"""Combinations of rows that are compared in place of sums: where they are, and what they find."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from scheduled_pairs import kernel_pairs

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.exact import products
from mirlo.passes.exact.compare import KernelPair
from mirlo.passes.exact.field import FieldArithmetic
from mirlo.passes.exact.kernel_definition import BlockDefinition, DefinitionResults, RoundSettings
from mirlo.passes.exact.memory import GuardedBuffer
from mirlo.passes.exact.operations import OperationList, operations_in
from mirlo.passes.exact.primes import P
from mirlo.passes.exact.verdict import DIFFERENT, EQUAL

ROWS, COLUMNS = 20, 24
FIELD = FieldArithmetic(False, False)
EPILOGUES = {
    "none": "",
    "bias": '%y1 = "relax.add"(%y0, %b) : ({m}, {v}) -> {m}',
    "residual": '%y1 = "relax.add"(%r, %y0) : ({m}, {m}) -> {m}',
    "bias, less another matrix": '%y1 = "relax.add"(%y0, %b) : ({m}, {v}) -> {m}\n'
    '%y2 = "relax.subtract"(%y1, %r) : ({m}, {m}) -> {m}',
}
"""What kernels add to products."""
BOUNDED = {
    "relu": '%y1 = "relax.relu"(%y0) : ({m}) -> {m}',
    "bias, clip": '%y1 = "relax.add"(%y0, %b) : ({m}, {v}) -> {m}\n'
    '%y2 = "relax.clip"(%y1) {{min = 0.0, max = 6.0}} : ({m}) -> {m}',
    "least of 3": '%y1 = "relax.clip"(%y0) {{max = 3.0}} : ({m}) -> {m}',
    "residual, relu": '%y1 = "relax.add"(%y0, %r) : ({m}, {m}) -> {m}\n%y2 = "relax.relu"(%y1) : ({m}) -> {m}',
    "relu, residual, relu": '%y1 = "relax.relu"(%y0) : ({m}) -> {m}\n'
    '%y2 = "relax.add"(%y1, %r) : ({m}, {m}) -> {m}\n%y3 = "relax.relu"(%y2) : ({m}) -> {m}',
}
"""What kernels add to products, with maxima and minima of constants."""
OTHERS = {
    "negated": '%y1 = "relax.subtract"(%r, %y0) : ({m}, {m}) -> {m}',
    "twice": '%y1 = "relax.add"(%y0, %y0) : ({m}, {m}) -> {m}',
    "maximum of a matrix": '%y1 = "relax.maximum"(%y0, %r) : ({m}, {m}) -> {m}',
    "two bounds": '%y1 = "relax.relu"(%y0) : ({m}) -> {m}\n%y2 = "relax.clip"(%y1) {{min = 1.0}} : ({m}) -> {m}',
    "a sum that depends on the product": '%y1 = "relax.relu"(%y0) : ({m}) -> {m}\n'
    '%y2 = "relax.add"(%y0, %y1) : ({m}, {m}) -> {m}',
    "a factor": '%y1 = "relax.multiply"(%y0, %r) : ({m}, {m}) -> {m}',
}


MODULES: list[ir.Module] = []
"""The modules of a test's kernels, which do not keep them."""


@pytest.fixture(name="context", autouse=True)
def _context(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(products, "LEAST_POINTS", 1)
    with make_context(), ir.Location.unknown():
        yield
        MODULES.clear()


def _pair(epilogue: str, rows: int = ROWS) -> KernelPair:
    matrix, vector = f"tensor<{rows}x{COLUMNS}xf32>", f"tensor<{COLUMNS}xf32>"
    left, right = f"tensor<{rows}x30xf32>", f"tensor<30x{COLUMNS}xf32>"
    lines = epilogue.format(m=matrix, v=vector)
    last = max(f"%y{i}" for i in range(4) if i == 0 or f"%y{i} =" in lines)
    text = f"""
    func.func @main(%x: {left}, %w: {right}, %b: {vector}, %r: {matrix}) -> {matrix} {{
      %y0 = "relax.matmul"(%x, %w) : ({left}, {right}) -> {matrix}
      {lines}
      return {last} : {matrix}
    }}
    """
    ((module, pair),) = kernel_pairs(text, options="cpu=x86-64-v4")
    MODULES.append(module)
    return pair


def _results(pair: KernelPair, number: int = 0) -> DefinitionResults:
    compared = tuple(OperationList(pair.definition.operation).compared_constants())
    return pair.definition.results(FIELD, RoundSettings(number, compared=compared, has_easy_sums=True))


def _is_combined(pair: KernelPair) -> bool:
    assert isinstance(pair.definition, BlockDefinition)
    return pair.definition._combined is not None


@pytest.mark.parametrize("name", [*EPILOGUES, *BOUNDED])
def test_every_wrong_element_is_seen(name: str) -> None:
    """Results with bounds have combinations in the rounds in which all values are between them."""
    pair = _pair((EPILOGUES | BOUNDED)[name])
    assert _is_combined(pair)
    results = _results(pair, 1)
    assert results._outputs is None
    right = results.outputs[0].planes[0].copy()
    assert results.are_equal([GuardedBuffer.of([right])])
    for position in range(len(right)):
        wrong = right.copy()
        wrong[position] = (wrong[position] + 1) % P
        assert not results.are_equal([GuardedBuffer.of([wrong])])
    beyond = right.copy()
    beyond.view(np.uint32)[5] += P
    assert not results.are_equal([GuardedBuffer.of([beyond])])
    swapped = right.reshape(ROWS, COLUMNS)[::-1].reshape(-1)
    assert not results.are_equal([GuardedBuffer.of([swapped])])


@pytest.mark.parametrize("name", BOUNDED)
def test_bounds_cut_in_other_rounds(name: str) -> None:
    """Many elements are a bound where combinations are not compared, and none where they are."""
    pair = _pair(BOUNDED[name])
    assert pair.verify().status == EQUAL
    for number, is_cut in enumerate((True, False, True)):
        results = _results(pair, number)
        assert (results._outputs is not None) == is_cut
        counts = np.unique(results.outputs[0].planes[0], return_counts=True)[1]
        assert (counts.max() > 0.25 * ROWS * COLUMNS) == is_cut


@pytest.mark.parametrize("name", BOUNDED)
def test_few_sums_need_more_than_one_round(name: str) -> None:
    """One round alone has to show all kinds of faults."""
    pair = _pair(BOUNDED[name])
    assert pair.verify(rounds=1).status == EQUAL
    assert all(not settings.has_easy_sums for *_, settings in pair.definition._results)


@pytest.mark.parametrize("name", OTHERS)
def test_other_results_are_compared_element_by_element(name: str) -> None:
    pair = _pair(OTHERS[name])
    assert not _is_combined(pair) and _results(pair, 1)._outputs is not None
    assert pair.verify().status == EQUAL


def test_few_rows_are_compared_element_by_element() -> None:
    for rows in (15, 16):
        pair = _pair("", rows)
        assert _is_combined(pair) == (rows == 16)


@pytest.mark.parametrize("arithmetic", [FieldArithmetic(False, True), FieldArithmetic(False, False, True)])
def test_infinities_and_exact_casts_are_compared_element_by_element(arithmetic: FieldArithmetic) -> None:
    pair = _pair("")
    assert pair.definition.results(arithmetic, RoundSettings(0))._outputs is not None


def test_the_bound_counts_further_variables() -> None:
    """Combinations are of one degree more, an input that is a product of two factors is of two."""
    separable, combined = (_pair(EPILOGUES["bias"], rows).verify().bits for rows in (15, 16))
    both = _pair(BOUNDED["relu"]).verify().bits
    assert separable == pytest.approx(2 * np.log2(P / 6)) and combined == pytest.approx(2 * np.log2(P / 5))
    assert both == pytest.approx(2 * np.log2(P / 7))


@pytest.mark.parametrize("name", [*EPILOGUES, *BOUNDED])
def test_the_first_wrong_element_is_named(name: str) -> None:
    """All sums are computed once a combination differs."""
    pair = _pair((EPILOGUES | BOUNDED)[name])
    assert pair.verify().status == EQUAL
    clone = pair.scheduled.clone()
    store = [op for op in operations_in(clone) if op.name in ("vector.store", "vector.maskedstore")][0]
    store.erase()
    verdict = KernelPair(pair.definition, clone).verify()
    assert verdict.status == DIFFERENT and verdict.wrong is not None
    assert verdict.wrong.total == ROWS * COLUMNS and 0 < verdict.wrong.count < ROWS * COLUMNS
    results = _results(pair)
    assert len(results.outputs[0].planes[0]) == ROWS * COLUMNS
    assert np.ravel_multi_index(verdict.wrong.first, (ROWS, COLUMNS)) < ROWS * COLUMNS


def test_each_round_has_another_combination() -> None:
    pair = _pair("")
    first, second = (_results(pair, number)._combinations for number in range(2))
    assert first is not None and second is not None and not np.array_equal(first._numbers, second._numbers)
