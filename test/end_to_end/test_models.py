"""The five models: compiled by the command, loaded and run in a second process, compared with ONNX Runtime."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from commands import benchmark_model, mirlo, output_of, python
from reduced_models import reduced

from mirlo import load
from mirlo.tools import opt

TOLERANCE = 1e-3
"""Largest error, relative to the largest value of the output."""

VOCABULARY = 30000


def _inputs(session: onnxruntime.InferenceSession) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    arrays = {}
    for spec in session.get_inputs():
        if spec.type == "tensor(float)":
            arrays[spec.name] = generator.standard_normal(spec.shape, dtype=np.float32)
        elif spec.name == "attention_mask":
            # The last tokens are padding.
            arrays[spec.name] = (np.arange(spec.shape[1]) < spec.shape[1] * 3 // 4).astype(np.int64)[None]
        else:
            high = 2 if spec.name == "token_type_ids" else VOCABULARY
            arrays[spec.name] = generator.integers(0, high, spec.shape)
    return arrays


def _reference(model: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    inputs = _inputs(session)
    names = [output.name for output in session.get_outputs()]
    return inputs, dict(zip(names, session.run(names, inputs), strict=True))


def _run_compiled(model: Path, inputs: dict[str, np.ndarray], folder: Path) -> dict[str, np.ndarray]:
    """Return the outputs of a model, compiled or not, computed by `mirlo run` in another process."""
    arguments: list[object] = []
    for name, array in inputs.items():
        np.save(folder / f"{name}.npy", array)
        arguments += ["--input", f"{name}={folder / name}.npy"]
    output_of(mirlo("run", model, *arguments, "--output-dir", folder / "outputs", "--repeat", 1))
    return {path.stem: np.load(path) for path in (folder / "outputs").glob("*.npy")}


def _agree(results: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert results.keys() == expected.keys()
    for name, array in expected.items():
        assert np.abs(array).max() > 0
        error = np.abs(results[name] - array).max() / np.abs(array).max()
        assert error <= TOLERANCE, f"output '{name}': relative error {error:.2e}"


# Bytes of the file, relative to the model's, without what Winograd's algorithm adds. GPT-2 looks tokens up in a matrix
# that it also multiplies with: that one is held in two layouts.
MODELS = {"mobilenetv2": 1.05, "resnet50": 1.05, "vit_base": 1.05, "bert_base": 1.05, "gpt2": 1.35}


MAX_LOADING = 1.0
"""Seconds."""


def _added_by_winograd(compiled: Path) -> int:
    """Return the bytes by which transformed weights are larger: which ones are depends on the machine."""
    added = 0
    for param in load(compiled).artifact.params:
        if ".winograd" in param.name:
            planes = param.shape[0]
            assert planes in (16, 36)
            added += 4 * math.prod(param.shape[1:]) * (planes - 9)
    return added


NIGHTLY = pytest.mark.sample(0)
"""Models whose operators and layers are of kinds that others, or tests of generation, have."""


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name == "bert_base" else NIGHTLY) for name in MODELS])
def test_agrees_with_onnx_runtime(name: str, tmp_path: Path, whole: bool) -> None:
    # In a sample, transformers have one layer: half a gigabyte of weights takes a minute to write and read.
    model = benchmark_model(name) if whole or name == "mobilenetv2" else reduced(name)
    compiled = tmp_path / f"{name}.mirlo"
    try:
        output_of(mirlo("compile", model, "-o", compiled))
        size = compiled.stat().st_size - _added_by_winograd(compiled)
        assert size <= MODELS[name] * model.stat().st_size
        # Of the processor, as other processes may keep this one waiting.
        loading = f"import time, mirlo; mirlo.load({str(compiled)!r}); print(time.process_time())"
        assert float(output_of(python("-c", loading))) < MAX_LOADING
        inputs, expected = _reference(model)
        _agree(_run_compiled(compiled, inputs, tmp_path), expected)
    finally:
        # Up to half a gigabyte, which pytest would keep.
        compiled.unlink(missing_ok=True)


@pytest.mark.sample(0)
def test_every_stage_can_be_saved_parsed_and_continued(tmp_path: Path) -> None:
    """Of a real model: `mirlo-opt` takes each stage to the same end, and that compiles to the same results."""
    model = benchmark_model("mobilenetv2")
    stages = tmp_path / "stages"
    output_of(mirlo("compile", model, "-o", tmp_path / "model.mirlo", "--save-ir", stages))
    files = sorted(stages.glob("*.mlir"))
    assert files[0].stem == "00-import" and len(files) > 10
    ends = []
    for stage in files:
        ends.append(stages / f"{stage.stem}.end.mlir")
        assert opt.main(["--run-reproducer", str(stage), "-o", str(ends[-1])]) == 0
        assert _functions(ends[-1]) == _functions(ends[0]), stage.name
    inputs, _ = _reference(model)
    expected = _run_compiled(tmp_path / "model.mirlo", inputs, tmp_path)
    for end in (ends[0], ends[-1]):
        output_of(mirlo("compile", end, "--pipeline", "", "-o", tmp_path / "continued.mirlo"))
        results = _run_compiled(tmp_path / "continued.mirlo", inputs, tmp_path)
        np.testing.assert_array_equal(results["out"], expected["out"])


def _functions(path: Path) -> list[str]:
    """Return the IR without the line that names the files of the weights."""
    return [line for line in path.read_text().splitlines() if "relax.params" not in line]
