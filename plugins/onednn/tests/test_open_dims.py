"""Models whose batch and lengths are dynamic."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from mirlo_onednn.codegen import UndeterminedDims, _require_sizes
from mirlo_onednn.native.library import is_available
from mirlo_onednn.native.program import CACHED_FUNCTIONS
from mirlo_onednn.plan import PlanTensor, PrimitiveNode, PrimitiveRegion
from mirlo_onednn.reports import reports
from mirlo_onednn.sizes import evaluate, solve, symbols, undetermined
from plans import close, random

import mirlo
from mirlo.testing.models import F32, make_model, node

needs_library = pytest.mark.skipif(not is_available(), reason="needs onednn-cpu-gomp")


def images() -> Any:
    """Return a residual block and its successors, of a batch of images."""
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1, 1, 1]),
        node("Relu", "a", "b"),
        node("Conv", "b w", "c", pads=[1, 1, 1, 1]),
        node("Add", "c x", "d"),
        node("Relu", "d", "e"),
        node("MaxPool", "e", "f", kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", "f", "g"),
        node("Flatten", "g", "h"),
        node("Gemm", "h m", "i"),
        node("Softmax", "i", "y"),
    ]
    constants = {"w": random(8, 8, 3, 3) * 0.1, "m": random(8, 5)}
    return make_model(nodes, {"x": (F32, ("batch", 8, 9, 9))}, ["y"], constants)


def attention() -> Any:
    """Return attention over any number of sequences of any length."""
    nodes = []
    for name in "qkv":
        nodes += [node("MatMul", f"x w{name}", f"{name}0"), node("Reshape", f"{name}0 heads", f"{name}1")]
        nodes += [node("Transpose", f"{name}1", name, perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3])]
    nodes += [
        node("MatMul", "q k", "s"),
        node("Softmax", "s", "p"),
        node("MatMul", "p v", "o"),
        node("Transpose", "o", "o1", perm=[0, 2, 1, 3]),
        node("Reshape", "o1 joined", "o2"),
        node("MatMul", "o2 wq", "o3"),
        node("Add", "o3 x", "o4"),
        node("LayerNormalization", "o4 scale", "y"),
    ]
    constants: dict[str, Any] = {f"w{name}": random(16, 16, seed=i) * 0.3 for i, name in enumerate("qkv")}
    constants |= {"heads": np.int64([0, 0, 2, 8]), "joined": np.int64([0, 0, 16]), "scale": random(16)}
    return make_model(nodes, {"x": (F32, ("batch", "length", 16))}, ["y"], constants)


@needs_library
@pytest.mark.parametrize(
    ("model", "shapes"),
    [
        (images, [(1, 8, 9, 9), (4, 8, 9, 9), (1, 8, 9, 9)]),
        (attention, [(1, 6, 16), (2, 3, 16), (3, 1, 16), (1, 6, 16), (1, 40, 16)]),
    ],
)
def test_sizes_of_calls(model: Any, shapes: list[tuple[int, ...]], tmp_path: Path) -> None:
    made = model()
    executable = mirlo.compile(made, "onednn,llvm", threads=2)
    assert [kernel.symbol for kernel in executable.artifact.kernels] == ["onednn.onednn_0"]
    session = onnxruntime.InferenceSession(made.SerializeToString())
    executable.save(tmp_path / "model.mirlo")
    for compiled in (executable, mirlo.load(tmp_path / "model.mirlo")):
        for shape in shapes:
            x = random(*shape)
            close(compiled(x), session.run(None, {"x": x})[0], 1e-4)


@needs_library
def test_many_sizes_and_none() -> None:
    executable = mirlo.compile(attention(), "onednn,llvm")
    for length in [*range(1, CACHED_FUNCTIONS + 4), 1, 2, CACHED_FUNCTIONS + 3]:
        x = random(1, length, 16)
        first = executable(x)
        np.testing.assert_array_equal(executable(x), first)
    assert executable(np.zeros((0, 3, 16), np.float32)).shape == (0, 3, 16)
    (report,) = reports(executable).values()
    assert {step.operation for step in report.steps} >= {"matmul", "softmax", "layer_norm"} or not report.steps


@needs_library
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_new_sizes_in_the_child_of_a_fork() -> None:
    executable = mirlo.compile(images(), "onednn,llvm", threads=2)
    x = random(3, 8, 9, 9)
    expected = executable(x)
    executable(x[:2])
    child = os.fork()
    if child == 0:
        import signal

        signal.alarm(20)
        same = np.array_equal(executable(x), expected) and np.allclose(executable(x[:1]), expected[:1], atol=1e-5)
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


@needs_library
def test_sizes_that_the_library_refuses_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    executable = mirlo.compile(images(), "onednn,llvm")

    def fail(*_: Any) -> Any:
        raise ValueError("no memory for so many images")

    monkeypatch.setattr("mirlo_onednn.native.program.Compiled", fail)
    with pytest.raises(mirlo.MirloError, match="onednn.onednn_0.*no memory for so many images"):
        executable(random(2, 8, 9, 9))
    monkeypatch.undo()
    assert executable(random(2, 8, 9, 9)).shape == (2, 5)


def test_sizes() -> None:
    known = solve([("12*batch", 36), ("batch*length + 1", 22), ("batch*length", 21)])
    assert known == {"batch": 3, "length": 7}
    assert evaluate("-batch + 2*length", known) == 11 and evaluate(4, known) == 4
    assert symbols("x.m*n - 1") == {"x.m", "n"}
    assert undetermined(["a*b", "b"], ["a + b"]) == set()
    assert undetermined(["a*b"], ["a*b", "a"]) == {"a", "b"}
    assert undetermined(["a*a"], ["a"]) == {"a"}


def test_a_region_that_does_not_tell_its_sizes_is_refused() -> None:
    tensors = {
        "x": PlanTensor(("a*b", 4), "f32"),
        "y": PlanTensor(("a", "b", 4), "f32"),
        "z": PlanTensor(("a*b", 4), "f32"),
    }
    nodes = (PrimitiveNode("reshape", {"x": "x"}, "y"), PrimitiveNode("reshape", {"x": "y"}, "z"))
    with pytest.raises(
        UndeterminedDims, match="region 'r' has dims of the symbols a, b, which none of its inputs determines"
    ):
        _require_sizes(PrimitiveRegion("r", ("x",), ("z",), tensors, nodes))
