"""Errors in scripts are reported at their position: the whole text of each message (`errors.txt`)."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest

import mirlo
from mirlo import R, T
from mirlo.dialects.context import make_context
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.script.errors import ScriptError

_CASES = (Path(__file__).parent / "errors.txt").read_text().split("\n", 1)[1]
CASES = [case.split("\n=>\n") for case in _CASES.split("\n----\n") if case.strip()]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("script", "message"), CASES, ids=[str(i) for i in range(len(CASES))])
def test_message(script, message) -> None:
    with pytest.raises(ScriptError) as caught:
        mirlo.parse_script(script)
    assert str(caught.value) == message


def test_there_are_cases() -> None:
    assert len(CASES) > 90


def test_place_in_a_file() -> None:
    """In a file the place is the file's, whatever the indentation and whatever stands before."""

    def make():
        @mirlo.prim_func
        def wrong(x: T.Buffer[(4,), T.f32], y: T.Out[(4,), T.f32]):
            for i in range(4):
                y[i] = T.exp(x[i]) + "größe" * x[i, 1]

        return wrong

    line = make.__code__.co_firstlineno + 4
    with pytest.raises(ScriptError) as caught:
        make().why_loops(TensorType.of((4,), "f32"))
    text = f"{__file__}:{line}:48: error: 'x' has rank 1: expected 1 indices, found 2"
    assert str(caught.value).splitlines()[0] == text
    shown, caret = str(caught.value).splitlines()[1:]
    assert shown[caret.index("^") : caret.rindex("^") + 1] == "x[i, 1]"


def test_template_misfit() -> None:
    M, N = T.dims("M", "N")

    @mirlo.prim_func
    def add(a: T.Buffer[(M, N), T.f32], b: T.Buffer[(N,), T.f32], c: T.Out[(M, 2 * N), T.f32]):
        for i, j in T.grid(M, 2 * N):
            c[i, j] = a[i, j % N] + b[j % N]

    with pytest.raises(ScriptError, match=r"'b' of 'add' cannot be f32\[5\]: N is 4 in another parameter, and 5 here"):
        add.bind([TensorType.of((3, 4), "f32"), TensorType.of((5,), "f32")])
    with pytest.raises(ScriptError, match=r"'a' of 'add' cannot be f32\[3\]: it takes rank 2"):
        add.bind([TensorType.of((3,), "f32"), TensorType.of((5,), "f32")])
    with pytest.raises(ScriptError, match=r"'a' of 'add' cannot be f64\[3, 4\]: it takes f32\[3, 4\]"):
        add.bind([TensorType.of((3, 4), "f64"), TensorType.of((4,), "f32")])
    with pytest.raises(ScriptError, match=r"'add' has 2 inputs \(a, b\), but is used with 1"):
        add.bind([TensorType.of((3, 4), "f32")])
    inputs = [TensorType.of((3, 4), "f32"), TensorType.of((4,), "f32")]
    with pytest.raises(ScriptError, match=r"'c' of 'add' cannot be f32\[3, 4\]: it takes f32\[3, 8\]"):
        add.bind(inputs, [TensorType.of((3, 4), "f32")])
    assert add.output_types(add.bind(inputs)) == [TensorType.of((3, 8), "f32")]


def test_output_that_inputs_do_not_say() -> None:
    N = T.dims("N")

    @mirlo.prim_func
    def iota(x: T.Out[(N,), T.i64]):
        for i in range(N):
            x[i] = i

    with pytest.raises(ScriptError, match="'N' in the type of 'x' is not known from the inputs: give the types of"):

        @mirlo.script
        def graph(y: R.Tensor[(3,), R.i64]):
            return y + R.call_tir(iota)

    @mirlo.script
    def good(y: R.Tensor[(3,), R.i64]):
        return y + R.call_tir(iota, out=R.Tensor[(3,), R.i64])

    assert mirlo.compile(good)(np.full(3, 5)).tolist() == [5, 6, 7]


def test_symbols_in_a_tuple() -> None:
    M, N = T.dims("M", "N")
    shape = (M, 2 * N)
    with pytest.raises(ScriptError, match="symbol 'M' is in a tuple: write the symbols in the annotation"):

        @mirlo.prim_func
        def fill(y: T.Out[shape, T.f32]):
            for i, j in T.grid(*shape):
                y[i, j] = 1.0


