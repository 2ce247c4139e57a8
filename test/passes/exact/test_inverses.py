"""Quotients of vectors: of all lanes, one inverse of a product is computed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.exact.field import FieldArithmetic
from mirlo.passes.exact.ir_text import ModuleText
from mirlo.passes.exact.kernel_definition import run_function
from mirlo.passes.exact.memory import RandomMemory
from mirlo.passes.exact.native import compile_function
from mirlo.passes.exact.primes import INFINITY, MINUS_INFINITY, NAN, P
from mirlo.passes.exact.rounds import round_constants
from mirlo.passes.exact.scheduled import translate_scheduled
from mirlo.passes.exact.translator import Argument

SIZE = 32


@pytest.fixture(name="context", autouse=True)
def _context() -> Iterator[None]:
    with make_context(), ir.Location.unknown():
        yield


@pytest.mark.parametrize("has_infinities", [False, True])
@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 6, 8, 16, 32])
@pytest.mark.parametrize("zeros", [0.0, 0.1, 0.6, 1.0])
def test_each_lane_has_its_own_quotient(lanes: int, zeros: float, has_infinities: bool) -> None:
    arithmetic = FieldArithmetic(True, has_infinities)
    kind = f"vector<{lanes}xf32>"
    module = ir.Module.parse(f"""
    func.func @kernel(%x: memref<{SIZE}xf32>, %y: memref<{SIZE}xf32>, %out: memref<{SIZE}xf32>) {{
      %c0 = arith.constant 0 : index
      %a = vector.load %x[%c0] : memref<{SIZE}xf32>, {kind}
      %b = vector.load %y[%c0] : memref<{SIZE}xf32>, {kind}
      %q = arith.divf %a, %b : {kind}
      vector.store %q, %out[%c0] : memref<{SIZE}xf32>, {kind}
      %again = vector.load %out[%c0] : memref<{SIZE}xf32>, {kind}
      return
    }}""")
    shapes = [("in", (SIZE,)), ("in", (SIZE,)), ("out", (SIZE,))]
    text = ModuleText()
    arguments = translate_scheduled(module.body.operations[0].operation, shapes, arithmetic, text, "scheduled")
    function = compile_function(text, "scheduled", arguments)
    for seed in range(5):
        memory = RandomMemory(arithmetic, seed)
        x, y = (memory.buffer(Argument("in", "f", 0, (SIZE,)), {}) for _ in range(2))
        chosen = memory.rng.random(SIZE) < zeros
        special = memory.rng.random(SIZE) < 0.2 * has_infinities
        for plane in y.planes:
            plane[chosen] = 0
            plane[special] = memory.rng.choice([INFINITY, MINUS_INFINITY, NAN], special.sum())
        y.planes[1][special] = y.planes[0][special]
        (result,), _ = run_function(function, memory, [x, y], {}, round_constants(seed, ()))
        for i, modulus in enumerate((P, (P - 1) // 2)):
            numerators, divisors, quotients = (each.planes[i][:lanes].tolist() for each in (x, y, result))
            for a, b, q, is_special in zip(numerators, divisors, quotients, special, strict=False):
                expected = b if is_special else a * pow(b, -1, modulus) % modulus if b else 0
                assert q == expected, np.array(quotients)
