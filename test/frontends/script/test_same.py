"""`same_ir` reports differences; the round-trip tests depend on it."""

from __future__ import annotations

import pytest

import mirlo
from mirlo.dialects.context import make_context
from mirlo.frontends.script.same import same_ir

LOOPS = """
@T.prim_func(buffers=True)
def f(x: T.Buffer[(4, 4), "f32"], y: T.Out[(4, 4), "f32"], z: T.Out[(4, 4), "f32"]):
    t = T.alloc((4,), "f32", scope="local")
    for i in range(0, 4, 1):
        for j in T.serial(4):
            t[j] = x[i, j]
            y[i, j] = t[j] - 2.0 * x[i, j]
        if x[i, 0] > 0.0:
            z[i, 0] = T.exp(y[i, 0])
        z[i, 1] = y[i, 1]
"""

CHANGES = [
    ("t[j] - 2.0 * x[i, j]", "2.0 * x[i, j] - t[j]"),
    ("2.0", "2.5"),
    ("t[j] = x[i, j]", "t[j] = x[j, i]"),
    ("range(0, 4, 1)", "range(0, 4, 2)"),
    ("range(0, 4, 1)", "range(0, 3, 1)"),
    ("T.serial", "T.parallel"),
    ("> 0.0", ">= 0.0"),
    ("T.exp", "T.log"),
    ("z[i, 1] = y[i, 1]", "z[i, 1] = z[i, 1]"),
    ("z[i, 1] = y[i, 1]", "z[i, 2] = y[i, 1]"),
    ("(4,)", "(5,)"),
    ("            t[j] = x[i, j]\n", ""),
    ("t[j] = x[i, j]\n            y[i, j] = t[j]", "y[i, j] = t[j]\n            t[j] = x[i, j]"),
    ("        z[i, 1]", "            z[i, 1]"),
    ("def f(", "def g("),
]

BLOCK = """
@T.prim_func
def f(x: T.Buffer[(4, 6), "f32"], y: T.Out[(4,), "f32"]):
    for i, j in T.grid(4, 6):
        with T.block("sum"):
            vi, vj = T.axes("SR", i, j)
            with T.init():
                y[vi] = 0.0
            y[vi] += x[vi, vj] * x[vi, 5 - vj]
"""

BLOCK_CHANGES = [("0.0", "1.0"), ("5 - vj", "vj"), ('"sum"', '"total"'), ("y[vi] +=", "y[vi] ="), ("* x", "+ x")]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("text", "old", "new"), [(LOOPS, *c) for c in CHANGES] + [(BLOCK, *c) for c in BLOCK_CHANGES])
def test_change_is_seen(text, old, new) -> None:
    assert text.count(old) >= 1
    context = make_context()
    left, right = (mirlo.parse_script(t, context=context) for t in (text, text.replace(old, new, 1)))
    assert not same_ir(left, right)


def test_order_of_what_is_pure_is_not() -> None:
    context = make_context()
    later = LOOPS.replace("y[i, j] = t[j] - 2.0 * x[i, j]", "a = 2.0 * x[i, j]\n            y[i, j] = t[j] - a")
    assert later != LOOPS
    left, right = (mirlo.parse_script(text, context=context) for text in (LOOPS, later))
    assert str(left) != str(right)
    assert same_ir(left, right)
