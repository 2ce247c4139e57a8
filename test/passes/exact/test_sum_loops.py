"""Loops that only sum products: which ones these are, and that one function computes what their code does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from scheduled_pairs import kernel_pairs

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.exact import translate_control
from mirlo.passes.exact.arithmetic import Arithmetic
from mirlo.passes.exact.double import DoubleArithmetic
from mirlo.passes.exact.field import FieldArithmetic
from mirlo.passes.exact.ir_text import ModuleText
from mirlo.passes.exact.kernel_definition import RoundSettings, run_function
from mirlo.passes.exact.memory import FORM, Array, GuardedBuffer, RandomMemory
from mirlo.passes.exact.native import compile_function
from mirlo.passes.exact.primes import INFINITY, MINUS_INFINITY, NAN, P
from mirlo.passes.exact.rounds import round_constants
from mirlo.passes.exact.scheduled import translate_scheduled
from mirlo.passes.exact.sum_functions import BLOCK
from mirlo.passes.exact.sum_loops import sum_loop
from mirlo.passes.exact.translate_sums import MOST_BYTES
from mirlo.passes.exact.translator import Argument
from mirlo.passes.exact.verdict import EQUAL

DEPTH = 300
MATMUL = f"""
func.func @main(%x: tensor<13x{DEPTH}xf32>, %w: tensor<{DEPTH}x50xf32>) -> tensor<13x50xf32> {{
  %y = "relax.matmul"(%x, %w) : (tensor<13x{DEPTH}xf32>, tensor<{DEPTH}x50xf32>) -> tensor<13x50xf32>
  return %y : tensor<13x50xf32>
}}
"""
FIELD = FieldArithmetic(False, False)
ARITHMETICS = [FIELD, FieldArithmetic(True, False), FieldArithmetic(True, True), DoubleArithmetic()]
SIZE = 4096


@pytest.fixture(name="context", autouse=True)
def _context() -> Iterator[None]:
    with make_context(), ir.Location.unknown():
        yield


def _kernel(
    body: str, results: Sequence[str], kind: str, bounds: str = "%c0 to %c7 step %c1", start: str = "%zero"
) -> ir.Module:
    """Return a kernel with a loop that carries values of a type, and stores them."""
    names = [f"%s{i}" for i in range(len(results))]
    carried = ", ".join(f"{name} = {start}" for name in names)
    kinds = ", ".join([kind] * len(results))
    width = 1 if kind == "f32" else int(kind.removeprefix("vector<").partition("x")[0])
    dense = "0.0" if kind == "f32" else "dense<0.0>"
    stores = "\n".join(
        f"%at{i} = arith.constant {width * i} : index\n"
        + (f"memref.store %r#{i}, %out[%at{i}] : memref<64xf32>" if kind == "f32" else
           f"vector.store %r#{i}, %out[%at{i}] : memref<64xf32>, {kind}")
        for i in range(len(results))
    )  # fmt: skip
    first = (
        "%known = memref.load %w[%c5] : memref<4096xf32>" if kind == "f32"
        else f"%known = vector.load %w[%c5] : memref<4096xf32>, {kind}"
    )  # fmt: skip
    return ir.Module.parse(f"""
    func.func @kernel(%x: memref<{SIZE}xf32>, %w: memref<{SIZE}xf32>, %out: memref<64xf32>) {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      %c3 = arith.constant 3 : index
      %c5 = arith.constant 5 : index
      %c7 = arith.constant 7 : index
      %c16 = arith.constant 16 : index
      %c{DEPTH} = arith.constant {DEPTH} : index
      %zero = arith.constant {dense} : {kind}
      {first}
      scf.for %j = %c2 to %c3 step %c1 {{
        %r:{len(results)} = scf.for %i = {bounds} iter_args({carried}) -> ({kinds}) {{
          {body}
          scf.yield {", ".join(results)} : {kinds}
        }}
        {stores}
      }}
      return
    }}""")


def _loop(module: ir.Module) -> ir.Operation:
    function = module.body.operations[0]
    (outer,) = (op for op in function.regions[0].blocks[0].operations if op.name == "scf.for")
    return next(op.operation for op in outer.regions[0].blocks[0].operations if op.name == "scf.for")


def _run(module: ir.Module, arithmetic: Arithmetic, special: int | None = None) -> tuple[list[Array], str]:
    """Return the planes of the result, and the code."""
    shapes = [("in", (SIZE,)), ("in", (SIZE,)), ("out", (64,))]
    text = ModuleText()
    arguments = translate_scheduled(module.body.operations[0].operation, shapes, arithmetic, text, "scheduled")
    memory = RandomMemory(arithmetic, 3)
    inputs: list[GuardedBuffer] = [memory.buffer(Argument("in", "f", 0, (SIZE,)), {}) for _ in range(2)]
    if special is not None:
        for buffer in inputs:
            for plane in buffer.planes:
                plane[memory.rng.random(SIZE) < 0.01] = special
    table = round_constants(3, ())
    (result,), _ = run_function(compile_function(text, "scheduled", arguments), memory, inputs, {}, table)
    return result.planes, str(text)


VECTORS = """
  %row = arith.muli %i, %c16 : index
  %p0 = arith.addi %row, %j : index
  %p1 = arith.addi %p0, %c16 : index
  %a = memref.load %x[%i] : memref<4096xf32>
  %as = vector.broadcast %a : f32 to vector<8xf32>
  %b = vector.load %w[%p0] : memref<4096xf32>, vector<8xf32>
  %t0 = vector.fma %as, %b, %s0 : vector<8xf32>
  %d = vector.load %w[%p1] : memref<4096xf32>, vector<8xf32>
  %t1 = vector.fma %d, %as, %s1 : vector<8xf32>
