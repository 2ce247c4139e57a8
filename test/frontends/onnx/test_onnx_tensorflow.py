"""Models that tf2onnx exported from TensorFlow (Keras layers, functions, TensorFlow Lite), against ONNX Runtime.

tf2onnx 1.17 wrote them from TensorFlow 2.21: TensorFlow is no requirement of the tests.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import mirlo

FOLDER = Path(__file__).parent / "tensorflow"
MODELS = sorted(path.stem for path in FOLDER.glob("*.onnx"))
KINDS = {"tensor(float)": np.float32, "tensor(int32)": np.int32}
STEPS = {"quantized": 6 / 255}
"""What one step of the codes is: sums in another order may round to the next one."""


def test_the_models_are_there() -> None:
    assert len(MODELS) == 9


@pytest.mark.parametrize("target", ["llvm", pytest.param("c", marks=pytest.mark.sample(3))])
@pytest.mark.parametrize("name", MODELS)
def test_an_export(name: str, target: str) -> None:
    """One compilation computes every size of the dynamic dims."""
    path = str(FOLDER / f"{name}.onnx")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    compiled = mirlo.compile(path, target, jobs=1)
    for size in (1, 4, 7):
        random = np.random.default_rng(size)
        feeds = {}
        for given in session.get_inputs():
            shape = [dim if isinstance(dim, int) else size for dim in given.shape]
            feeds[given.name] = random.uniform(0, 9 if "int" in given.type else 1, shape).astype(KINDS[given.type])
        wanted = session.run(None, feeds)
        found = compiled.run(feeds)
        for output, array in zip(session.get_outputs(), wanted, strict=True):
            np.testing.assert_allclose(found[output.name], array, rtol=1e-4, atol=STEPS.get(name, 0) + 1e-5)
