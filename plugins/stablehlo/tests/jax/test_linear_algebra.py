"""Linear algebra of JAX, which it lowers to functions of LAPACK on CPUs, compared with `jax.jit`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="needs jax: make test-stablehlo")

import jax.numpy as jnp  # noqa: E402
import jax.scipy as jsp  # noqa: E402
from jax import lax  # noqa: E402
from trees import require_equal  # noqa: E402

import mirlo  # noqa: E402

RANDOM = np.random.default_rng(13)


def matrix(*shape: int) -> np.ndarray:
    made: np.ndarray = RANDOM.standard_normal(shape, np.float32) + 2 * np.eye(*shape[-2:], dtype=np.float32)
    return made


def positive(*shape: int) -> np.ndarray:
    x = RANDOM.standard_normal(shape, np.float32)
    made: np.ndarray = x @ x.swapaxes(-1, -2) + np.eye(shape[-1], dtype=np.float32)
    return made


SQUARE, BATCH = matrix(4, 4), matrix(2, 5, 5)
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cholesky": (lambda x: (jnp.linalg.cholesky(x), jnp.linalg.cholesky(x, upper=True)), positive(2, 5, 5)),
    "cholesky of an indefinite matrix": (jnp.linalg.cholesky, -np.eye(3, dtype=np.float32)),
    "solve_triangular": (
        lambda x, y: [
            jsp.linalg.solve_triangular(x, y, lower=lower, trans=trans, unit_diagonal=unit)
            for lower in (True, False) for trans in (0, 1) for unit in (True, False)
        ], SQUARE, matrix(4, 3),
    ),
    "triangular_solve from the right": (
        lambda x, y: lax.linalg.triangular_solve(x, y, left_side=False, lower=True, transpose_a=True),
        SQUARE, matrix(3, 4),
    ),
    "lu_factor": (jsp.linalg.lu_factor, BATCH),
    "lu of a wide matrix": (jsp.linalg.lu, matrix(3, 5)),
    "lu of a tall matrix": (jsp.linalg.lu, matrix(5, 3)),
    "solve": (lambda x, y: (jnp.linalg.solve(x, y), jnp.linalg.solve(x, y[:, 0])), SQUARE, matrix(4, 2)),
    "inv": (jnp.linalg.inv, BATCH),
    "det": (lambda x: (jnp.linalg.det(x), jnp.linalg.slogdet(x)), BATCH),
    "slogdet of a singular matrix": (jnp.linalg.slogdet, np.zeros((3, 3), np.float32)),
    "cho_solve": (lambda x, y: jsp.linalg.cho_solve(jsp.linalg.cho_factor(x), y), positive(4, 4), matrix(4, 2)),
    "expm": (jsp.linalg.expm, 0.3 * SQUARE),
    "gradients": (
        lambda x, y: (jax.grad(lambda x: jnp.linalg.slogdet(x)[1])(x),
                      jax.grad(lambda y: jnp.sum(jnp.sin(jnp.linalg.cholesky(y))))(y)), SQUARE, positive(4, 4),
    ),
    "a normal distribution": (
        lambda x: jsp.stats.multivariate_normal.logpdf(x, jnp.zeros(4), jnp.eye(4) * 2), matrix(3, 4)
    ),
}  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    function, *arrays = FUNCTIONS[name]
    jitted = jax.jit(function)
    made = mirlo.compile(jitted, args=tuple(arrays), cache=False, jobs=1).jax(*arrays)
    require_equal(made, jitted(*arrays), 2e-3)


def test_dynamic_batches() -> None:
    jitted = jax.jit(lambda x, y: (jnp.linalg.solve(x, y), jnp.linalg.cholesky(x @ x.mT)))
    args, shapes = (BATCH, matrix(2, 5, 3)), ("b, 5, 5", "b, 5, 3")
    exe = mirlo.compile(jitted, args=args, dynamic_shapes=shapes, cache=False, jobs=1)
    for arrays in (args, (matrix(3, 5, 5), matrix(3, 5, 3))):
        require_equal(exe.jax(*arrays), jitted(*arrays), 2e-3)
