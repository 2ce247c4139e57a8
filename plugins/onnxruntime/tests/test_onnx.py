"""Target `onnx`: regions as ONNX models, run by ONNX Runtime."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from mirlo_onnxruntime import provider
from mirlo_onnxruntime.export import load_exporters

import mirlo
from mirlo.extend.ops import ir, make_context
from mirlo.extend.target import Pipeline
from mirlo.testing.commands import output_of, run_command
from mirlo.testing.conformance import check_target, names
from mirlo.testing.models import F32, make_model, node
from mirlo.testing.placement import Placement, Session, Targets

VERSION = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])
OPERATORS = (
    "add", "mod", "not_equal", "trunc", "log2", "gelu", "clip", "elu", "silu", "where", "matmul", "conv",
    "conv_transpose", "max_pool", "avg_pool", "lp_pool", "resize", "attention", "quantize", "dequantize", "reshape",
    "permute", "expand", "expand_dims", "squeeze", "tile", "reverse", "strided_slice", "pad", "concat", "stack",
    "split", "depth_to_space", "tri", "gather", "gather_nd", "scatter_nd", "one_hot", "reduce_mean", "reduce_any",
    "argmax", "cumsum", "topk", "softmax", "layer_norm", "rms_norm", "batch_norm", "instance_norm", "group_norm",
    "lrn", "lp_normalize",
)  # fmt: skip


@pytest.mark.sample(0)
@pytest.mark.skipif(VERSION < (1, 24), reason="older versions compute other results")
def test_operators_compute_what_numpy_does() -> None:
    names()  # reads the table of cases
    matrix = check_target("onnx,llvm", [f"relax.{name}" for name in OPERATORS], patterns=False)
    wrong = [(e.name, k, v) for e in matrix.entries for k, v in e.verdicts.items() if v.status != "ok"]
    assert not wrong and matrix.count("ok") > 200
    assert {f"relax.{name}" for name in OPERATORS} <= set(load_exporters())


def _network() -> Any:
    random = np.random.default_rng(0)
    constants = {
        "w": random.standard_normal((16, 3, 3, 3), np.float32) / 5,
        "b": random.standard_normal(16, np.float32),
        "fc": random.standard_normal((16, 40), np.float32),
    }
    nodes = [
        node("Conv", "x w b", "c", pads=[1, 1, 1, 1]),
        node("Relu", "c", "r"),
        node("GlobalAveragePool", "r", "g"),
        node("Flatten", "g", "f"),
        node("MatMul", "f fc", "m"),
        node("Softmax", "m", "y"),
    ]
    return make_model(nodes, {"x": (F32, [2, 3, 8, 8])}, ["y", "f"], constants)


def test_a_model_agrees_with_onnx_runtime_also_when_it_is_loaded_again(tmp_path: Path) -> None:
    model = _network()
    x = np.random.default_rng(1).standard_normal((2, 3, 8, 8), np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, {"x": x})
    executable = mirlo.compile(model, "onnxruntime{provider=cpu},llvm")
    assert [k.symbol for k in executable.artifact.kernels] == ["onnxruntime.onnxruntime_0"]
    (external,) = executable.artifact.externals
    assert len(external.params) == 2 and len(external.data) < 4096  # the weights are not in the model
    for found, wanted in zip(executable(x), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    executable.save(tmp_path / "m.mirlo")
    del executable
    gc.collect()
    again = mirlo.load(tmp_path / "m.mirlo")
    for found, wanted in zip(again(x), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_three_targets_at_once() -> None:
    random = np.random.default_rng(0)
    nodes = [
        node("Relu", "x", "r"),
        node("GridSample", "r g", "s"),
        node("Det", "s", "d"),
        node("Mul", "d d", "y"),
    ]
    model = make_model(nodes, {"x": (F32, [2, 1, 4, 4]), "g": (F32, [2, 3, 3, 2])}, ["y"])
    given = {"x": random.standard_normal((2, 1, 4, 4), np.float32), "g": random.uniform(-1, 1, (2, 3, 3, 2))}
    given = {name: array.astype(np.float32) for name, array in given.items()}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    executable = mirlo.compile(model, ["c", "onnx", "llvm"], placement={"c": [0], "onnx": [1, 2]})
    assert {e.target for e in executable.artifact.externals} == {"c", "onnx"}
    assert any(k.kind != "packed" for k in executable.artifact.kernels)
    np.testing.assert_allclose(executable(**given), session.run(None, given)[0], rtol=1e-4, atol=1e-5)


def test_the_model_is_exported_as_onnx(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(_network().SerializeToString())
    command = ("compile", tmp_path / "m.onnx", "--targets", "onnx", "--emit", "source", "-o", tmp_path / "out")
    printed = output_of(run_command(*command))
    assert printed.startswith(f"wrote {tmp_path / 'out' / 'onnx_0.onnx'}: ")
    made = onnx.load(tmp_path / "out" / "onnx_0.onnx")
    onnx.checker.check_model(made, full_check=True)
    assert not [n for n in made.graph.node if n.op_type == "Identity"]
    x = np.random.default_rng(1).standard_normal((2, 3, 8, 8), np.float32)
    sessions = [
        onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        for path in (tmp_path / "m.onnx", tmp_path / "out" / "onnx_0.onnx")
    ]
    results = [session.run(None, {session.get_inputs()[0].name: x}) for session in sessions]
    ours = {tuple(array.shape): array for array in results[1]}
    for array in results[0]:
        np.testing.assert_allclose(ours[array.shape], array, rtol=1e-5, atol=1e-6)


DECLINED = """
func.func @main(%x: tensor<4x4xbf16>, %y: tensor<4xf64>, %z: tensor<?xf32>) -> (tensor<4x4xbf16>, tensor<4xf64>, tensor<?xf32>) {
  %0 = "relax.relu"(%x) : (tensor<4x4xbf16>) -> tensor<4x4xbf16>
  %1 = "relax.asinh"(%y) : (tensor<4xf64>) -> tensor<4xf64>
  %2 = "relax.abs"(%z) : (tensor<?xf32>) -> tensor<?xf32>
  return %0, %1, %2 : tensor<4x4xbf16>, tensor<4xf64>, tensor<?xf32>
}
"""  # noqa: E501


def test_what_it_declines_has_a_reason() -> None:
    with make_context(), ir.Location.unknown():
        module, session = ir.Module.parse(DECLINED), Session()
        Pipeline(Targets.parse("onnx,llvm").steps()).run(module, session)
    (placement,) = [note for note in session.notes if isinstance(note, Placement)]
    reasons = [placement.why_not(record.id, "onnx") for record in placement.nodes]
    assert "no such element type with numpy (dtype=bf16)" in reasons[0]
    assert "ONNX Runtime cannot run it:" in reasons[1] and "NOT_IMPLEMENTED" in reasons[1]
    assert "dims are known" in reasons[2]


def test_a_provider_that_is_not_installed() -> None:
    with pytest.raises(mirlo.MirloError, match="no execution provider 'tensorrt' here; it has: .*CPUExecutionProvider"):
        mirlo.compile(_network(), ["onnx{provider=tensorrt}", "llvm"])


@pytest.fixture
def no_runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    provider.try_model.cache_clear()
    yield
    provider.try_model.cache_clear()


def test_without_onnx_runtime_the_error_says_what_to_install(no_runtime: None) -> None:
    with pytest.raises(mirlo.MirloError, match=r"ONNX Runtime does not load .*pip install onnxruntime"):
        mirlo.compile(_network(), ["onnx", "llvm"])
