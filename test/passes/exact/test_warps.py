"""Instructions of matrix units and asynchronous copies: kernels of tensor cores are compared without a GPU."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from planted_faults import plant_fault
from scheduled_pairs import kernel_pairs

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.exact.compare import KernelPair
from mirlo.passes.exact.double import DoubleArithmetic
from mirlo.passes.exact.kernel_definition import RoundSettings, run_function
from mirlo.passes.exact.memory import RandomMemory
from mirlo.passes.exact.operations import operations_in
from mirlo.passes.exact.verdict import DIFFERENT, EQUAL

RACE, IN_FLIGHT, WRONG = "no barrier is between them", "a copy to it is in flight", "result 0 differs"
COPY, COMMIT, WAIT = "nvgpu.device_async_copy", "nvvm.cp.async.commit.group", "nvvm.cp.async.wait.group"
LOAD, MULTIPLY, PART, BARRIER = "nvgpu.ldmatrix", "nvvm.mma.sync", "llvm.extractvalue", "gpu.barrier"
RANDOM_FAULTS = 12


@pytest.fixture(name="context", autouse=True)
def _context() -> Iterator[None]:
    with make_context(), ir.Location.unknown():
        yield


def product(kind: str, rows: int, columns: int, depth: int, result: str = "") -> str:
    x, w = f"tensor<{rows}x{depth}x{kind}>", f"tensor<{depth}x{columns}x{kind}>"
    y = f"tensor<{rows}x{columns}x{result or kind}>"
    attributes = f"{{out_dtype = {result}}} " if result else ""
    return f"""func.func @main(%x: {x}, %w: {w}) -> {y} {{
      %y = "relax.matmul"(%x, %w) {attributes}: ({x}, {w}) -> {y}
      return %y : {y}
    }}"""


def attention(kind: str, rows: int, depth: int) -> str:
    t = f"tensor<1x1x{rows}x{depth}x{kind}>"
    return f"""func.func @main(%q: {t}, %k: {t}, %v: {t}) -> {t} {{
      %y = "relax.attention"(%q, %k, %v) {{operandSegmentSizes = array<i32: 1, 1, 1, 0>}} : ({t}, {t}, {t}) -> {t}
      return %y : {t}
    }}"""


CONVOLUTION = """
func.func @main(%x: tensor<1x14x14x64xf16>, %w: tensor<3x3x64x64xf16>) -> tensor<1x14x14x64xf16> {
  %y = "relax.conv"(%x, %w) {padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C", kernel_layout = "*IO",
    operandSegmentSizes = array<i32: 1, 1, 0>}
    : (tensor<1x14x14x64xf16>, tensor<3x3x64x64xf16>) -> tensor<1x14x14x64xf16>
  %z = "relax.relu"(%y) : (tensor<1x14x14x64xf16>) -> tensor<1x14x14x64xf16>
  return %z : tensor<1x14x14x64xf16>
}
"""
TF32 = "chip=sm_80 tf32=true"
MODELS = {
    "f16": (product("f16", 128, 64, 128), "chip=sm_80"),
    "f16 at edges": (product("f16", 100, 70, 90), "chip=sm_80"),
    "bf16": (product("bf16", 64, 64, 128), "chip=sm_80"),
    "tf32": (product("f32", 64, 48, 64), TF32),
    "tf32 at edges": (product("f32", 50, 30, 37), TF32),
    "bytes": (product("i8", 48, 40, 96, "i32"), "chip=sm_80"),
    "unsigned bytes": (product("ui8", 48, 40, 96, "i32"), "chip=sm_80"),
    "convolution": (CONVOLUTION, "chip=sm_80"),
    "attention": (attention("bf16", 100, 32), "chip=sm_80"),
}


def pair_of(text: str, options: str) -> tuple[ir.Module, KernelPair]:
    ((module, pair),) = kernel_pairs(text, "nvvm", options)
    return module, pair


@pytest.mark.parametrize("name", MODELS)
def test_kernels_of_matrix_units_are_equal(name: str) -> None:
    module, pair = pair_of(*MODELS[name])
    assert any(op.name == MULTIPLY for op in operations_in(pair.scheduled))
    verdict = pair.verify()
    assert verdict.status == EQUAL, verdict
    assert module.operation.verify()


def erased(name: str, number: int) -> Callable[[list[ir.Operation]], None]:
    return lambda operations: [op for op in operations if op.name == name][number].erase()


def swapped(number: int, first: int, second: int) -> Callable[[list[ir.Operation]], None]:
    """Swap two operands of a product: registers of a fragment, or sums."""

    def swap(operations: list[ir.Operation]) -> None:
        op = [each for each in operations if each.name == MULTIPLY][number]
        a, b = op.operands[first], op.operands[second]
        op.operands[first], op.operands[second] = b, a

    return swap


def changed(
    name: str, number: int, attribute: str, change: Callable[[ir.Attribute], ir.Attribute]
) -> Callable[[list[ir.Operation]], None]:
    def edit(operations: list[ir.Operation]) -> None:
        op = [each for each in operations if each.name == name][number]
        op.attributes[attribute] = change(op.attributes[attribute])

    return edit


def _more(attribute: ir.Attribute) -> ir.Attribute:
    return ir.IntegerAttr.get(attribute.type, attribute.value + 1)


def _next_part(attribute: ir.Attribute) -> ir.Attribute:
    return ir.DenseI64ArrayAttr.get([int(ir.DenseI64ArrayAttr(attribute)[0]) ^ 1])


FAULTS = {
    "missing barrier": (erased(BARRIER, 0), RACE),
    "missing wait": (erased(WAIT, 0), IN_FLIGHT),
    "wait for one group less": (changed(WAIT, 0, "n", _more), IN_FLIGHT),
    "missing commit before the loop": (erased(COMMIT, 0), IN_FLIGHT),
    "missing commit in the loop": (erased(COMMIT, 3), IN_FLIGHT),
    "missing copy before the loop": (erased(COPY, 0), WRONG),
    "missing copy in the loop": (erased(COPY, 7), WRONG),
    "swapped registers of rows": (swapped(0, 0, 1), WRONG),
    "swapped registers of depth": (swapped(0, 1, 2), WRONG),
    "swapped registers of columns": (swapped(1, 4, 5), WRONG),
    "swapped sums": (swapped(0, 6, 7), WRONG),
    "transposed rows": (changed(LOAD, 0, "transpose", lambda a: ir.BoolAttr.get(not a.value)), WRONG),
    "transposed columns": (changed(LOAD, 1, "transpose", lambda a: ir.BoolAttr.get(not a.value)), WRONG),
    "wrong part of a result": (changed(PART, 0, "position", _next_part), WRONG),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_of_matrix_units_and_copies_are_found(name: str) -> None:
    module, pair = pair_of(*MODELS["f16"])
    plant, why = FAULTS[name]
    function = pair.scheduled.clone(ip=False).operation
    plant(operations_in(function))
    verdict = KernelPair(pair.definition, function).verify()
    assert verdict.status == DIFFERENT
    assert why in str(verdict)
    assert module.operation.verify()


def test_a_missing_barrier_behind_stores_is_found() -> None:
    module, pair = pair_of(*MODELS["f16 at edges"])
    for number in range(2):
        function = pair.scheduled.clone(ip=False).operation
        erased(BARRIER, number)(operations_in(function))
        assert RACE in str(KernelPair(pair.definition, function).verify())
    assert module.operation.verify()


def computes_the_same(pair: KernelPair, function: ir.Operation) -> bool:
    """Return whether a changed kernel has the same bits in 64-bit floats as before."""
    arithmetic = DoubleArithmetic()
    inputs = pair.definition.results(arithmetic, RoundSettings(0))
    results = []
    for each in (pair.scheduled, function):
        compiled = KernelPair(pair.definition, each).compile_scheduled(arithmetic)
        (actual,), _ = run_function(compiled, RandomMemory(arithmetic, 100), inputs.inputs, {}, inputs.table)
        results.append(actual.planes[0])
    return np.array_equal(*results)


@pytest.mark.parametrize("name", ["f16", "bf16", "tf32 at edges", "bytes"])
def test_random_faults_are_found(name: str) -> None:
    module, pair = pair_of(*MODELS[name])
    rng = random.Random(7)
    planted = [each for each in (plant_fault(pair.scheduled, rng) for _ in range(RANDOM_FAULTS)) if each is not None]
    assert planted
    for function, kind in planted:
        verdict = KernelPair(pair.definition, function).verify()
        assert verdict.status == DIFFERENT or computes_the_same(pair, function), f"{kind}: {verdict}"
    assert module.operation.verify()


COPIED = """
func.func @kernel(%x: memref<128xf16>, %y: memref<128xf16>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c31 = arith.constant 31 : index
  %c32 = arith.constant 32 : index
  gpu.launch blocks(%b, %b1, %b2) in (%g = %c2, %g1 = %c1, %g2 = %c1)
      threads(%t, %t1, %t2) in (%n = %c32, %n1 = %c1, %n2 = %c1) {
    %shared = memref.alloc() : memref<64xf16, 3>
    %first = arith.muli %b, %c32 : index
    %own = arith.addi %first, %t : index
    %opposite = arith.subi %c31, %t : index
    %at = arith.muli %own, %c2 : index
    %to = arith.muli %t, %c2 : index
    %from = arith.muli READER, %c2 : index
    %other = arith.addi %first, READER : index
    %out = arith.muli %other, %c2 : index
    %token = nvgpu.device_async_copy %x[%at], %shared[%to], 2 : memref<128xf16> to memref<64xf16, 3>
    nvvm.cp.async.commit.group
    MEETING
    %v = vector.load %shared[%from] : memref<64xf16, 3>, vector<2xf16>
    %w = arith.negf %v : vector<2xf16>
    vector.store %w, %y[%out] : memref<128xf16>, vector<2xf16>
    gpu.terminator
  }
  return
}
"""
NEGATED = """
func.func @main(%x: tensor<128xf16>) -> tensor<128xf16> {
  %y = "relax.negative"(%x) : (tensor<128xf16>) -> tensor<128xf16>
  return %y : tensor<128xf16>
}
"""
ALL, ALL_BUT_ONE, MEET = "nvvm.cp.async.wait.group 0", "nvvm.cp.async.wait.group 1", "gpu.barrier"


@pytest.mark.parametrize(
    ("reader", "meeting", "why"),
    [
        ("%t", ALL, None),  # what a thread copied itself needs a wait only
        ("%opposite", f"{ALL} {MEET}", None),
        ("%t", "", IN_FLIGHT),
        ("%t", ALL_BUT_ONE, IN_FLIGHT),
        ("%t", MEET, IN_FLIGHT),
        ("%opposite", ALL, RACE),
        ("%opposite", f"{MEET} {ALL}", IN_FLIGHT),
    ],
)
def test_copies_need_a_wait_and_other_threads_a_barrier_after_it(reader: str, meeting: str, why: str | None) -> None:
    _, pair = next(kernel_pairs(NEGATED))
    text = COPIED.replace("READER", reader).replace("MEETING", meeting)
    module = ir.Module.parse(text)
    verdict = KernelPair(pair.definition, module.body.operations[0].operation).verify()
    if why is None:
        assert verdict.status == EQUAL, verdict
    else:
        assert verdict.status == DIFFERENT
        assert why in str(verdict)
