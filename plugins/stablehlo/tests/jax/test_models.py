"""Models of flax and of plain jax agree with `jax.jit`."""

from __future__ import annotations

import pytest

pytest.importorskip("jax", reason="needs jax: make test-stablehlo")
pytest.importorskip("flax", reason="needs flax: pip install flax")
pytest.importorskip("mirlo.benchmarks", reason="needs a clone of the repository")

import jax  # noqa: E402
from trees import require_equal  # noqa: E402

import mirlo  # noqa: E402
from mirlo.benchmarks.jax_models import models

MODELS = models()


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    model, array = MODELS[name]
    params = model.init(jax.random.PRNGKey(0), array)
    jitted = jax.jit(lambda x: model.apply(params, x))
    require_equal(mirlo.compile(jitted, args=(array,), cache=False, jobs=1).jax(array), jitted(array))
