"""The compute builder and the loop builder: simplification, and errors of misuse."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.compute import (
    INDEX,
    Axis,
    Expr,
    LoopFunction,
    PrimBuilder,
    call,
    constant,
    maximum,
    minimum,
    select,
)

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "max": lambda a, b: maximum(a, b) if isinstance(a, Expr) else max(a, b),
    "min": lambda a, b: minimum(a, b) if isinstance(a, Expr) else min(a, b),
}


def value_of(expr: Expr, axes: list[int]) -> int:
    """Evaluate an index expression for these axes."""
    if expr.op == "axis":
        return axes[expr.data]
    if expr.op == "const":
        return expr.data
    left, right = (value_of(arg, axes) for arg in expr.args)
    return OPERATIONS[expr.op](left, right)


def size_of(expr: Expr) -> int:
    return 1 + sum(size_of(arg) for arg in expr.args)


@pytest.mark.parametrize("seed", range(40))
def test_simplification_keeps_the_value(seed: int) -> None:
    """The same random program over expressions and over numbers."""
    generator = random.Random(seed)
    points = [[generator.randrange(-9, 9) for _ in range(3)] for _ in range(10)]
    exprs: list[Expr] = [Axis(0), Axis(1), Axis(2)]
    values: list[list[int]] = [[point[i] for point in points] for i in range(3)]
    for _ in range(30):
        name = generator.choice(list(OPERATIONS))
        i = generator.randrange(len(exprs))
        number = generator.choice([0, 1, 1, 2, 3, 7]) if generator.random() < 0.7 else None
        if name in ("floordiv", "mod"):
            number = generator.choice([1, 2, 5])
        j = generator.randrange(len(exprs))
        other: Any = exprs[j] if number is None else constant(number, INDEX)
        operand = values[j] if number is None else [number] * len(points)
        exprs.append(OPERATIONS[name](exprs[i], other))
        values.append([OPERATIONS[name](a, b) for a, b in zip(values[i], operand, strict=True)])
    for expr, expected in zip(exprs, values, strict=True):
        if size_of(expr) < 5000:
            assert [value_of(expr, point) for point in points] == expected


def test_what_simplification_is_for() -> None:
    i = Axis(0)
    assert (i + 0) is i and (i * 1) is i and (i // 1) is i and (0 + i) is i and (1 * i) is i
    assert (i * 0).data == 0 and (i % 1).data == 0
    assert size_of(i + 3 - 5) == 3 and ((i + 3) - 3) is i
    x = constant(2.5, "f32")
    assert (x * 1.0) is x and (x / 1.0) is x
    assert (x + 0.0) is not x  # -0.0 + 0.0 is 0.0
    condition = i < 3
    assert (condition & True) is condition and (condition | False) is condition


@pytest.fixture
def prim() -> Iterator[PrimBuilder]:
    with make_context(), ir.Location.unknown() as location:
        yield PrimBuilder("f", [TensorType.of((4, 8), "f32"), TensorType.of((4,), "i64")], location)


MISUSE: dict[str, tuple[Callable[[PrimBuilder, Any, Any], Any], str]] = {
    "rank": (lambda p, x, i: p.compute((4,), lambda a: x[a]), "a tensor of rank 2 takes 2 indices, got 1"),
    "types": (lambda p, x, i: p.compute((4,), lambda a: x[a, 0] + i[a].cast("i32")), "'add' of f32 and i32: cast one"),
    "number": (lambda p, x, i: p.compute((4,), lambda a: 1), "a number needs a dtype"),
    "truth": (lambda p, x, i: p.compute((4,), lambda a: x[a, 0] if a < 2 else x[a, 1]), "has no truth value"),
    "select": (lambda p, x, i: p.compute((4,), lambda a: select(a < 2, 1, 2)), "select needs an expression"),
    "intrinsic": (lambda p, x, i: p.compute((4,), lambda a: call("exp", 1.0)), "must be an expression"),
}


@pytest.mark.parametrize("case", MISUSE)
def test_misuse_of_blocks(prim: PrimBuilder, case: str) -> None:
    build, message = MISUSE[case]
    with pytest.raises(TypeError, match=message.replace("(", r"\(")):
        build(prim, *prim.inputs)


def _stores(loops: Any, x: Any) -> None:
    x[0, 0] = x[0, 1].cast("i32")


def _else_alone(loops: Any, x: Any) -> None:
    with loops.else_():
        x[0, 0] = 1.0


LOOP_MISUSE: dict[str, tuple[Callable[[Any, Any], None], str]] = {
    "rank": (lambda loops, x: x[0], "a buffer of rank 2 takes 2 indices, got 1"),
    "stored type": (_stores, "a buffer of f32 cannot hold i32: cast the value"),
    "else": (_else_alone, "else_ must follow an if_"),
}


@pytest.mark.parametrize("case", LOOP_MISUSE)
def test_misuse_of_loops(case: str) -> None:
    body, message = LOOP_MISUSE[case]
    with make_context(), ir.Location.unknown() as location:
        function = LoopFunction("f", [], [TensorType.of((4, 8), "f32")], location)
        with pytest.raises(TypeError, match=message):
            function.build(body)


def test_scratch_memory_goes_where_it_fits() -> None:
    def body(loops: Any, x: Any) -> None:
        loops.scratch((1024,), "f32")
        loops.scratch((5000,), "f32")

    with make_context(), ir.Location.unknown() as location:
        text = str(LoopFunction("f", [], [TensorType.of((4,), "f32")], location).build(body))
    assert text.count("memref.alloca") == 1
    assert "memref<20032xi8>" in text and "tir.workspace = 20032" in text
