"""Kernels of GPUs: launches are compared with definitions, and exchanges without barriers are found, without a GPU."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from generated_kernels import GENERATORS, attention
from planted_faults import plant_fault
from scheduled_pairs import kernel_pairs
from test_planted_faults import is_harmless

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.exact.compare import KernelPair
from mirlo.passes.exact.kernel_definition import BlockDefinition
from mirlo.passes.exact.operations import operations_in
from mirlo.passes.exact.verdict import DIFFERENT, EQUAL, OUTSIDE

TARGETS = ("spirv", "nvvm")
FAULTS = 2
"""How many faults are planted in each kernel."""


@pytest.fixture(name="context", autouse=True)
def _context() -> Iterator[None]:
    with make_context(), ir.Location.unknown():
        yield


def _generated(seed: int) -> tuple[str, random.Random]:
    rng = random.Random(seed)
    text = attention(rng).text() if seed % 5 == 0 else rng.choice(GENERATORS)(rng).text(rng.random() < 0.8)
    return text, rng


@pytest.mark.sample(24)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(200))
def test_each_kernel_is_equal_and_each_fault_is_found(seed: int, target: str) -> None:
    text, rng = _generated(seed)
    for _, pair in kernel_pairs(text, target):
        verdict = pair.verify()
        assert verdict.status == EQUAL, f"{verdict}\n{text}"
        for _ in range(FAULTS):
            planted = plant_fault(pair.scheduled, rng)
            if planted is not None:
                function, kind = planted
                is_missed = KernelPair(pair.definition, function).verify().status == EQUAL
                assert not is_missed or is_harmless(pair.definition, function), f"{kind}: {text}\n{function}"


NEGATED = """
func.func @main(%x: tensor<128xf32>) -> tensor<128xf32> {
  %y = "relax.negative"(%x) : (tensor<128xf32>) -> tensor<128xf32>
  return %y : tensor<128xf32>
}
"""
LAUNCH = """
func.func @kernel(%x: memref<128xf32>, %y: memref<128xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c63 = arith.constant 63 : index
  %c64 = arith.constant 64 : index
  %i1 = arith.constant 1 : i32
  %i32 = arith.constant 32 : i32
  gpu.launch blocks(%b, %b1, %b2) in (%g = %c2, %g1 = %c1, %g2 = %c1)
      threads(%t, %t1, %t2) in (%n = %c64, %n1 = %c1, %n2 = %c1) {
    %base = arith.muli %b, %c64 : index
    %own = arith.addi %base, %t : index
    %opposite = arith.subi %c63, %t : index
    %other = arith.addi %base, %opposite : index
BODY
    gpu.terminator
  }
  return
}
"""
EXCHANGE = """
    %shared = memref.alloc() : memref<64xf32, 3>
    %v = memref.load %x[%own] : memref<128xf32>
    memref.store %v, %shared[%t] : memref<64xf32, 3>
    gpu.barrier
    %w = memref.load %shared[%opposite] : memref<64xf32, 3>
    %d = arith.negf %w : f32
    memref.store %d, %y[%other] : memref<128xf32>
"""
TURNS = """
    %shared = memref.alloc() : memref<64xf32, 3>
    %own_memory = memref.alloca() : memref<2xf32>
    %zero = arith.constant 0.0 : f32
    %d = scf.for %k = %c0 to %c2 step %c1 iter_args(%sum = %zero) -> f32 {
      %v = memref.load %x[%own] : memref<128xf32>
      memref.store %v, %shared[%t] : memref<64xf32, 3>
      memref.store %v, %own_memory[%k] : memref<2xf32>
      gpu.barrier
      %w = memref.load %shared[%opposite] : memref<64xf32, 3>
      gpu.barrier
      %kept = memref.load %own_memory[%k] : memref<2xf32>
      %is_same = arith.cmpf oeq, %kept, %v : f32
      %chosen = arith.select %is_same, %w, %zero : f32
      %next = arith.addf %sum, %chosen : f32
      scf.yield %next : f32
    }
    %half = arith.constant -0.5 : f32
    %e = arith.mulf %d, %half : f32
    memref.store %e, %y[%other] : memref<128xf32>
