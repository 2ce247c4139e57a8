"""The pass `lower-loops` on many loops."""

from __future__ import annotations

import cProfile
import pstats

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session

FUNCTION = """
func.func @f(%y: memref<8xf32>) attributes {{tir.prim_func}} {{
  %zero = arith.constant 0 : index
  %eight = arith.constant 8 : index
  %one = arith.constant 1.0 : f32
  {loops}
  return
}}"""
LOOP = """"tir.for"(%zero, %eight) ({{
  ^bb0(%i{number}: index):
    {body}
    "tir.yield"() {{operandSegmentSizes = array<i32: 0, 0, 0, 0>}} : () -> ()
  }}) {{kind = "{kind}"}} : (index, index) -> ()
"""


def lowered(loops: str) -> tuple[str, int]:
    """Return a function after the pass, and how many functions of Python the pass called."""
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(FUNCTION.format(loops=loops))
        profile = cProfile.Profile()
        profile.runcall(Pipeline("builtin.module(lower-loops)").run, module, Session())
        return str(module), pstats.Stats(profile).total_calls  # type: ignore[attr-defined]


def test_work_is_linear_in_the_loops() -> None:
    store = "memref.store %one, %y[%i{number}] : memref<8xf32>"
    loops = [LOOP.format(number=i, body=store.format(number=i), kind="serial") for i in range(240)]
    lowered("")  # imports
    least, small, large = (lowered("".join(loops[:count]))[1] for count in (0, 60, 240))
    assert large - least <= 5 * (small - least)


def test_unrolled_loops_inside_unrolled_loops_are_all_repeated() -> None:
    body = "memref.store %one, %y[%i2] : memref<8xf32>"
    for number, kind in ((2, "unrolled"), (1, "serial"), (0, "unrolled")):
        body = LOOP.format(number=number, body=body, kind=kind)
    text, _ = lowered(body)
    assert text.count("memref.store") == 64 and text.count("scf.for") == 8 and "tir.for" not in text
