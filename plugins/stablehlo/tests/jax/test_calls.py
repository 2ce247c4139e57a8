"""Calls of compiled functions of JAX: conversion of arguments, typed keys, element types of few bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="needs JAX: make test-stablehlo")

import mirlo  # noqa: E402

jnp, lax = jax.numpy, jax.lax
X = jnp.linspace(0.1, 0.9, 12)


def compiled(function: Callable[..., Any], *args: Any) -> Any:
    return mirlo.compile(jax.jit(function), args=args, cache=False)


def require_equal(function: Callable[..., Any], *args: Any, tolerance: float = 1e-5) -> None:
    found, expected = compiled(function, *args).jax(*args), jax.jit(function)(*args)
    for one, other in zip(jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(expected), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(np.float64(one), np.float64(other), rtol=tolerance, atol=tolerance)


def test_arguments_are_converted_as_jit_does() -> None:
    def function(x: Any, n: Any) -> Any:
        return x * n + 1

    exe = compiled(function, X, 3)
    for x in (np.asarray(X), np.float64(X), X):
        for n in (3, np.int64(5), np.int32(7), True, jnp.int32(2)):
            found, expected = exe.jax(x, n), jax.jit(function)(jnp.asarray(x), n)
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("x", [np.arange(12), jnp.arange(12.0, dtype=jnp.float16)])
def test_other_element_types_are_errors(x: Any) -> None:
    with pytest.raises(mirlo.MirloError, match=r"input 'arg0': expected f32\[12\], found"):
        compiled(lambda x: x + 1, X).jax(x)


KEYS: dict[str, Callable[[Any], Any]] = {
    "draw": lambda key: jax.random.normal(key, (3, 5)),
    "split": lambda key: jax.random.key_data(jax.random.split(key, 3)),
    "fold": lambda key: jax.random.uniform(jax.random.fold_in(key, 7)),
    "vmap": lambda key: jax.vmap(lambda one: jax.random.bits(one, (2,)))(jax.random.split(key, 4)),
}


@pytest.mark.parametrize("algorithm", ["threefry2x32", "rbg"])
@pytest.mark.parametrize("name", KEYS)
def test_typed_keys_are_arguments(name: str, algorithm: str) -> None:
    require_equal(KEYS[name], jax.random.key(3, impl=algorithm))


def test_typed_keys_are_results() -> None:
    keys = jax.random.split(jax.random.key(1), 3)
    exe = compiled(lambda keys: (keys[::-1], jax.random.split(keys[0])), keys)
    for found, expected in zip(exe.jax(keys), (keys[::-1], jax.random.split(keys[0])), strict=True):
        assert found.dtype == expected.dtype
        assert jax.random.key_data(found).tolist() == jax.random.key_data(expected).tolist()
    with pytest.raises(mirlo.MirloError, match="input 'arg0': expected keys of key<fry>, found uint32"):
        exe.jax(jax.random.key_data(keys))


FUNCTIONS = (
    "atan", "tan", "asin", "acos", "sinh", "cosh", "asinh", "atanh", "erf", "erf_inv", "lgamma", "digamma", "cbrt",
    "expm1", "log1p", "logistic", "rsqrt", "exp2",
)  # fmt: skip


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_functions_of_few_bits(kind: str) -> None:
    def function(x: Any) -> Any:
        return [getattr(lax, name)(x) for name in FUNCTIONS] + [lax.nextafter(x, 2 * x), lax.atan2(x, x + 1)]

    require_equal(function, X.astype(kind), tolerance=2e-3 if kind == "float16" else 2e-2)


@pytest.mark.parametrize("size", [7, 16, 17, 40])
@pytest.mark.parametrize("reverse", [False, True])
def test_cumulative_functions_of_any_length(size: int, reverse: bool) -> None:
    x = jnp.linspace(-2, 2, size)
    require_equal(
        lambda x: [
            lax.cumlogsumexp(x, reverse=reverse), lax.cumlogsumexp(jnp.stack([x, -x]), 1), lax.cumprod(x),
            lax.associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x, x + 1)),
        ], x,
    )  # fmt: skip
