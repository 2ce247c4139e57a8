"""Complex numbers, Fourier transforms, random bits and gradients of pooling, compared with `jax.jit` and XLA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="needs jax: make test-stablehlo")

import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402
from mirlo_stablehlo.importer import import_stablehlo  # noqa: E402
from trees import require_equal  # noqa: E402
from xla import run_xla  # noqa: E402

import mirlo  # noqa: E402
from mirlo.extend.frontend import FrontendError  # noqa: E402

RANDOM = np.random.default_rng(11)


def real(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape, np.float32)


def complex_(*shape: int) -> np.ndarray:
    return (real(*shape) + 1j * real(*shape)).astype(np.complex64)


def all_of(*names: str) -> Callable[..., Any]:
    return lambda *arrays: [getattr(jnp, name)(*arrays) for name in names]


Z, W = complex_(4, 6), complex_(4, 6)
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "parts": (all_of("abs", "angle", "conj", "real", "imag", "isfinite", "isnan", "sign", "negative", "square"), Z),
    "exponentials": (all_of("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "reciprocal"), Z),
    "trigonometry": (all_of("sin", "cos", "tan", "sinh", "cosh", "tanh"), Z),
    "inverse trigonometry": (all_of("arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh"), Z),
    "arithmetic": (all_of("add", "subtract", "multiply", "divide", "power", "equal", "not_equal"), Z, W),
    "with real numbers": (lambda x, z: (x * z + 1j, z / x, x.astype(jnp.complex64) @ z.T), real(4, 6), Z),
    "products": (lambda z, w: (z @ w.T, jnp.vdot(z, w), jnp.einsum("ij,kj->ik", z, w), jnp.convolve(z[0], w[0])), Z, W),
    "reductions": (lambda z: (z.sum(0), z.mean(), z.prod(1), jnp.cumsum(z, 1), jnp.cumprod(z, 0)), Z),
    "movement": (lambda z: (z.T, z[1:3, ::2], jnp.roll(z, 1, 1), jnp.pad(z, 1), jnp.concatenate([z, z])), Z),
    "reads and writes": (lambda z, i: (z[i], z.at[i].set(2j), z.at[i].add(1 + 1j), jnp.where(z.real > 0, z, 0)),
                         Z, np.array([2, 1], np.int32)),
    "scan": (lambda z: lax.scan(lambda s, v: (s * v + 1, s.real), z[0], z), Z),
    "a diagonal recurrence": (
        lambda a, b: lax.associative_scan(lambda p, q: (q[0] * p[0], q[0] * p[1] + q[1]), (a, b)), Z, W
    ),
    "cond, while": (
        lambda z: (lax.cond(z[0, 0].real > 0, lambda v: v * 2, lambda v: -v, z),
                   lax.while_loop(lambda v: jnp.abs(v).sum() < 100, lambda v: v * 1.5j, z)), Z,
    ),
    "rotary positions": (
        lambda q, t: lax.complex(q[..., 0], q[..., 1]) * jnp.exp(1j * t)[:, None], real(5, 3, 2), real(5)
    ),
    "fft": (lambda z: (jnp.fft.fft(z), jnp.fft.ifft(z, axis=0), jnp.fft.fft2(z)), Z),
    "real fft": (lambda x: (jnp.fft.rfft(x), jnp.fft.irfft(jnp.fft.rfft(x), 30), jnp.fft.rfft2(x)), real(4, 30)),
    "a long convolution": (
        lambda x, k: jnp.fft.irfft(jnp.fft.rfft(x, 600) * jnp.fft.rfft(k, 600), 600)[:, :300],
        real(2, 300), real(1, 300),
    ),
    "mixing of tokens": (lambda x: jnp.fft.fft(jnp.fft.fft(x, axis=-1), axis=-2).real, real(2, 12, 16)),
    "casts of bits": (lambda x: (lax.bitcast_convert_type(x, jnp.uint8),
                                 lax.bitcast_convert_type(lax.bitcast_convert_type(x, jnp.int16), jnp.float32)),
                      real(3, 4)),
}  # fmt: skip


@pytest.mark.sample(10)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    function, *arrays = FUNCTIONS[name]
    jitted = jax.jit(function)
    made = mirlo.compile(jitted, args=tuple(arrays), cache=False, jobs=1).jax(*arrays)
    require_equal(made, jitted(*arrays), 1e-4)


def test_double_precision() -> None:
    with jax.enable_x64(True):
        z = Z.astype(np.complex128)
        jitted = jax.jit(lambda z: (jnp.exp(z) * z, jnp.fft.fft(z), jnp.arctan(z)))
        require_equal(mirlo.compile(jitted, args=(z,), cache=False, jobs=1).jax(z), jitted(z), 1e-12)


def test_dynamic_shapes() -> None:
    jitted = jax.jit(lambda z: (jnp.exp(z) @ z.T, jnp.fft.fft(z), z.sum(0)))
    exe = mirlo.compile(jitted, args=(Z,), dynamic_shapes=("b, 6",), cache=False, jobs=1)
    for z in (Z, complex_(1, 6)):
        require_equal(exe.jax(z), jitted(z), 1e-4)


def test_arguments_are_complex() -> None:
    exe = mirlo.compile(jax.jit(lambda z: z * 2j), args=(Z,), cache=False, jobs=1)
    assert [list(spec.shape) for spec in (*exe.inputs, *exe.outputs)] == [[4, 6, 2], [4, 6, 2]]
    with pytest.raises(FrontendError, match="input 'arg0': expected an array of complex64, found float32"):
        exe.jax(Z.real)
    scalar = mirlo.compile(jax.jit(lambda z: z + 1), args=(np.complex64(1j),), cache=False, jobs=1)
    assert scalar.jax(2j) == 1 + 2j


KEY = np.array([1, 2, 0xFFFFFFFE, 0xFFFFFFFF], np.uint32)
SHAPES: list[tuple[int, ...]] = [(), (1,), (7,), (3, 5), (4, 3), (3, 4, 5)]


@pytest.mark.sample(2)
@pytest.mark.parametrize("algorithm", ["RNG_THREE_FRY", "RNG_PHILOX", "RNG_DEFAULT"])
def test_random_bits_are_those_of_xla(algorithm: str) -> None:
    kind = getattr(lax.RandomAlgorithm, algorithm)
    shapes = SHAPES[-1:] if algorithm == "RNG_DEFAULT" else SHAPES

    def function(key: Any) -> Any:
        narrow = [lax.rng_bit_generator(key, (3, 5), dtype=dtype, algorithm=kind) for dtype in (jnp.uint8, jnp.uint16)]
        return [*narrow, *(lax.rng_bit_generator(key, shape, algorithm=kind) for shape in shapes)]

    jitted = jax.jit(function)
    require_equal(mirlo.compile(jitted, args=(KEY,), cache=False, jobs=1).jax(KEY), jitted(KEY), 0)


@pytest.mark.sample(2)
@pytest.mark.parametrize(("algorithm", "size"), [("THREE_FRY", 2), ("PHILOX", 2), ("PHILOX", 3)])
def test_random_bits_of_64_bits(algorithm: str, size: int) -> None:
    state, bits = f"tensor<{size}xui64>", "tensor<3x5xui64>"
    text = f"""func.func @main(%s: {state}) -> ({state}, {bits}) {{
      %0, %1 = stablehlo.rng_bit_generator %s, algorithm = {algorithm} : ({state}) -> ({state}, {bits})
      return %0, %1 : {state}, {bits}
    }}"""
    # The counter overflows its low half.
    given = np.array([5, 2**64 - 2, 9][:size], np.uint64)
    module, store = import_stablehlo(text)
    found = mirlo.compile(module, params=store, cache=False, jobs=1)(given)
    for ours, theirs in zip(found, run_xla(text, [given], [((size,), "uint64"), ((3, 5), "uint64")]), strict=True):
        np.testing.assert_array_equal(ours, theirs)


POOLS: dict[str, tuple[Any, ...]] = {
    "maximum": (lax.max, -jnp.inf, (1, 2, 2, 1), (1, 2, 2, 1), "VALID", real(2, 8, 8, 3)),
    "overlapping, padded": (lax.max, -jnp.inf, (1, 3, 3, 1), (1, 2, 2, 1), "SAME", real(2, 9, 9, 3)),
    "equal elements": (lax.max, -jnp.inf, (1, 3, 3, 1), (1, 1, 1, 1), "SAME", np.round(real(2, 7, 9, 3))),
    "minimum": (lax.min, jnp.inf, (3, 2), (2, 3), "SAME", real(9, 8)),
    "steps over elements": (lax.max, -jnp.inf, (1, 2), (2, 3), "VALID", real(9, 8)),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", POOLS)
def test_gradient_of_pooling(name: str) -> None:
    combine, start, window, strides, padding, x = POOLS[name]
    jitted = jax.jit(
        jax.grad(lambda x: jnp.sum(jnp.sin(lax.reduce_window(x, start, combine, window, strides, padding))))
    )
    require_equal(mirlo.compile(jitted, args=(x,), cache=False, jobs=1).jax(x), jitted(x))


def test_gradient_of_pooling_with_a_dynamic_batch() -> None:
    jitted = jax.jit(
        jax.grad(lambda x: jnp.sum(lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2), (1, 2, 2), "VALID") ** 2))
    )
    exe = mirlo.compile(jitted, args=(real(3, 6, 6),), dynamic_shapes=("b, 6, 6",), cache=False, jobs=1)
    for x in (real(3, 6, 6), real(1, 6, 6)):
        require_equal(exe.jax(x), jitted(x))


def test_select_and_scatter_with_functions_of_its_own() -> None:
    """Select the smallest magnitude, and multiply instead of adding."""
    text = """func.func @main(%x: tensor<5x6xf32>, %s: tensor<3x3xf32>) -> tensor<5x6xf32> {
      %c = stablehlo.constant dense<2.0> : tensor<f32>
      %0 = "stablehlo.select_and_scatter"(%x, %s, %c) <{window_dimensions = array<i64: 3, 3>,
        window_strides = array<i64: 2, 2>, padding = dense<[[1, 1], [1, 0]]> : tensor<2x2xi64>}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %1 = stablehlo.abs %a : tensor<f32>
        %2 = stablehlo.abs %b : tensor<f32>
        %3 = stablehlo.compare LE, %1, %2 : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %3 : tensor<i1>
      }, {
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %1 = stablehlo.multiply %a, %b : tensor<f32>
        stablehlo.return %1 : tensor<f32>
      }) : (tensor<5x6xf32>, tensor<3x3xf32>, tensor<f32>) -> tensor<5x6xf32>
      return %0 : tensor<5x6xf32>
    }"""
    arrays = [real(5, 6), real(3, 3)]
    module, store = import_stablehlo(text)
    found = mirlo.compile(module, params=store, cache=False, jobs=1)(*arrays)
    np.testing.assert_allclose(found, run_xla(text, arrays, [((5, 6), "float32")])[0], rtol=1e-5)


def test_batch_normalization_for_training() -> None:
    x, row = "tensor<4x3x5xf32>", "tensor<3xf32>"
    text = f"""func.func @main(%x: {x}, %s: {row}, %o: {row}, %g: {x}) -> ({x}, {row}, {row}, {x}, {row}, {row}) {{
      %0:3 = "stablehlo.batch_norm_training"(%x, %s, %o) <{{epsilon = 0.01 : f32, feature_index = 1 : i64}}>
        : ({x}, {row}, {row}) -> ({x}, {row}, {row})
      %1:3 = "stablehlo.batch_norm_grad"(%x, %s, %0#1, %0#2, %g) <{{epsilon = 0.01 : f32, feature_index = 1 : i64}}>
        : ({x}, {row}, {row}, {row}, {x}) -> ({x}, {row}, {row})
      return %0#0, %0#1, %0#2, %1#0, %1#1, %1#2 : {x}, {row}, {row}, {x}, {row}, {row}
    }}"""
    arrays = [real(4, 3, 5), real(3), real(3), real(4, 3, 5)]
    module, store = import_stablehlo(text)
    found = mirlo.compile(module, params=store, cache=False, jobs=1)(*arrays)
    shapes = [((4, 3, 5), "float32"), ((3,), "float32"), ((3,), "float32")] * 2
    for ours, theirs in zip(found, run_xla(text, arrays, shapes), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
