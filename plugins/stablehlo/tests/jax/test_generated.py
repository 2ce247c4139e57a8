"""Calls of `jax.numpy`, `jax.lax`, `jax.nn` and `jax.scipy` on generated arrays, compared with `jax.jit`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="needs jax: make test-stablehlo")

import jax.numpy as jnp  # noqa: E402
import jax.scipy.special as special  # noqa: E402
from jax import lax, nn  # noqa: E402
from trees import require_equal  # noqa: E402

import mirlo  # noqa: E402

Case = tuple[str, Callable[..., Any], tuple[np.ndarray, ...]]
RANDOM = np.random.default_rng(5)

UNARY = [
    "abs",
    "arcsinh",
    "arctan",
    "cbrt",
    "ceil",
    "cos",
    "cosh",
    "deg2rad",
    "degrees",
    "exp",
    "exp2",
    "expm1",
    "fabs",
    "floor",
    "isfinite",
    "isinf",
    "isnan",
    "negative",
    "positive",
    "rad2deg",
    "radians",
    "reciprocal",
    "rint",
    "sign",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "square",
    "tan",
    "tanh",
    "trunc",
    "nan_to_num",
    "i0",
]
OF_POSITIVE = ["sqrt", "log", "log2", "log10", "log1p"]
OF_FRACTIONS = ["arcsin", "arccos", "arctanh"]
BINARY = [
    "add",
    "arctan2",
    "copysign",
    "divide",
    "equal",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "greater",
    "greater_equal",
    "heaviside",
    "hypot",
    "less",
    "less_equal",
    "logaddexp",
    "logaddexp2",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "not_equal",
    "remainder",
    "subtract",
    "true_divide",
    "logical_and",
    "logical_or",
    "logical_xor",
    "nextafter",
]
OF_INTEGERS = [
    "add",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "floor_divide",
    "maximum",
    "minimum",
    "multiply",
    "mod",
    "subtract",
    "gcd",
    "lcm",
]
REDUCTIONS = [
    "all",
    "any",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "count_nonzero",
    "max",
    "mean",
    "median",
    "min",
    "nanmax",
    "nanmean",
    "nanmin",
    "nansum",
    "prod",
    "ptp",
    "std",
    "sum",
    "var",
]
RUNNING = ["cumsum", "cumprod", "diff", "flip", "sort", "argsort", "nancumsum"]
ACTIVATIONS = [
    "celu",
    "elu",
    "gelu",
    "glu",
    "hard_sigmoid",
    "hard_silu",
    "hard_swish",
    "hard_tanh",
    "leaky_relu",
    "log_sigmoid",
    "log_softmax",
    "mish",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "soft_sign",
    "softmax",
    "softplus",
    "sparse_plus",
    "squareplus",
    "standardize",
]
SPECIAL = ["erf", "erfc", "expit", "log_ndtr", "ndtr", "entr", "logsumexp", "xlogy"]
SHAPES: dict[str, Callable[[Any], Any]] = {
    "atleast_3d": jnp.atleast_3d,
    "ravel": jnp.ravel,
    "transpose": jnp.transpose,
    "flipud": jnp.flipud,
    "fliplr": jnp.fliplr,
    "rot90": jnp.rot90,
    "tril": jnp.tril,
    "triu": jnp.triu,
    "diag": jnp.diag,
    "diagonal": jnp.diagonal,
    "trace": jnp.trace,
    "moveaxis": lambda x: jnp.moveaxis(x, 0, 1),
    "swapaxes": lambda x: jnp.swapaxes(x, 0, 1),
    "roll": lambda x: jnp.roll(x, 1, 1),
    "repeat": lambda x: jnp.repeat(x, 3, axis=1),
    "tile": lambda x: jnp.tile(x, (2, 3)),
    "expand_dims": lambda x: jnp.expand_dims(x, 1),
    "split": lambda x: jnp.split(x, 2, 1),
    "array_split": lambda x: jnp.array_split(x, 3, 1),
    "pad reflect": lambda x: jnp.pad(x, 2, mode="reflect"),
    "pad edge": lambda x: jnp.pad(x, 2, mode="edge"),
    "pad wrap": lambda x: jnp.pad(x, 1, mode="wrap"),
    "clip": lambda x: jnp.clip(x, -0.5, 0.5),
    "where": lambda x: jnp.where(x > 0, x, -1),
    "stack": lambda x: jnp.stack([x, x], 1),
    "hstack": lambda x: jnp.hstack([x, x]),
    "vstack": lambda x: jnp.vstack([x, x]),
    "dstack": lambda x: jnp.dstack([x, x]),
    "concatenate": lambda x: jnp.concatenate([x, x], 1),
    "outer": lambda x: jnp.outer(x[0], x[1]),
    "inner": lambda x: jnp.inner(x, x),
    "kron": lambda x: jnp.kron(x[:2, :2], x[:2, :2]),
    "tensordot": lambda x: jnp.tensordot(x, x, ((0,), (0,))),
    "vdot": lambda x: jnp.vdot(x, x),
    "matmul": lambda x: x @ x.T,
    "cross": lambda x: jnp.cross(x[:, :3], x[:, 1:4]),
    "convolve": lambda x: jnp.convolve(x[0], x[1]),
    "correlate": lambda x: jnp.correlate(x[0], x[1], mode="full"),
    "polyval": lambda x: jnp.polyval(x[0], x[1]),
    "interp": lambda x: jnp.interp(x[0], jnp.arange(6.0), x[1]),
    "searchsorted": lambda x: jnp.searchsorted(jnp.sort(x[0]), x[1]),
    "digitize": lambda x: jnp.digitize(x, jnp.arange(3.0)),
    "histogram": lambda x: jnp.histogram(x, 4, range=(-2, 2))[0],
    "bincount": lambda x: jnp.bincount((x[0] > 0).astype(int), length=2),
    "take": lambda x: jnp.take(x, jnp.array([2, 0, 1]), axis=1),
    "choose": lambda x: x[jnp.array([0, 2]), jnp.array([1, 3])],
    "slices": lambda x: (x[::-1], x[1:, ::2], x[..., -1]),
    "compress": lambda x: x.at[1:3, 2].multiply(2.0),
    "partition": lambda x: jnp.partition(x, 2, axis=1)[:, 2],
    "quantile": lambda x: jnp.quantile(x, 0.3, axis=0),
    "percentile": lambda x: jnp.percentile(x, 30, axis=1),
    "average": lambda x: jnp.average(x, 0, weights=jnp.arange(4.0)),
    "cov": jnp.cov,
    "corrcoef": jnp.corrcoef,
    "gradient": lambda x: jnp.gradient(x, axis=1),
    "ediff1d": jnp.ediff1d,
    "unwrap": jnp.unwrap,
    "vander": lambda x: jnp.vander(x[0], 3),
    "meshgrid": lambda x: jnp.meshgrid(x[0], x[1]),
    "norm": lambda x: (jnp.linalg.norm(x), jnp.linalg.norm(x, 1, axis=1)),
    "one_hot": lambda x: nn.one_hot(jnp.argmax(x, 1), 6),
    "matrix_power": lambda x: jnp.linalg.matrix_power(x[:, :4], 3),
    "grad": jax.grad(lambda x: jnp.sum(jnp.tanh(x) ** 2)),
    "grad of softmax": jax.grad(lambda x: jnp.sum(nn.softmax(x)[:, 0])),
    "jvp": lambda x: jax.jvp(jnp.sin, (x,), (x,)),
    "vmap": lambda x: jax.vmap(jnp.dot)(x, x),
    "cummin": lambda x: lax.cummin(x, axis=1),
    "rsqrt": lambda x: lax.rsqrt(abs(x) + 1),
    "select_n": lambda x: lax.select_n(x > 0, x, -x),
    "top_k": lambda x: lax.top_k(x, 3),
    "erf_inv": lambda x: lax.erf_inv(jnp.tanh(x)),
    "reduce_precision": lambda x: lax.reduce_precision(x, 8, 7),
    "bitcast": lambda x: lax.bitcast_convert_type(x, jnp.int32),
    "expand_dims of lax": lambda x: lax.expand_dims(x, (0, 2)),
    "rev": lambda x: lax.rev(x, (0, 1)),
    "pad of lax": lambda x: lax.pad(x, 0.0, ((1, 0, 2), (0, -1, 0))),
    "slice of lax": lambda x: lax.slice(x, (1, 0), (4, 6), (2, 3)),
    "map": lambda x: lax.map(lambda row: row.sum(), x),
    "igamma": lambda x: special.gammaln(abs(x) + 0.5),
    "digamma": lambda x: special.digamma(abs(x) + 0.5),
    "resize nearest": lambda x: jax.image.resize(x, (7, 3), "nearest"),
    "resize cubic": lambda x: jax.image.resize(x, (8, 9), "cubic"),
    "conv 1-D": lambda x: lax.conv(x[None], x[None, :, :3].transpose(1, 0, 2).repeat(4, 1), (1,), "SAME"),
    "avg_pool": lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 2), (2, 1), "SAME"),
}


def _floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape, dtype=np.float32)


def _elementwise() -> Iterator[Case]:
    x, y = _floats(4, 6), _floats(4, 6)
    for name in UNARY:
        yield name, getattr(jnp, name), (x,)
    for name in OF_POSITIVE:
        yield name, getattr(jnp, name), (np.abs(x),)
    yield "arccosh", jnp.arccosh, (1 + np.abs(x),)
    for name in OF_FRACTIONS:
        yield name, getattr(jnp, name), (np.tanh(x),)
    for name in BINARY:
        yield name, getattr(jnp, name), (x, y)
        yield f"{name}, broadcast", getattr(jnp, name), (x, y[0])
    yield "power", jnp.power, (np.abs(x), y)
    yield "float_power", jnp.float_power, (np.abs(x), np.float32(1.5))
    for name in ACTIVATIONS:
        yield f"nn.{name}", getattr(nn, name), (x,)
    for name in SPECIAL:
        yield f"special.{name}", getattr(special, name), (np.abs(x), np.abs(y)) if name == "xlogy" else (np.abs(x),)


def _others() -> Iterator[Case]:
    x, whole = _floats(4, 6), [RANDOM.integers(1, 40, (4, 6)).astype(np.int32) for _ in range(2)]
    for name in OF_INTEGERS:
        yield f"{name} of integers", getattr(jnp, name), (whole[0], whole[1])
    for name in ("left_shift", "right_shift"):
        yield name, getattr(jnp, name), (whole[0], whole[1] % 8)
    for name, axis in [*itertools.product(REDUCTIONS, (None, 0, 1)), *itertools.product(RUNNING, (0, 1))]:
        yield f"{name}, axis {axis}", _with_axis(getattr(jnp, name), axis), (x,)
    for name, function in SHAPES.items():
        yield name, function, (x,)
        if name in FOR_INTEGERS:
            yield f"{name} of integers", function, (whole[0],)


FOR_INTEGERS = ("transpose", "ravel", "roll", "repeat", "tile", "split", "stack", "slices", "take", "rot90", "rev")


def _with_axis(function: Callable[..., Any], axis: int | None) -> Callable[[Any], Any]:
    return lambda x: function(x, axis=axis)


CASES = [*_elementwise(), *_others()]


def test_there_are_enough() -> None:
    assert len(CASES) >= 300


@pytest.mark.sample(12)
@pytest.mark.parametrize("number", range(len(CASES)), ids=[name for name, _, _ in CASES])
def test_calls(number: int) -> None:
    _, function, arrays = CASES[number]
    jitted = jax.jit(function)
    require_equal(mirlo.compile(jitted, args=arrays, cache=False, jobs=1).jax(*arrays), jitted(*arrays))
