"""Rules cannot access an element at an index from data that nothing limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.dims import symbol
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir import compute
from mirlo.dialects.tir.compute.builder import UnlimitedIndex
from mirlo.dialects.tir.compute.expr import Expr
from mirlo.dialects.tir.compute.limits import is_limited
from mirlo.passes.instrumentation import PassFailed

SIZE = symbol("n")
Make = Callable[[Expr, Expr], Expr]
LIMITED: dict[str, Make] = {
    "clamped": lambda at, i: compute.within(at, SIZE),
    "clamped from the end": lambda at, i: compute.within(compute.from_end(at, SIZE), SIZE),
    "at most the last": lambda at, i: compute.at_most_last(at, SIZE),
    "wrapped": lambda at, i: compute.wrapped(at, SIZE),
    "tested": lambda at, i: compute.select(compute.is_within([at.cast("index")], [SIZE]), at.cast("index"), 0),
    "clamped, then moved": lambda at, i: compute.within(at, 4) * 2 - 1 + i,
    "of 8 bits": lambda at, i: at.cast("u8").cast("index"),
    "masked": lambda at, i: at & 7,
    "clamped as a float": lambda at, i: compute.floor(compute.clamp(at.cast("f32"), 0.0, 9.0)).cast("index"),
    "without data": lambda at, i: i * 3 - 1,
}
UNLIMITED: dict[str, Make] = {
    "as it is": lambda at, i: at,
    "moved": lambda at, i: at + i - 1,
    "from the end": lambda at, i: compute.from_end(at, SIZE),
    "below only": lambda at, i: compute.maximum(at, 0),
    "above only": lambda at, i: compute.minimum(at.cast("index"), compute.constant(SIZE, "index")),
    "the lower limit after a change of sign": lambda at, i: -compute.maximum(at, 0),
    "added to another": lambda at, i: compute.within(at, 4) + at.cast("index"),
    "tested on one side": lambda at, i: compute.select(at < 9, at, 0),
    "another is tested": lambda at, i: compute.select(compute.is_within([i], [9]), at.cast("index"), 0),
    "remainder by data": lambda at, i: i % at.cast("index"),
    "signed, then not": lambda at, i: compute.minimum(at, 9).cast("u64").cast("index"),
    "wrapped by a narrower type": lambda at, i: compute.minimum(at.cast("u64"), 9).cast("u64") * at.cast("u64"),
    "as a float": lambda at, i: compute.exp(at.cast("f32")).cast("index"),
}


@pytest.fixture
def operands() -> Iterator[tuple[compute.TensorExpr, Expr, Expr]]:
    with make_context(), ir.Location.unknown():
        types = [TensorType.of(("n",), "f32"), TensorType.of((6,), "i64")]
        builder = compute.PrimBuilder("f", types, ir.Location.unknown())
        axis = compute.Axis(0)
        yield builder.inputs[0], builder.inputs[1][axis], axis


@pytest.mark.parametrize("name", LIMITED)
def test_limited(name: str, operands: tuple[compute.TensorExpr, Expr, Expr]) -> None:
    x, at, axis = operands
    index = LIMITED[name](at, axis)
    assert is_limited(index)
    x[index]


@pytest.mark.parametrize("name", UNLIMITED)
def test_unlimited(name: str, operands: tuple[compute.TensorExpr, Expr, Expr]) -> None:
    x, at, axis = operands
    with pytest.raises(UnlimitedIndex, match=r"index 0 of an element of f32\[n\] comes from data.*compute.within"):
        x[UNLIMITED[name](at, axis)]


INTERVALS = {"none": (-math.inf, math.inf), "low": (0, math.inf), "high": (-math.inf, 9), "both": (0, 9)}


def _of_interval(at: Expr, low: float, high: float) -> Expr:
    """Return a value from data with these limits."""
    value = at.cast("index") if low == -math.inf else compute.maximum(at.cast("index"), 0)
    return value if high == math.inf else compute.minimum(value, 9)


def _limits_of(value: Expr) -> tuple[bool, bool]:
    """Return whether a value has a lower and an upper limit: with the other one it is limited."""
    return is_limited(compute.minimum(value, 5)), is_limited(compute.maximum(value, 5))


@pytest.mark.parametrize("first", INTERVALS)
@pytest.mark.parametrize("second", INTERVALS)
def test_limits_are_those_of_intervals(
    first: str, second: str, operands: tuple[compute.TensorExpr, Expr, Expr]
) -> None:
    _, at, axis = operands
    (low, high), (least, most) = INTERVALS[first], INTERVALS[second]
    a, b = _of_interval(at, low, high), _of_interval(at + 1, least, most)
    expected = {
        "neg": (-a, -high, -low), "add": (a + b, low + least, high + most), "sub": (a - b, low - most, high - least),
        "minimum": (compute.minimum(a, b), min(low, least), min(high, most)),
        "maximum": (compute.maximum(a, b), max(low, least), max(high, most)),
        "moved": (a + axis, low, high), "moved back": (axis - a, -high, -low), "three times": (a * 3, low, high),
        "half": (a // 2, low, high),
    }  # fmt: skip
    for name, (value, lower, upper) in expected.items():
        assert _limits_of(value) == (lower != -math.inf, upper != math.inf), name


GRAPH = """
func.func @main(%x: tensor<8xf32> {relax.name = "x"}, %at: tensor<6xi64> {relax.name = "at"}) -> tensor<6xf32> {
  %0 = "relax.gather"(%x, %at) {axis = 0 : i64} : (tensor<8xf32>, tensor<6xi64>) -> tensor<6xf32> loc("lookup")
  return %0: tensor<6xf32>
}
"""


def _lookup(x: compute.TensorExpr, at: compute.TensorExpr) -> Callable[[Expr], Expr]:
    return lambda i: x[at[i]]


def _listed(x: compute.TensorExpr, at: compute.TensorExpr) -> Callable[[Expr], Expr]:
    return lambda i: x[at.listed(i)]


def _rule(element: Callable[..., Callable[[Expr], Expr]]) -> Callable[..., object]:
    def rule(op: ir.OpView, b: object) -> object:
        return b.call_prim(lambda p, x, at: p.compute((6,), element(x, at)), op.x, op.indices)  # type: ignore[attr-defined]

    return rule


def _compile(rule: Callable[..., object], positions: str = "") -> mirlo.Executable:
    graph = GRAPH
    if positions:
        given = f'%at = "relax.constant"() {{value = dense<[{positions}]> : tensor<6xi64>}} : () -> tensor<6xi64>'
        graph = graph.replace(', %at: tensor<6xi64> {relax.name = "at"}', "").replace("{\n  %0", f"{{\n  {given}\n  %0")
    with make_context(), ir.Location.unknown():
        found = mirlo.compile(ir.Module.parse(graph), legalize={"relax.gather": rule})
    assert isinstance(found, mirlo.Executable)
    return found


def test_a_rule_of_a_user_is_told_what_to_use() -> None:
    with pytest.raises(
        PassFailed, match=r"rule '.*raised UnlimitedIndex: index 0 of an element of f32\[8\] comes from"
    ):
        _compile(_rule(_lookup))
    with pytest.raises(PassFailed, match="pass it through compute.within"):
        _compile(_rule(_lookup))


def test_a_position_that_a_table_holds_is_proven_or_tested() -> None:
    x = np.arange(1, 9, dtype=np.float32)
    for positions, expected in {
        "0, 7, 3, 3, 1, 5": [1, 8, 4, 4, 2, 6],
        "0, 7, 3, 8, 1, 5": [1, 8, 4, 0, 2, 6],
        "0, -1, 3, 3, 1, 5": [1, 0, 4, 4, 2, 6],
    }.items():
        (found,) = _compile(_rule(_listed), positions).run({"x": x}).values()
        assert found.tolist() == expected
    with pytest.raises(PassFailed, match="pass 'verify-bounds' failed.*limit the index to the axis"):
        _compile(_rule(_listed))