"""
SHUFFLE = """
    %v = memref.load %x[%own] : memref<128xf32>
    %w, %valid = gpu.shuffle xor %v, %i1, %i32 : f32
    %back, %again = gpu.shuffle xor %w, %i1, %i32 : f32
    %d = arith.negf %back : f32
    memref.store %d, %y[%own] : memref<128xf32>
"""
MASKED = """
    %shared = memref.alloc() : memref<64xf32, 3>
    %c32 = arith.constant 32 : index
    %first = arith.cmpi ult, %t, %c32 : index
    %d = scf.if %first -> f32 {
      %v = memref.load %x[%own] : memref<128xf32>
      %w, %valid = gpu.shuffle xor %v, %i1, %i32 : f32
      %back, %again = gpu.shuffle xor %w, %i1, %i32 : f32
      %e = arith.negf %back : f32
      scf.yield %e : f32
    } else {
      %v = memref.load %x[%own] : memref<128xf32>
      %e = arith.negf %v : f32
      scf.yield %e : f32
    }
    memref.store %d, %y[%own] : memref<128xf32>
"""
BLOCKS = """
    %v = memref.load %x[%own] : memref<128xf32>
    %d = arith.negf %v : f32
    memref.store %d, %y[%own] : memref<128xf32>
    %last = arith.cmpi eq, %b, %c1 : index
    scf.if %last {
      %first = memref.load %y[%t] : memref<128xf32>
      memref.store %first, %y[%t] : memref<128xf32>
    }
