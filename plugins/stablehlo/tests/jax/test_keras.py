"""Models of Keras on JAX: the code of the page, and layers with state."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

pytest.importorskip("jax", reason="needs jax: make test-stablehlo")
if importlib.util.find_spec("keras") is None:  # importing it chooses a back end
    pytest.skip("needs keras: pip install keras", allow_module_level=True)

from mirlo.testing.commands import output_of, run_python  # noqa: E402

PAGE = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
CODE = {
    "page": re.findall(r"^```python\n(# file: keras_model\.py\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[0],
    "recurrent": """
import os

os.environ["KERAS_BACKEND"] = "jax"
import jax, keras, numpy as np
import mirlo


layers = keras.layers
words = keras.Input((20,), dtype="int32")
found = layers.Embedding(100, 32)(words)
found = layers.LayerNormalization()(found + layers.MultiHeadAttention(4, 8)(found, found))
found = layers.Bidirectional(layers.LSTM(16))(found)
model = keras.Model(words, layers.Dense(3)(found))
given = np.random.default_rng(0).integers(0, 100, (2, 20)).astype(np.int32)
predict = jax.jit(lambda x: model(x, training=False))
np.testing.assert_allclose(mirlo.compile(predict, args=(given,))(given), predict(given), rtol=1e-4, atol=1e-5)
""",
}


@pytest.mark.parametrize("name", CODE)
def test_keras(name: str, tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(CODE[name], encoding="utf-8")
    output_of(run_python(tmp_path / "code.py", cwd=tmp_path))
