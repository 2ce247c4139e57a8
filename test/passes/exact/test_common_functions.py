"""Functions with exponentials that both forms have, for which a random function stands."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pytest
from scheduled_pairs import kernel_pairs

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.exact import products
from mirlo.passes.exact.common_functions import calls_in
from mirlo.passes.exact.compare import KernelPair
from mirlo.passes.exact.field import FieldArithmetic
from mirlo.passes.exact.ir_text import ModuleText
from mirlo.passes.exact.operations import operations_in
from mirlo.passes.exact.scheduled import translate_scheduled
from mirlo.passes.exact.translate_intrinsics import EXPONENTIALS
from mirlo.passes.exact.verdict import DIFFERENT, EQUAL, NOT_NEEDED

MATRIX, VECTOR = "tensor<20x24xf32>", "tensor<24xf32>"
FUNCTIONS = {
    "gelu": '%y2 = "relax.gelu"(%y1) : (M) -> M',
    "sigmoid": '%y2 = "relax.sigmoid"(%y1) : (M) -> M',
    "sigmoid, product": '%y3 = "relax.sigmoid"(%y1) : (M) -> M\n%y2 = "relax.multiply"(%y1, %y3) : (M, M) -> M',
    "gelu, residual": '%y3 = "relax.gelu"(%y1) : (M) -> M\n%y2 = "relax.add"(%y3, %r) : (M, M) -> M',
    "even": '%y3 = "relax.multiply"(%y1, %y1) : (M, M) -> M\n%y2 = "relax.exp"(%y3) : (M) -> M',
}
OTHERS = {
    "softmax": '%y2 = "relax.softmax"(%y1) {axis = 1 : i64} : (M) -> M',
    "of two values": '%y3 = "relax.exp"(%y1) : (M) -> M\n%y2 = "relax.multiply"(%y3, %r) : (M, M) -> M\n'
    '%y4 = "relax.exp"(%r) : (M) -> M\n%y5 = "relax.add"(%y2, %y4) : (M, M) -> M',
    "none": '%y2 = "relax.relu"(%y1) : (M) -> M',
}
MODULES: list[ir.Module] = []
"""The modules of a test's kernels, which do not keep them."""


