"""Functions of JAX, compiled and compared with `jax.jit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="needs jax: make test-stablehlo")

import jax.numpy as jnp  # noqa: E402
from jax import export, lax  # noqa: E402
from trees import require_equal  # noqa: E402

import mirlo  # noqa: E402
from mirlo.extend.frontend import FrontendError  # noqa: E402

RANDOM = np.random.default_rng(0)


def values(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape, dtype=np.float32)


def integers(*shape: int) -> np.ndarray:
    return RANDOM.integers(-5, 6, shape).astype(np.int32)


X, W, IMAGE, FILTER = values(8, 3), values(3, 5), values(2, 8, 8, 3), values(3, 3, 3, 4)
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "gelu of a product": (lambda x, w: jax.nn.gelu(x @ w), X, W),
    "softmax": (jax.nn.softmax, X),
    "log softmax": (lambda x: jax.nn.log_softmax(x, 0), X),
    "logsumexp": (lambda x: jax.nn.logsumexp(x, axis=0), X),
    "layer norm": (lambda x: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5), X),
    "attention": (lambda q: jax.nn.dot_product_attention(q, q, q, is_causal=True), values(2, 5, 4, 8)),
    "convolution, strided": (
        lambda x, w: lax.conv_general_dilated(x, w, (1, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
        IMAGE, FILTER,
    ),
    "convolution, permuted": (
        lambda x, w: lax.conv_general_dilated(x, w, (1,), "VALID", dimension_numbers=("WNC", "WIO", "CWN")),
        values(6, 2, 3), values(2, 3, 4),
    ),
    "convolution, by channel": (
        lambda x, w: lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=3
        ), IMAGE, values(3, 3, 1, 6),
    ),
    "transposed convolution": (lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME"), IMAGE, FILTER),
    "maximum of windows": (
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), IMAGE
    ),
    "sum of windows": (lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"), IMAGE),
    "minimum of windows": (
        lambda x: lax.reduce_window(x, jnp.inf, lax.min, (1, 3, 2, 1), (1, 1, 1, 1), "SAME"), IMAGE
    ),
    "resize": (lambda x: jax.image.resize(x, (2, 13, 5, 3), "bilinear"), IMAGE),
    "sort": (lambda x: (jnp.sort(x, axis=1), jnp.argsort(x, axis=0), jnp.sort(x, descending=True)), X),
    "lexsort": (lambda x: jnp.lexsort((x[:, 0], x[:, 1])), integers(9, 2)),
    "top-k": (lambda x: lax.top_k(x, 2), X),
    "argmax": (lambda x: (jnp.argmax(x, 0), jnp.argmin(x, 1), jnp.argmax(x.astype(int), 0)), X),
    "argmax with NaN": (lambda x: (jnp.argmax(x, 1), jnp.max(x, 1)), np.array([[1, np.nan, 3]], np.float32)),
    "reads and writes": (lambda x, i: (x[i], x.at[i].add(1.0), x.at[i].set(2.0), x.at[i, 0].max(0.5)), X,
                         np.array([1, 20, -1], np.int32)),
    "take_along_axis": (lambda x, i: jnp.take_along_axis(x, i, 1), X, np.zeros((8, 2), np.int32)),
    "vmap of an index": (lambda x, i: jax.vmap(lambda row, j: row[j])(x, i), X, np.arange(8, dtype=np.int32) % 3),
    "dynamic slices": (
        lambda x, i: (lax.dynamic_slice(x, (i, 0), (2, 2)), lax.dynamic_update_slice(x, jnp.ones((2, 2)), (i, 1))),
        X, np.int32(7),
    ),
    "fori_loop": (lambda x: lax.fori_loop(0, 3, lambda i, c: c * 2 + i, x), X),
    "while_loop": (lambda x: lax.while_loop(lambda c: c.sum() < 100, lambda c: c * 1.5 + 1, x), X),
    "scan": (lambda x: lax.scan(lambda c, v: (c + v, c * v), x[0], x), X),
    "scan backwards": (lambda x: lax.scan(lambda c, v: (c + v, c * v), x[0], x, reverse=True), X),
    "associative_scan": (lambda x: lax.associative_scan(jnp.maximum, x), X),
    "cond": (lambda x: lax.cond(x[0, 0] > 0, lambda v: v, lambda v: -v, x), X),
    "switch": (lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.tanh], x), np.int32(1), X),
    "running": (lambda x: (jnp.cumsum(x, axis=0), lax.cummax(x, axis=0), lax.cumlogsumexp(x, axis=1)), X),
    "special functions": (lambda x: (jax.scipy.special.erfinv(jnp.tanh(x)), lax.lgamma(x), lax.digamma(x)), X),
    "pad": (lambda x: lax.pad(x, 1.5, ((1, 2, 1), (-1, 0, 0))), X),
    "einsum": (lambda x, y: jnp.einsum("abc,cbd->dab", x, y), values(2, 3, 4), values(4, 3, 5)),
    "integers": (lambda a: (a // 3, a % 3, a >> 1, a << 2, lax.population_count(a), lax.clz(a)), integers(10)),
    "casts": (lambda x: ((x * 1e10).astype(int), x.astype(jnp.int8), x.astype(jnp.bfloat16).astype(float)), X),
    "threefry": (lambda k: jax.random.normal(jax.random.wrap_key_data(k), (4, 3)), np.array([0, 42], np.uint32)),
    "a product of int8": (lambda a: lax.dot(a, a.T, preferred_element_type=jnp.int32), integers(3, 4).astype(np.int8)),
    "a reduction of its own": (
        lambda x: lax.reduce(x, jnp.float32(0), lambda a, b: jnp.sqrt(a * a + b * b), (0,)), X
    ),
}  # fmt: skip


@pytest.mark.sample(10)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    function, *arrays = FUNCTIONS[name]
    jitted = jax.jit(function)
    require_equal(mirlo.compile(jitted, args=tuple(arrays), cache=False, jobs=1).jax(*arrays), jitted(*arrays))


DYNAMIC: dict[str, tuple[Callable[..., Any], tuple[str, ...], list[tuple[np.ndarray, ...]]]] = {
    "a network": (
        lambda x, w: jax.nn.softmax(jax.nn.gelu(x @ w), -1), ("b, 3", "3, 5"), [(X, W), (values(1, 3), W)]
    ),
    "reshape": (lambda x: x.reshape(-1, 4), ("b, 8",), [(values(3, 8),), (values(1, 8),)]),
    "half": (lambda x: x[: x.shape[0] // 2], ("b, 8",), [(values(5, 8),), (values(4, 8),)]),
    "arange": (lambda x: x + jnp.arange(x.shape[0])[:, None], ("b, 8",), [(values(5, 8),)]),
    "attention": (
        lambda q: jax.nn.dot_product_attention(q, q, q, is_causal=True), ("b, t, 2, 8",), [(values(2, 5, 2, 8),)]
    ),
    "concatenate": (lambda x, y: jnp.concatenate([x, y]), ("b, 8", "c, 8"), [(values(2, 8), values(3, 8))]),
    "pad": (lambda x: jnp.pad(x, ((1, x.shape[0]), (0, 0))), ("b, 8",), [(values(2, 8),)]),
    "mean": (lambda x: (x.mean(0), x.mean(1)), ("b, 8",), [(values(2, 8),)]),
    "convolution": (
        lambda x, w: lax.conv_general_dilated(x, w, (1, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
        ("b, 8, 8, 3", "3, 3, 3, 4"), [(IMAGE, FILTER)],
    ),
    "pooling": (
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), ("b, 8, 8, 3",),
        [(IMAGE,)],
    ),
    "a multiple": (lambda x: x + x.shape[0] * 2.0, ("2*b, 8",), [(values(4, 8),)]),
    "gather": (lambda x, i: x[i], ("b, 8", "n"), [(values(4, 8), np.array([3, 1, -1], np.int32))]),
    "cumsum": (lambda x: jnp.cumsum(x, 1), ("b, 8",), [(values(4, 8),)]),
    "scan": (lambda x: lax.scan(lambda c, v: (c + v, c * v), x[0], x), ("b, 8",), [(values(4, 8),)]),
    "tril": (lambda x: jnp.tril(x @ x.T), ("b, 8",), [(values(4, 8),)]),
    "argmax": (lambda x: (jnp.argmax(x, 1), jnp.argmax(x, 0)), ("b, 8",), [(values(6, 8),)]),
}  # fmt: skip


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic_shapes(name: str) -> None:
    function, shapes, calls = DYNAMIC[name]
    exe = mirlo.compile(jax.jit(function), args=calls[0], dynamic_shapes=shapes, cache=False, jobs=1)
    for arrays in calls:
        require_equal(exe.jax(*arrays), jax.jit(function)(*arrays))


def test_trees_of_arguments() -> None:
    @jax.jit
    def layer(params: dict[str, Any], x: Any, *, scale: float, unused: float = 0.0) -> dict[str, Any]:
        h = jax.nn.relu(x @ params["w"] + params["b"])
        return {"y": h * scale, "sums": [h.sum(), h.max()]}

    params = {"w": values(4, 3), "b": values(3)}
    exe = mirlo.compile(layer, args=(params, values(2, 4)), kwargs={"scale": 2.0, "unused": 1.0}, cache=False)
    assert [spec.name for spec in exe.inputs] == ["arg0.b", "arg0.w", "arg1", "scale"]
    assert [spec.name for spec in exe.outputs] == ["result.sums.0", "result.sums.1", "result.y"]
    x = values(2, 4)
    require_equal(exe.jax(params, x, scale=3.0, unused=0.0), layer(params, x, scale=3.0, unused=0.0))
    with pytest.raises(FrontendError, match="exported for arguments"):
        exe.jax(params, scale=3.0)


def test_refusals() -> None:
    identity = jax.jit(lambda x: x)
    spec = jax.ShapeDtypeStruct((2,), np.float32)
    exported = export.export(identity)(spec)
    cases = {
        "needs arguments of a call": (identity, {}),
        "this one is exported": (exported, {"args": (X,)}),
        "export it for one, platforms=": (export.export(identity, platforms=["cpu", "cuda"])(spec), {}),
        "cannot trace the function": (jax.jit(lambda x: x[::0]), {"args": (X,)}),
        "calls 'lapack_sgeqrf_ffi'": (jax.jit(jnp.linalg.qr), {"args": (np.eye(3, dtype=np.float32),)}),
        "cannot trace the function: .*host_callbacks": (
            jax.jit(lambda x: (jax.debug.print("{}", x, ordered=True), x)[1]),
            {"args": (X,)},
        ),
    }
    for message, (given, words) in cases.items():
        with pytest.raises(FrontendError, match=message):
            mirlo.compile(given, cache=False, **words)
