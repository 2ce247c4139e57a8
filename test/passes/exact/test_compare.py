"""What the comparison of two forms of a kernel finds: maxima that residues do not see, and cases of sizes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from scheduled_pairs import kernel_pairs

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.exact.compare import KernelPair
from mirlo.passes.exact.field import FieldArithmetic
from mirlo.passes.exact.kernel_definition import RoundSettings
from mirlo.passes.exact.operations import operations_in
from mirlo.passes.exact.primes import P
from mirlo.passes.exact.sizes import parse_sizes
from mirlo.passes.exact.values import element_of
from mirlo.passes.exact.verdict import DIFFERENT, EQUAL


@pytest.fixture(name="context", autouse=True)
def _context() -> Iterator[None]:
    with make_context(), ir.Location.unknown():
        yield


def _program(operator: str, attributes: str, operand: str, result: str) -> str:
    return f"""
    func.func @main(%x: tensor<{operand}>) -> tensor<{result}> {{
      %y = "relax.{operator}"(%x) {{{attributes}}} : (tensor<{operand}>) -> tensor<{result}>
      return %y : tensor<{result}>
    }}
    """


def _constant(before: ir.Operation, attribute: ir.Attribute) -> ir.Value:
    with ir.InsertionPoint(before):
        attributes = {"value": attribute}
        return ir.Operation.create("arith.constant", results=[attribute.type], attributes=attributes).results[0]


def _without_maxima(pair: KernelPair) -> KernelPair:
    """Return the pair with zero in place of all maxima of the scheduled form."""
    clone = pair.scheduled.clone()
    for op in [each for each in operations_in(clone) if each.name in ("arith.maximumf", "vector.reduction")]:
        kind = op.results[0].type
        if op.name == "arith.maximumf" or "maximumf" in str(op.attributes["kind"]):
            attribute = ir.FloatAttr.get(element_of(kind), 0.0)
            vector = isinstance(kind, ir.VectorType)
            zero = _constant(op, ir.DenseElementsAttr.get_splat(kind, attribute) if vector else attribute)
            op.results[0].replace_all_uses_with(zero)
    return KernelPair(pair.definition, clone)


def test_exponentials_out_of_range_are_found() -> None:
    """Over a field, softmax is the same function without its maximum; large floats overflow."""
    text = _program("softmax", "axis = 1 : i64", "5x40xf32", "5x40xf32")
    ((_, pair),) = kernel_pairs(text, options="cpu=x86-64-v4")
    assert pair.verify().status == EQUAL
    verdict = _without_maxima(pair).verify()
    assert verdict.status == DIFFERENT and verdict.why.startswith("of large numbers, result 0 differs in")


def test_rows_of_softmax_sum_to_one() -> None:
    """Exponentials, sums and quotients are those of numbers: g^x / sum(g^x), exactly."""
    ((_, pair),) = kernel_pairs(_program("softmax", "axis = 1 : i64", "5x40xf32", "5x40xf32"))
    results = pair.definition.results(FieldArithmetic(True, True), RoundSettings(0))
    rows = results.outputs[0].planes[0].reshape(5, 40)
    assert [sum(map(int, row)) % P for row in rows] == [1] * 5


def test_a_maximum_of_fewer_operands_is_found() -> None:
    """Each operand is the greatest one in some round: a maximum that skips the last ones differs."""
    text = _program("reduce_max", "axes = array<i64: 0>, keepdims = true", "100xf32", "1xf32")
    ((_, pair),) = kernel_pairs(text, options="cpu=x86-64-v2")
    verdict = pair.verify()
    assert verdict.status == EQUAL and verdict.rounds > 100 and verdict.extremes > 0.99
    clone = pair.scheduled.clone()
    last = [op for op in operations_in(clone) if op.name == "vector.load"][-1]
    last.operands[1] = _constant(last, ir.IntegerAttr.get(ir.IndexType.get(), 0))
    assert KernelPair(pair.definition, clone).verify().status == DIFFERENT


def test_sizes_are_added_until_no_loop_has_a_new_case() -> None:
    kind = '?x20xf32, #relax.dims<["n", 20]>'
    text = _program("softmax", "axis = 1 : i64", kind, kind)
    ((_, pair),) = kernel_pairs(text, options="cpu=x86-64-v4")
    verdict = pair.verify()
    assert verdict.status == EQUAL and {"n": 1} in verdict.sizes and len(verdict.sizes) > 5
    assert pair.verify(sizes=parse_sizes("n=4..6")).sizes == ({"n": 4}, {"n": 5}, {"n": 6})


def test_a_fault_at_some_sizes_names_the_size() -> None:
    kind = '?xf32, #relax.dims<["n"]>'
    ((_, pair),) = kernel_pairs(_program("exp", "", kind, kind), options="cpu=x86-64-v4")
    clone = pair.scheduled.clone()
    store = next(op for op in operations_in(clone) if op.name in ("vector.store", "vector.maskedstore"))
    store.erase()
    verdict = KernelPair(pair.definition, clone).verify()
    assert verdict.status == DIFFERENT and ", where n = " in verdict.why and len(verdict.sizes) == 1


@pytest.mark.parametrize("text", ["n", "n=", "n=a", "n=3..1", "n=-1", "n=1..2000"])
def test_sizes_that_are_not_understood_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_sizes(text)


def test_sizes_are_combined() -> None:
    assert parse_sizes("a=1,3;b=2..3") == [{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 3, "b": 2}, {"a": 3, "b": 3}]
    assert parse_sizes("") == []