"""
PAIRS = """
  %b = vector.load %w[%i] : memref<4096xf32>, vector<4xf32>
  %e = vector.load %x[%i] : memref<4096xf32>, vector<4xf32>
  %m = arith.mulf %e, %b : vector<4xf32>
  %t0 = arith.addf %s0, %m : vector<4xf32>
"""
SCALARS = """
  %k = arith.subi %c300, %i : index
  %a = memref.load %x[%k] : memref<4096xf32>
  %b = memref.load %w[%i] : memref<4096xf32>
  %m = arith.mulf %a, %b : f32
  %t0 = arith.addf %m, %s0 : f32
"""
TWICE = """
  %q = affine.apply affine_map<(d0) -> (d0 * 3 + 7)>(%i)
  %a = memref.load %x[%i] : memref<4096xf32>
  %b = memref.load %w[%q] : memref<4096xf32>
  %m = arith.mulf %a, %b : f32
  %u = arith.addf %m, %s0 : f32
  %f = memref.load %x[%q] : memref<4096xf32>
  %n = arith.mulf %f, %a : f32
  %t0 = arith.addf %u, %n : f32
"""
LOOPS = {
    "vectors": (VECTORS, ["%t0", "%t1"], "vector<8xf32>"),
    "pairs": (PAIRS, ["%t0"], "vector<4xf32>"),
    "scalars": (SCALARS, ["%t0"], "f32"),
    "two products": (TWICE, ["%t0"], "f32"),
    "one sum unchanged": (VECTORS, ["%t0", "%t1", "%s2"], "vector<8xf32>"),
}
BOUNDS = [
    "%c0 to %c0 step %c1",
    "%c0 to %c1 step %c1",
    "%c2 to %c7 step %c2",
    "%j to %c300 step %c1",
    "%c7 to %c3 step %c1",
]
assert BLOCK < DEPTH


@pytest.mark.parametrize("arithmetic", ARITHMETICS, ids=["residues", "exponents", "infinities", "floats"])
@pytest.mark.parametrize("name", LOOPS)
def test_sums_are_those_of_the_loops_own_code(
    name: str, arithmetic: Arithmetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, results, kind = LOOPS[name]
    for bounds, start in itertools.product(BOUNDS, ("%zero", "%known")):
        module = _kernel(body, results, kind, bounds, start)
        assert sum_loop(_loop(module)) is not None
        sums, code = _run(module, arithmetic)
        with monkeypatch.context() as patch:
            patch.setattr(translate_control, "emit_sums", lambda *_: None)
            expected, own = _run(module, arithmetic)
        assert "@exact.sums_" not in own
        # their order matters to infinities, and to floats
        assert ("@exact.sums_" in code) == (name != "two products" or arithmetic in ARITHMETICS[:2])
        for left, right in zip(sums, expected, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-12 * (left.dtype == np.float64))


@pytest.mark.parametrize("special", [MINUS_INFINITY, INFINITY, NAN])
def test_numbers_outside_of_the_field_stay(special: int, monkeypatch: pytest.MonkeyPatch) -> None:
    arithmetic = FieldArithmetic(True, True)
    module = _kernel(*LOOPS["vectors"], "%j to %c300 step %c1", "%known")
    sums, _ = _run(module, arithmetic, special)
    monkeypatch.setattr(translate_control, "emit_sums", lambda *_: None)
    expected, _ = _run(module, arithmetic, special)
    assert (sums[0][:16] == special).any()
    for left, right in zip(sums, expected, strict=True):
        np.testing.assert_array_equal(left, right)


OTHERS = {
    "a product of a carried value": """
      %b = vector.load %w[%i] : memref<4096xf32>, vector<4xf32>
      %t0 = vector.fma %s0, %b, %b : vector<4xf32>""",
    "a difference": """
      %b = vector.load %w[%i] : memref<4096xf32>, vector<4xf32>
      %m = arith.mulf %b, %b : vector<4xf32>
      %t0 = arith.subf %s0, %m : vector<4xf32>""",
    "a sum of loads": """
      %b = vector.load %w[%i] : memref<4096xf32>, vector<4xf32>
      %t0 = arith.addf %s0, %b : vector<4xf32>""",
    "a store": """
      %b = vector.load %w[%i] : memref<4096xf32>, vector<4xf32>
      %t0 = vector.fma %b, %b, %s0 : vector<4xf32>
      vector.store %t0, %x[%i] : memref<4096xf32>, vector<4xf32>""",
    "a sum that is read": """
      %b = vector.load %w[%i] : memref<4096xf32>, vector<4xf32>
      %t1 = vector.fma %b, %b, %s0 : vector<4xf32>
      %t0 = arith.maximumf %t1, %b : vector<4xf32>""",
    "a square of the counter as an index": """
      %q = arith.muli %i, %i : index
      %b = vector.load %w[%q] : memref<4096xf32>, vector<4xf32>
      %t0 = vector.fma %b, %b, %s0 : vector<4xf32>""",
    "a rest of the counter": """
      %q = arith.remui %i, %c3 : index
      %b = vector.load %w[%q] : memref<4096xf32>, vector<4xf32>
      %t0 = vector.fma %b, %b, %s0 : vector<4xf32>""",
    "nothing": "",
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_loops_have_their_own_code(name: str) -> None:
    module = _kernel(OTHERS[name], ["%t0" if OTHERS[name] else "%s0"], "vector<4xf32>")
    _, code = _run(module, FIELD)
    assert "@exact.sums_" not in code


def test_exchanged_sums_are_another_loop() -> None:
    module = _kernel(VECTORS, ["%t1", "%t0"], "vector<8xf32>")
    assert sum_loop(_loop(module)) is None
    _, code = _run(module, FIELD)
    assert "@exact.sums_" not in code


def test_an_access_beyond_memory_reads_other_numbers() -> None:
    """One iteration is outside: the sum is another one, and nothing else is read than memory and its guards."""
    body = """
      %q = arith.muli %i, %big : index
      %b = vector.load %w[%q] : memref<4096xf32>, vector<4xf32>
      %t0 = vector.fma %b, %b, %s0 : vector<4xf32>"""
    for factor in (1 << 20, -(1 << 40), (1 << 61)):
        constant = f"%big = arith.constant {factor} : index"
        module = _kernel(f"{constant}\n{body}", ["%t0"], "vector<4xf32>")
        sums, code = _run(module, FIELD)
        assert ("@exact.sums_" in code) == (16 * abs(factor) <= MOST_BYTES)
        assert (sums[0][:4] < P).all()


def _result(pair: object, number: int) -> Array:
    """Return the result of the scheduled form where all elements are one number."""
    round_ = pair.definition.results(FIELD, RoundSettings(0))  # type: ignore[attr-defined]
    for buffer in round_.inputs:
        buffer.planes[0][:] = number
    compiled = pair.compile_scheduled(FIELD)  # type: ignore[attr-defined]
    outputs, _ = run_function(compiled, RandomMemory(FIELD, FORM), round_.inputs, {}, round_.table)
    return outputs[0].planes[0]


@pytest.mark.parametrize("how", ["function", "inline", "calls"])
@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v4", "neoverse-v1"])
def test_sums_of_the_largest_residues_are_exact(cpu: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if how != "function":
        monkeypatch.setattr(translate_control, "emit_sums", lambda *_: None)
        monkeypatch.setattr(translate_control, "LONG", 0 if how == "inline" else 1 << 60)
    ((_, pair),) = kernel_pairs(MATMUL, options=f"cpu={cpu}")
    assert pair.verify().status == EQUAL
    assert np.array_equal(_result(pair, P - 1), np.full(13 * 50, DEPTH))


def test_long_loops_that_are_no_sums_are_inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translate_control, "emit_sums", lambda *_: None)
    ((_, pair),) = kernel_pairs(MATMUL, options="cpu=x86-64-v4")
    counts = []
    for least in (0, 1 << 60):
        monkeypatch.setattr(translate_control, "LONG", least)
        module = ModuleText()
        translate_scheduled(pair.scheduled, pair.definition.parameters, FIELD, module, "scheduled")
        assert module.has_inline_loops == (least == 0)
        counts.append(str(module).count("call <16 x i32> @exact.sum_"))
    assert counts[0] < counts[1] / 2


def test_loops_run_as_often_as_their_bounds_say() -> None:
    """A loop of one iteration has no branches."""
    bounds = [f"%c{first} to %c5 step %c1" for first in (5, 3, 2)] + ["%c3 to %c5 step %c2"]
    planes = [
        _run(_kernel("%a = arith.mulf %s0, %known : f32", ["%a"], "f32", each, "%known"), FIELD)[0] for each in bounds
    ]
    for numbers in zip(*planes, strict=True):
        known, *powers = (int(plane[0]) for plane in numbers)
        assert powers == [pow(known, count + 1, P) for count in (2, 3, 1)]
