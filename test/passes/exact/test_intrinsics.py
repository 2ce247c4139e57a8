"""Tensor intrinsics compared with their descriptions, and kernels that tests compile with their definitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from scheduled_pairs import kernel_pairs
from verified_kernels import Share, require_equal

import mirlo
from mirlo import T
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.extend.schedules import tensor_intrin
from mirlo.passes.exact.operations import operations_in
from mirlo.passes.exact.translate_intrinsics import _constant_of
from mirlo.testing import assert_intrinsic

TILE = 4


@mirlo.prim_func
def multiply(a: T.Buffer[(TILE, TILE), T.f32], b: T.Buffer[(TILE, TILE), T.f32], c: T.Out[(TILE, TILE), T.f32]):
    for i, j, k in T.grid(TILE, TILE, TILE):
        with T.block("multiply"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]


@mirlo.prim_func(buffers=True)
def by_columns(a: T.Buffer[(TILE, TILE), T.f32], b: T.Buffer[(TILE, TILE), T.f32], c: T.Out[(TILE, TILE), T.f32]):
    for k, j, i in T.grid(TILE, TILE, TILE):
        c[i, j] += a[i, k] * b[k, j]


@mirlo.prim_func(buffers=True)
def transposed(a: T.Buffer[(TILE, TILE), T.f32], b: T.Buffer[(TILE, TILE), T.f32], c: T.Out[(TILE, TILE), T.f32]):
    for i, j, k in T.grid(TILE, TILE, TILE):
        c[i, j] += a[i, k] * b[j, k]


@mirlo.prim_func(buffers=True)
def by_c(a: T.Buffer[(TILE, TILE), T.f32], b: T.Buffer[(TILE, TILE), T.f32], c: T.Out[(TILE, TILE), T.f32]):
    T.call_extern("exact_test_multiply", a, b, c)


@mirlo.prim_func
def double(x: T.Buffer[(TILE,), T.f32], y: T.Out[(TILE,), T.f32]):
    for i in T.grid(TILE):
        y[i] = x[i] * 2.0


@mirlo.prim_func(buffers=True)
def add_twice(x: T.Buffer[(TILE,), T.f32], y: T.Out[(TILE,), T.f32]):
    for i in T.grid(TILE):
        y[i] = x[i] + x[i]


tensor_intrin("exact.by_columns", multiply, by_columns)
tensor_intrin("exact.transposed", multiply, transposed)
tensor_intrin("exact.by_c", multiply, by_c)
tensor_intrin("exact.add_twice", double, add_twice)


@pytest.mark.parametrize("name", ["exact.by_columns", "exact.add_twice"])
def test_loops_that_compute_the_description_are_equal(name: str) -> None:
    assert_intrinsic(name)


def test_loops_that_compute_something_else_are_different() -> None:
    with pytest.raises(AssertionError, match="'@exact.transposed' differs from its definition: result 0 differs in"):
        assert_intrinsic("exact.transposed")


def test_functions_of_other_languages_are_outside() -> None:
    """What a function in C does is not known: it is no proof."""
    with pytest.raises(AssertionError, match="'@exact.by_c' is not compared"):
        assert_intrinsic("exact.by_c")


def test_an_intrinsic_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no intrinsic 'exact.by_column'; did you mean 'exact.by_columns'"):
        assert_intrinsic("exact.by_column")


@pytest.fixture(name="context")
def _context() -> Iterator[None]:
    with make_context(), ir.Location.unknown():
        yield


def test_a_kernel_of_a_test_that_differs_fails(context: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Share, "every", 1)
    text = """
    func.func @main(%x: tensor<5x40xf32>) -> tensor<5x40xf32> {
      %y = "relax.exp"(%x) : (tensor<5x40xf32>) -> tensor<5x40xf32>
      return %y : tensor<5x40xf32>
    }
    """
    ((_, pair),) = kernel_pairs(text, options="cpu=x86-64-v3")
    require_equal(pair.definition.operation, pair.scheduled)
    clone = pair.scheduled.clone()
    next(op for op in operations_in(clone) if op.name == "vector.store").erase()
    with pytest.raises(AssertionError, match="differs from its definition"):
        require_equal(pair.definition.operation, clone)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("arith.constant 2.5 : f32", 2.5), ("arith.constant dense<0.5> : vector<8xf32>", 0.5),
        ("arith.constant dense<[0.5, 1.0]> : vector<2xf32>", None),
    ],
)  # fmt: skip
def test_exponents_of_all_lanes(text: str, found: float | None) -> None:
    """A power by a constant is products and roots, also of vectors."""
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(f"%c = {text}")
        (op,) = module.body.operations
        assert _constant_of(op.result) == found
