"""Kernels of users that access elements at positions from data: refused unless the positions are limited."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import mirlo
from mirlo import T
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.instrumentation import PassFailed
from mirlo.tools.explain.model import explain_model
from mirlo.tools.explain.report import text_lines

GRAPH = """
func.func @main(%x: tensor<DIMxf32> {relax.name = "x"}, %at: tensor<6xi64> {relax.name = "at"}) -> tensor<6xf32> {
  %0 = "relax.gather"(%x, %at) {axis = 0 : i64} : (tensor<DIMxf32>, tensor<6xi64>) -> tensor<6xf32> loc("lookup")
  return %0: tensor<6xf32>
}
"""
TARGETS = ["llvm", "c", "spirv", "nvvm", "llvm{cpu=generic triple=wasm32-unknown-unknown}"]
STATIC, DYNAMIC = GRAPH.replace("DIM", "8"), GRAPH.replace("tensor<DIMxf32>", 'tensor<?xf32, #relax.dims<["n"]>>')
M, N = T.dims("M", "N")


@mirlo.prim_func
def unlimited(x: T.Buffer[(N,), T.f32], at: T.Buffer[(M,), T.i64], y: T.Out[(M,), T.f32]):
    for i in range(M):
        y[i] = x[at[i]]


@mirlo.prim_func
def limited(x: T.Buffer[(N,), T.f32], at: T.Buffer[(M,), T.i64], y: T.Out[(M,), T.f32]):
    for i in range(M):
        y[i] = x[T.max(T.min(at[i], N - 1), 0)]


@mirlo.prim_func(buffers=True)
def guarded(x: T.Buffer[(N,), T.f32], at: T.Buffer[(M,), T.i64], y: T.Out[(M,), T.f32]):
    for i in range(M):
        y[i] = 0.0
        if at[i] >= 0 and at[i] < N:
            y[i] = x[at[i]]


@mirlo.prim_func
def limited_to_another_axis(x: T.Buffer[(N,), T.f32], at: T.Buffer[(M,), T.i64], y: T.Out[(M,), T.f32]):
    for i in range(M):
        y[i] = x[T.max(T.min(at[i], M + 4), 0)]


def _as_loops(op: ir.OpView, b: object) -> object:
    """Lower to loops without a limit, as a rule of a plug-in may."""

    def body(loops: object, x: object, at: object, y: object) -> None:
        for i in loops.range(6):
            y[i] = x[at[i]]

    return b.call_loops(body, op.x, op.indices)


def _compiled(graph: str, rule: Callable[..., object], target: str) -> object:
    with make_context(), ir.Location.unknown():
        return mirlo.compile(ir.Module.parse(graph), target=target, legalize={"relax.gather": rule})


def _of(template: object) -> Callable[..., object]:
    return lambda op, b: b.call_prim_func(template, op.x, op.indices)


@pytest.mark.parametrize("graph", [STATIC, DYNAMIC], ids=["static", "dynamic"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rule", [_of(unlimited), _as_loops], ids=["prim_func", "loops"])
def test_unlimited_position_is_refused(graph: str, target: str, rule: Callable[..., object]) -> None:
    with pytest.raises(PassFailed) as failure:
        _compiled(graph, rule, target)
    text = str(failure.value)
    assert "pass 'verify-bounds' failed: kernel '@" in text
    assert "(lookup): 'memref.load' to parameter 0" in text or "(lookup): 'vector.gather' to parameter 0" in text
    assert "its index depends on data that is not clamped (index=" in text
    assert "limit the index to the axis before the access, as in min(max(i, 0), n - 1)" in text


@pytest.mark.parametrize("graph", [STATIC, DYNAMIC], ids=["static", "dynamic"])
@pytest.mark.parametrize("target", ["spirv", "nvvm"])
@pytest.mark.parametrize("template", [limited, guarded])
def test_limited_position_is_accepted_on_gpus(graph: str, target: str, template: object) -> None:
    _compiled(graph, _of(template), target)


GATHER_ELEMENTS = """
func.func @main(%x: tensor<?x?xf32, #relax.dims<["n", "m"]>> {relax.name = "x"},
    %at: tensor<?x?xi64, #relax.dims<["a", "b"]>> {relax.name = "at"}) -> tensor<?x?xf32, #relax.dims<["a", "b"]>> {
  %0 = "relax.gather_elements"(%x, %at) {axis = 1 : i64}
    : (tensor<?x?xf32, #relax.dims<["n", "m"]>>, tensor<?x?xi64, #relax.dims<["a", "b"]>>)
    -> tensor<?x?xf32, #relax.dims<["a", "b"]>>
  return %0: tensor<?x?xf32, #relax.dims<["a", "b"]>>
}
"""


@pytest.mark.parametrize("target", TARGETS)
def test_position_in_rows_of_run_time_size(target: str) -> None:
    """A thread's number divided by a dim is a row, as the grid has no more threads than elements."""
    with make_context(), ir.Location.unknown():
        mirlo.compile(ir.Module.parse(GATHER_ELEMENTS), target=target)


X = np.arange(1, 9, dtype=np.float32)
AT = np.array([0, 7, -1, 8, 2**63 - 1, -(2**63)])


@pytest.mark.parametrize("graph", [STATIC, DYNAMIC], ids=["static", "dynamic"])
@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("template", [limited, guarded])
def test_limited_position(graph: str, target: str, template: object) -> None:
    executable = _compiled(graph, _of(template), target)
    held = np.clip(AT, 0, 7)
    expected = X[held] if template is limited else np.where(held == AT, X[held], 0)
    np.testing.assert_array_equal(executable(X, AT), expected)


@pytest.mark.parametrize("graph", [STATIC, DYNAMIC], ids=["static", "dynamic"])
@pytest.mark.parametrize("target", ["llvm", "c"])
def test_position_limited_to_another_axis(graph: str, target: str) -> None:
    """The access is tested at run time: callers pass the size where the kernel does not know it."""
    executable = _compiled(graph, _of(limited_to_another_axis), target)
    np.testing.assert_array_equal(executable(X, AT), [1, 8, 1, 0, 0, 1])


def test_explain_lists_what_is_tested_at_run_time() -> None:
    rules = {"relax.gather": _of(limited_to_another_axis)}
    with make_context(), ir.Location.unknown():
        explanation = explain_model(ir.Module.parse(STATIC), legalize=rules)
    (kernel,) = explanation.kernels
    lines = list(text_lines(explanation))
    # An access for each step of the vectors and their tails: how many, depends on the processor.
    first = next(i for i, line in enumerate(lines) if re.search("tested at run time to be in bounds: [1-9] of", line))
    assert "its index depends on data" in lines[first + 1]
    assert "size=8" in lines[first + 1]
    assert kernel.bounds is not None and not kernel.bounds.unproven