@pytest.fixture(name="context", autouse=True)
def _context(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(products, "LEAST_POINTS", 1)
    with make_context(), ir.Location.unknown():
        yield
        MODULES.clear()


def _pairs(lines: str) -> list[KernelPair]:
    last = "%y5" if "%y5" in lines else "%y2"
    text = f"""
    func.func @main(%x: tensor<20x30xf32>, %w: tensor<30x24xf32>, %b: {VECTOR}, %r: {MATRIX}) -> {MATRIX} {{
      %y0 = "relax.matmul"(%x, %w) : (tensor<20x30xf32>, tensor<30x24xf32>) -> {MATRIX}
      %y1 = "relax.add"(%y0, %b) : ({MATRIX}, {VECTOR}) -> {MATRIX}
      {lines.replace("M", MATRIX)}
      return {last} : {MATRIX}
    }}
    """
    pairs = []
    for module, pair in kernel_pairs(text, options="cpu=x86-64-v4"):
        MODULES.append(module)
        pairs.append(pair)
    return pairs


@pytest.mark.parametrize("target", ["c", "llvm"])
@pytest.mark.parametrize("quantized", ["rows", "results", "both"])
def test_functions_beside_integers_have_floats(quantized: str, target: str) -> None:
    """Sums of integers become floats before a function, and quantization makes integers of its results."""
    kind = "f32" if quantized == "results" else "i8"
    left, right, last = f"tensor<20x30x{kind}>", f"tensor<30x24x{kind}>", MATRIX
    lines = [f'%y1 = "relax.matmul"(%x, %w) : ({left}, {right}) -> {MATRIX}']
    if quantized != "results":
        sums = "tensor<20x24xi32>"
        lines = [
            f'%y0 = "relax.matmul"(%x, %w) {{out_dtype = i32}} : ({left}, {right}) -> {sums}',
            f'%y1 = "relax.cast"(%y0) {{dtype = f32}} : ({sums}) -> {MATRIX}',
        ]
    lines += [
        f'%y2 = "relax.add"(%y1, %b) : ({MATRIX}, {VECTOR}) -> {MATRIX}',
        f'%y3 = "relax.gelu"(%y2) : ({MATRIX}) -> {MATRIX}',
        f'%y4 = "relax.round"(%y3) : ({MATRIX}) -> {MATRIX}',
    ]
    if quantized != "rows":
        last = "tensor<20x24xi8>"
        lines.append(f'%y5 = "relax.cast"(%y4) {{dtype = i8}} : ({MATRIX}) -> {last}')
    result, body = lines[-1].partition(" ")[0], "\n".join(lines)
    arguments = f"%x: {left}, %w: {right}, %b: {VECTOR}"
    text = f"func.func @main({arguments}) -> {last} {{\n{body}\nreturn {result} : {last}\n}}"
    pairs = list(kernel_pairs(text, target, options="cpu=x86-64-v4" if target == "llvm" else ""))
    assert pairs
    for _, pair in pairs:
        assert pair.verify().status == EQUAL


def _pair(name: str) -> KernelPair:
    (pair,) = _pairs(FUNCTIONS[name])
    return pair


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_both_forms_has_no_exponentials(name: str) -> None:
    pair = _pair(name)
    calls = pair._function_calls()
    assert calls is not None and calls.operands
    verdict = pair.verify()
    assert verdict.status == EQUAL and verdict.ranges is not None and verdict.ranges.status == NOT_NEEDED
    assert all(key[:2] == ("field", False) for key in pair.definition._results)  # residues modulo one prime


@pytest.mark.parametrize("name", OTHERS)
def test_other_exponentials_are_compared_as_such(name: str) -> None:
    for pair in _pairs(OTHERS[name]):
        assert pair._function_calls() is None
        assert pair.verify().status == EQUAL


def _exchange(value: ir.Value, other: ir.Value, readers: Collection[ir.Value]) -> None:
    """Exchange an operand of the operations of some results."""
    for op in (each.owner for each in readers):
        for i, x in enumerate(op.operands):
            if x == value:
                op.operands[i] = other


def _with(pair: KernelPair, change: str) -> KernelPair:
    """Return a pair whose scheduled form has a change in one of the calls of its function."""
    function = pair.definition.common_function
    assert function is not None
    clone = pair.scheduled.clone()
    calls = calls_in(function, clone)
    assert calls is not None
    (first, other), *_, (result, operand) = [
        each for each in calls.operands.items() if str(each[0].type) == "vector<16xf32>"
    ]
    assert first != result
    if change == "left out":
        result.replace_all_uses_with(operand)
    elif change == "another operand":
        _exchange(operand, other, [*calls.inner, result])
    else:
        op = next(op for op in operations_in(clone) if op.name in EXPONENTIALS)
        with ir.InsertionPoint(op):
            (x,) = op.operands
            op.operands[0] = ir.Operation.create("arith.addf", [x.type], [x, x]).result
    return KernelPair(pair.definition, clone)


@pytest.mark.parametrize("change", ["left out", "another operand", "another function"])
@pytest.mark.parametrize("name", ["gelu", "sigmoid", "gelu, residual"])
def test_faults_around_and_in_a_function_are_found(name: str, change: str) -> None:
    """A sigmoid is one operation, with another operand where this is changed."""
    wrong = _with(_pair(name), change)
    assert (wrong._function_calls() is None) == (change == "another function" and name != "sigmoid")
    assert wrong.verify().status == DIFFERENT


def test_functions_of_other_values_may_have_equal_results() -> None:
    """A random function of -x is not that of x, as a power of x * x is."""
    pair = _pair("even")
    function = pair.definition.common_function
    assert function is not None
    clone = pair.scheduled.clone()
    calls = calls_in(function, clone)
    assert calls is not None
    for operand in set(calls.operands.values()):
        with ir.InsertionPoint(next(iter(operand.uses)).owner.operation):
            negative = ir.Operation.create("arith.negf", [operand.type], [operand]).result
        _exchange(operand, negative, [*calls.inner, *calls.operands])
    changed = KernelPair(pair.definition, clone)
    again = changed._function_calls()
    assert again is not None and set(again.operands.values()).isdisjoint(calls.operands.values())
    assert changed.verify().status == EQUAL


def test_planes_that_nothing_reads_are_not_computed() -> None:
    """Residues modulo Q are those of what exponentials depend on."""
    (pair,) = _pairs('%y3 = "relax.exp"(%y1) : (M) -> M\n%y2 = "relax.multiply"(%y3, %r) : (M, M) -> M')
    module = ModuleText()
    translate_scheduled(pair.scheduled, pair.definition.parameters, FieldArithmetic(True, False), module, "kernel")
    assert "exact.power" in str(module) and "@exact.product_0" in module.functions[0]
    assert "@exact.product_1" not in module.functions[0].split("@exact.power")[-1]