def test_source_that_is_not_there() -> None:
    scope: dict = {"T": T, "mirlo": mirlo}
    code = compile("@mirlo.prim_func\ndef f(x: T.Out[(4,), T.f32]):\n    x[0] = 1.0\n", "<nowhere>", "exec")
    with pytest.raises(ScriptError, match="the source of 'f' is not available: scripts are parsed from their file"):
        exec(code, scope)


STATEMENTS = """
x[0] = {}  ¦  if {}: pass  ¦  for i in range({}): pass  ¦  for i in {}: pass  ¦  with {}: pass  ¦  t = {}
{}  ¦  x[{}] = 1.0  ¦  x[0] += {}  ¦  a, b = {}  ¦  while {}: pass  ¦  T.call_extern({})
t = T.alloc({}, T.f32)  ¦  for i in T.parallel({}): x[i] = 1.0  ¦  for i, j in T.grid(2, {}): x[i] = 1.0
"""
EXPRESSIONS = """
x  ¦  T  ¦  T.f32  ¦  T.exp  ¦  1  ¦  -1  ¦  2.5  ¦  'a'  ¦  None  ¦  ...  ¦  b'x'  ¦  1j  ¦  x[0]
x[0] > 0  ¦  (1, 2)  ¦  []  ¦  {}  ¦  {1}  ¦  lambda: 0  ¦  f'{x}'  ¦  x[0:1]  ¦  x.shape  ¦  x.shape[0]
x.shape[9]  ¦  x.dtype  ¦  x.cast  ¦  x[0].cast(3)  ¦  x[0].cast()  ¦  x[0].cast(x)  ¦  T.exp()
T.select(1, 2, 3)  ¦  T.select(x[0] > 0, x, 1)  ¦  not x  ¦  -x  ¦  x and 1  ¦  x == x  ¦  1 < 'a'
T.max()  ¦  T.max(x, 1)  ¦  T.abs('a')  ¦  T.alloc((4,), T.f32)  ¦  T.block()  ¦  T.axes()  ¦  T.axes('S')
range(3)  ¦  len(x)  ¦  len((1, 2))  ¦  int('z')  ¦  float('nan')  ¦  *x  ¦  T.grid()  ¦  T.grid(x)
T.init()  ¦  T.f32(x)  ¦  T.f32('a')  ¦  T.bool(1)  ¦  T.op()  ¦  T.op('a.b', dtype='f32')  ¦  x.at()
x.at(0, outside='a')  ¦  x.at(0, other=1)  ¦  T.exp(x=1)  ¦  x[0] if x[0] > 0 else x  ¦  1 if x else 2
x ** 2  ¦  x[0] ** 2  ¦  2 ** x[0]  ¦  1 / 0  ¦  1 << -1  ¦  2 ** 0.5  ¦  x[0] @ x[0]  ¦  x[0] // 0
x[True]  ¦  T.reads(x)  ¦  T.copy(x)  ¦  T.copy(x, x)  ¦  (yield)  ¦  await x  ¦  (y := 3)  ¦  x[0].shape
T.dims  ¦  T.dims('A')  ¦  x[0, 1]  ¦  x['a']  ¦  x[None]  ¦  T.ldexp(x[0], 2)  ¦  T.ldexp(x[0], x[0])
T.isnan(x[0])  ¦  T.popcount(x[0])  ¦  T.popcount(T.i32(3))  ¦  x[T.i64(2)]  ¦  x[0] % 0.0  ¦  ~x[0]  ¦  ~2
~2.5  ¦  x in x  ¦  x is x  ¦  print(x)
"""


def test_nothing_in_python_ends_in_a_traceback() -> None:
    """Any Python expression or statement in a script is supported or a ScriptError."""
    body, parts = (re.split(r"\s*¦\s*|\n", text.strip()) for text in (STATEMENTS, EXPRESSIONS))
    context = make_context()
    for line in body:
        for part in parts:
            text = f"@T.prim_func\ndef f(x: T.Out[(4,), T.f32]):\n    {line.replace('{}', part)}\n"
            try:
                ast.parse(text)
                mirlo.parse_script(text, context=context)
            except (ScriptError, SyntaxError):
                continue
            except Exception as error:
                pytest.fail(f"{type(error).__name__}: {error}\n{text}")
