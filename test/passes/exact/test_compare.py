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
from mirlo.passes.exact.verdict import DIFFERENT, EQUAL, OUTSIDE


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


def test_a_store_of_one_lane_stays_within_its_buffer() -> None:
    """LLVM 22 writes a truncated lane as wide as it was before, under a constant mask that leaves one."""
    text = """
    func.func @main(%x: tensor<17x8xui8>, %w: tensor<8x1xui8>) -> tensor<17x1xui8> {
      %0 = "relax.cast"(%x) {dtype = i32} : (tensor<17x8xui8>) -> tensor<17x8xi32>
      %1 = "relax.cast"(%w) {dtype = i32} : (tensor<8x1xui8>) -> tensor<8x1xi32>
      %2 = "relax.matmul"(%0, %1) : (tensor<17x8xi32>, tensor<8x1xi32>) -> tensor<17x1xi32>
      %3 = "relax.cast"(%2) {dtype = ui8} : (tensor<17x1xi32>) -> tensor<17x1xui8>
      return %3 : tensor<17x1xui8>
    }
    """
    verdicts = [pair.verify() for _, pair in kernel_pairs(text, options="cpu=x86-64-v4")]
    assert {verdict.status for verdict in verdicts} == {EQUAL}


@pytest.mark.parametrize("signs", [("ui8", "i8"), ("i8", "ui8"), ("i8", "i8"), ("ui8", "ui8")])
def test_products_of_int8_on_hexagon_are_equal(signs: tuple[str, str]) -> None:
    left, right = (f"tensor<{size}x{kind}>" for size, kind in zip(("5x18", "18x40"), signs, strict=True))
    text = f"""
    func.func @main(%x: {left}, %w: {right}) -> tensor<5x40xi32> {{
      %0 = "relax.cast"(%x) {{dtype = i32}} : ({left}) -> tensor<5x18xi32>
      %1 = "relax.cast"(%w) {{dtype = i32}} : ({right}) -> tensor<18x40xi32>
      %2 = "relax.matmul"(%0, %1) : (tensor<5x18xi32>, tensor<18x40xi32>) -> tensor<5x40xi32>
      return %2 : tensor<5x40xi32>
    }}
    """
    ((_, pair),) = kernel_pairs(text, options="cpu=hexagonv67")
    assert "llvm.hexagon.V6.vrmpy" in str(pair.scheduled) and pair.verify().status == EQUAL


def test_sizes_that_divide_by_zero_do_not_end_the_process() -> None:
    """Of the channels of a group, a size that no caller passes leaves none."""
    image, weight = "1x33x8xf32", '?x1x5xf32, #relax.dims<["n", 1, 5]>'
    result = '1x?x4xf32, #relax.dims<[1, "n", 4]>'
    attributes = "strides = array<i64: 1>, padding = array<i64: 0, 0>, dilations = array<i64: 1>, groups = 33 : i64"
    text = f"""
    func.func @main(%x: tensor<{image}>, %w: tensor<{weight}>) -> tensor<{result}> {{
      %y = "relax.conv"(%x, %w) {{{attributes}}} : (tensor<{image}>, tensor<{weight}>) -> tensor<{result}>
      return %y : tensor<{result}>
    }}
    """
    verdicts = [pair.verify() for _, pair in kernel_pairs(text, options="cpu=x86-64-v2")]
    assert {verdict.status for verdict in verdicts} == {EQUAL}


@pytest.mark.parametrize("kind", ["i32", "i64"])
@pytest.mark.parametrize("columns", [1, 2, 37])
def test_shifts_by_their_width_are_the_same_in_vectors(kind: str, columns: int) -> None:
    """Shifts are drawn beyond those that an operator defines: vectors and the rest of a row shift by the same."""
    x, row = f"tensor<6x{columns}x{kind}>", f"tensor<{columns}xi32>"
    text = f"""
    func.func @main(%x: {x}, %m: {row}, %s: {row}) -> tensor<6x{columns}xi8> {{
      %y = "relax.rescale"(%x, %m, %s) {{input_zero = 0, zero_point = -4, double_round = true, dtype = i8}}
        : ({x}, {row}, {row}) -> tensor<6x{columns}xi8>
      return %y : tensor<6x{columns}xi8>
    }}
    """
    for cpu in ("x86-64-v2", "x86-64-v4", "neoverse-n1"):
        for _, pair in kernel_pairs(text, options=f"cpu={cpu}"):
            verdict = pair.verify()
            assert verdict.status == EQUAL, f"{cpu}: {verdict}"


def _product(rows: int, k: int, columns: int) -> str:
    x, w, y = f"tensor<{rows}x{k}xbf16>", f"tensor<{columns}x{k}xbf16>", f"tensor<{rows}x{columns}xf32>"
    return f"""
    func.func @main(%x: {x}) -> {y} {{
      %w = "relax.constant"() {{value = dense<1.0> : {w}}} : () -> {w}
      %y = "relax.matmul"(%x, %w) {{out_dtype = f32, transpose_rhs = true}} : ({x}, {w}) -> {y}
      return %y : {y}
    }}
    """


@pytest.mark.parametrize("cpu", ["neoverse-v1", "sapphirerapids", "znver4"])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 17, 18, 19])
def test_products_of_partial_groups_are_equal(cpu: str, k: int) -> None:
    """The bits of floats after the end of a row are cleared: instructions multiply whole groups."""
    for columns in (1, 2, 17):
        for _, pair in kernel_pairs(_product(5, k, columns), options=f"cpu={cpu} l2=4KiB"):
            verdict = pair.verify()
            assert verdict.status == EQUAL, f"{columns} columns: {verdict}"


@pytest.mark.parametrize(
    "lane, found", [(0, DIFFERENT), (0x00FF, OUTSIDE), (-1, EQUAL)], ids=["none", "half of each float", "all"]
)
def test_masks_of_the_bits_of_floats(lane: int, found: str) -> None:
    """A mask keeps a float, or is zero; what a part of its bits is, residues do not know."""
    ((_, pair),) = pairs = list(kernel_pairs(_product(5, 17, 17), options="cpu=neoverse-v1 l2=4KiB"))
    assert pairs
    clone = pair.scheduled.clone()
    masked = [each for each in operations_in(clone) if each.name == "arith.andi" and _has_lanes(each)]
    assert masked
    for op in masked:
        kind = op.results[0].type
        attribute = ir.DenseElementsAttr.get_splat(kind, ir.IntegerAttr.get(element_of(kind), lane))
        op.operands[1] = _constant(op, attribute)
    verdict = KernelPair(pair.definition, clone).verify()
    assert verdict.status == found, verdict


def _has_lanes(op: ir.Operation) -> bool:
    return isinstance(op.results[0].type, ir.VectorType) and op.operands[0].owner.operation.name == "vector.bitcast"
