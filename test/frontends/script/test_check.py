"""Scripts of a Python file, checked without running it."""

from __future__ import annotations

from mirlo.dialects.context import make_context
from mirlo.frontends.script.check import CheckedScripts, check_scripts

HEAD = """\
import mirlo
from mirlo import R, T

M, N = T.dims("M", "N")
SIZE = WIDTH = 4 * 2
ROWS = len("rows")
raise SystemExit
"""


def _checked(text: str) -> CheckedScripts:
    return check_scripts(HEAD + text, "file.py", make_context())


def _lines(found: CheckedScripts) -> list[int]:
    return [int(error.place.split(":")[1]) - HEAD.count("\n") for error in found.errors]


def test_every_error_of_a_file_is_found() -> None:
    found = _checked("""\
@mirlo.prim_func
def first(x: T.Buffer[(SIZE, N), T.f32], y: T.Out[(SIZE, N), T.f32]):
    y[0, 0] = z[0, 0]
@mirlo.script
def second(x: R.Tensor[(WIDTH, 8), R.f32]):
    return R.softmax(x, axis=5)
@mirlo.script
def third(x: R.Tensor[(WIDTH, 8), R.f32]):
    return R.exp(x)
""")
    assert _lines(found) == [3, 6]
    assert found.errors[0].named == "z"
    assert len(found.modules) == 1


def test_what_uses_a_definition_with_an_error_has_none() -> None:
    found = _checked("""\
@mirlo.script
class Module:
    @T.prim_func
    def half(x: T.Buffer[(8,), T.f32], y: T.Out[(8,), T.f32]):
        for i in T.grid(8):
            y[i] = w[i] / 2.0
    @R.function
    def other(x: R.Tensor[(8,), R.f32]):
        return R.nothing(x)
    @R.function
    def main(x: R.Tensor[(8,), R.f32]):
        return R.call_tir(half, x)
""")
    assert _lines(found) == [6, 9]


def test_values_that_only_running_the_file_gives_are_no_errors() -> None:
    found = _checked("""\
@mirlo.script
def model(x: R.Tensor[(ROWS, 8), R.f32]):
    return R.exp(x)
""")
    assert found.errors == []
    assert [error.named for error in found.unchecked] == ["ROWS"]


def test_templates_are_checked_for_some_size() -> None:
    found = _checked("""\
@mirlo.prim_func
def copied(x: T.Buffer[(M, N), T.f32], y: T.Out[(M, N), T.f32]):
    row = T.alloc((N,), T.f32, scope="local")
    for i in range(M):
        for j in range(N):
            row[j] = x[i, j]
        for j in range(N):
            y[i, j] = row[j]
@mirlo.prim_func
def wrong(x: T.Buffer[(M, N), T.f32], y: T.Out[(M, N), T.f32]):
    for i, j in T.grid(M, N):
        y[i, j] = x[i, k]
""")
    assert _lines(found) == [12]


def test_syntax_errors_have_a_place() -> None:
    found = _checked("def broken(:\n")
    assert _lines(found) == [1]