"""


def _pair(body: str) -> KernelPair:
    ((_, pair),) = kernel_pairs(NEGATED, "spirv")
    parsed = ir.Module.parse(LAUNCH.replace("BODY", body))
    (function,) = parsed.body.operations
    return KernelPair(BlockDefinition(pair.definition.operation.clone()), function.operation.clone())


@pytest.mark.parametrize("body", [EXCHANGE, TURNS, SHUFFLE, MASKED], ids=["exchange", "turns", "shuffle", "masked"])
def test_threads_that_exchange_values_are_equal(body: str) -> None:
    verdict = _pair(body).verify()
    assert verdict.status == EQUAL, verdict


@pytest.mark.parametrize("body", [EXCHANGE, TURNS], ids=["exchange", "turns"])
def test_each_barrier_is_needed(body: str) -> None:
    """Also the one between a read and the write of the next iteration."""
    pair = _pair(body)
    count = sum(op.name == "gpu.barrier" for op in operations_in(pair.scheduled))
    for position in range(count):
        clone = pair.scheduled.clone()
        [op for op in operations_in(clone) if op.name == "gpu.barrier"][position].erase()
        verdict = KernelPair(pair.definition, clone).verify()
        assert verdict.status == DIFFERENT and "shared memory" in verdict.why and "no barrier" in verdict.why


def test_blocks_that_exchange_elements_are_found() -> None:
    """No barrier orders the threads of two blocks."""
    verdict = _pair(BLOCKS).verify()
    assert verdict.status == DIFFERENT and "an element of result 0 that another one writes" in verdict.why


def test_two_threads_that_write_one_element_are_found() -> None:
    """Also where both write the same number."""
    body = EXCHANGE.replace("memref.store %d, %y[%other]", "memref.store %d, %y[%c0]")
    verdict = _pair(body).verify()
    assert verdict.status == DIFFERENT and "a thread writes an element of result 0" in verdict.why


def test_a_barrier_that_not_all_threads_reach_is_found() -> None:
    body = MASKED.replace("%e = arith.negf %back : f32", "gpu.barrier\n      %e = arith.negf %back : f32")
    verdict = _pair(body).verify()
    assert verdict.status == DIFFERENT and verdict.why == "not all threads of a block reach a barrier"


def test_a_loop_with_a_barrier_that_threads_leave_early_is_found() -> None:
    body = TURNS.replace("%c0 to %c2 step", "%c0 to %end step").replace(
        "%zero =", "%rest = arith.remui %t, %c2 : index\n    %end = arith.addi %rest, %c1 : index\n    %zero ="
    )
    verdict = _pair(body).verify()
    assert verdict.status == DIFFERENT and "the same iterations of a loop with a barrier" in verdict.why


def test_a_value_of_a_thread_that_does_not_shuffle_is_undefined() -> None:
    """A shuffle reads from the other half of the warp, whose threads take the other side of a branch."""
    body = MASKED.replace("%c32 = arith.constant 32 : index", "%c32 = arith.constant 1 : index")
    assert _pair(body).verify().status == DIFFERENT
    pairs = MASKED.replace("%c32 = arith.constant 32 : index", "%c32 = arith.constant 2 : index")
    assert _pair(pairs).verify().status == EQUAL


def test_values_of_threads_are_their_own() -> None:
    """Memory of a thread, and what a loop around barriers carries, is not that of the thread that ran last."""
    body = TURNS.replace("memref.alloca() : memref<2xf32>", "memref.alloc() : memref<2xf32, 3>")
    body = body.replace("%own_memory[%k] : memref<2xf32>", "%own_memory[%k] : memref<2xf32, 3>")
    assert _pair(body).verify().status == DIFFERENT


def test_an_operation_without_a_meaning_is_outside() -> None:
    body = EXCHANGE.replace("%d = arith", "%lane = gpu.lane_id\n    %d = arith")
    verdict = _pair(body).verify()
    assert verdict.status == OUTSIDE and verdict.why == "the operation 'gpu.lane_id'"


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("element", ["i8", "ui8", "i32", "f32"])
def test_elements_of_any_size_are_their_own(element: str, target: str) -> None:
    """Threads that write adjacent bytes of shared memory write other elements."""
    text = f"""
    func.func @main(%x: tensor<20x300x{element}>) -> tensor<20xi64> {{
      %y = "relax.argmax"(%x) {{axis = 1 : i64, keepdims = false}}
        : (tensor<20x300x{element}>) -> tensor<20xi64>
      return %y : tensor<20xi64>
    }}
    """
    ((_, pair),) = kernel_pairs(text, target)
    assert "memref.alloc" in str(pair.scheduled)
    verdict = pair.verify()
    assert verdict.status == EQUAL, verdict


def test_bits_of_floats_in_shuffles_are_outside() -> None:
    """Halves of an f64 are moved one by one: residues have none."""
    text = """
    func.func @main(%x: tensor<5x64xf64>) -> tensor<5x64xf64> {
      %y = "relax.softmax"(%x) {axis = 1 : i64} : (tensor<5x64xf64>) -> tensor<5x64xf64>
      return %y : tensor<5x64xf64>
    }
    """
    ((_, pair),) = kernel_pairs(text, "nvvm")
    verdict = pair.verify()
    assert verdict.status == OUTSIDE and verdict.why == "a shuffle of bits of a float that are not 32"


@pytest.mark.sample(0)
@pytest.mark.parametrize("target", TARGETS)
def test_large_numbers_run_on_threads(target: str) -> None:
    """A softmax without its maximum is the same function of residues."""
    text = """
    func.func @main(%x: tensor<5x300xf32>) -> tensor<5x300xf32> {
      %y = "relax.softmax"(%x) {axis = 1 : i64} : (tensor<5x300xf32>) -> tensor<5x300xf32>
      return %y : tensor<5x300xf32>
    }
    """
    ((_, pair),) = kernel_pairs(text, target)
    clone = pair.scheduled.clone()
    for op in [each for each in operations_in(clone) if each.name == "arith.subf"]:
        op.results[0].replace_all_uses_with(op.operands[0])
    verdict = KernelPair(pair.definition, clone).verify()
    assert pair.verify().status == EQUAL
    assert verdict.status == DIFFERENT and verdict.why.startswith("of large numbers")
