"""Whole models as C source: programs of it compute what Mirlo's library and ONNX Runtime do."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import emulated_aarch64
import numpy as np
import onnx
import pytest
from c_compiler import needs_c_compiler
from libraries import Program, calls_rows, check_row_sums, make_source_program
from onnx import TensorProto
from onnx.helper import make_graph, make_node, make_tensor_value_info
from onnx_models import F32, make_model, node
from reduced_models import reduced

import mirlo
from mirlo.driver.code import compile_code
from mirlo.driver.request import CompileRequest
from mirlo.passes.targets import TargetError
from mirlo.targets.c.compiler import find_compiler
from mirlo.testing.oracle import exact_session

pytestmark = needs_c_compiler
I64 = TensorProto.INT64


@cache
def _compiler() -> str:
    return find_compiler()


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def _dynamic() -> onnx.ModelProto:
    w = np.random.default_rng(3).standard_normal((40, 24)).astype(np.float32)
    nodes = [node("MatMul", "x w", "a"), node("Gelu", "a", "b"), node("Softmax", "b", "y"), node("Flatten", "x", "z")]
    return make_model(nodes, {"x": (F32, ("n", 40))}, ["y", "z"], {"w": w}, opset=20)


def _integers() -> onnx.ModelProto:
    w = np.random.default_rng(4).integers(-128, 128, (70, 33)).astype(np.int8)
    nodes = [node("MatMulInteger", "x w", "a"), node("Cast", "a", "y", to=F32)]
    return make_model(nodes, {"x": (TensorProto.UINT8, ("n", 70))}, ["y"], {"w": w})


def _quantized() -> onnx.ModelProto:
    """Return a convolution and a product between QuantizeLinear and DequantizeLinear."""
    random = np.random.default_rng(5)
    constants = {
        "s": np.float32(0.02), "z": np.uint8(120), "ws": np.float32(0.01), "wz": np.int8(0), "ys": np.float32(0.05),
        "k": random.integers(-90, 90, (6, 3, 3, 3)).astype(np.int8),
        "m": random.integers(-90, 90, (6, 9)).astype(np.int8),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", "x s z", "xq"), node("DequantizeLinear", "xq s z", "xf"),
        node("DequantizeLinear", "k ws wz", "kf"), node("Conv", "xf kf", "c", pads=[1, 1, 1, 1]),
        node("Relu", "c", "r"),
        node("QuantizeLinear", "r ys z", "rq"), node("DequantizeLinear", "rq ys z", "rf"),
        node("GlobalAveragePool", "rf", "p"), node("Flatten", "p", "f"), node("DequantizeLinear", "m ws wz", "mf"),
        node("MatMul", "f mf", "y"),
    ]  # fmt: skip
    return make_model(nodes, {"x": (F32, (2, 3, 8, 8))}, ["y"], constants)


def _late() -> onnx.ModelProto:
    """Return a model with outputs whose sizes depend on data."""
    return make_model([node("NonZero", "x", "y"), node("Unique", "x", "z")], {"x": (F32, ("n", 5))}, ["y", "z"])


def _control() -> onnx.ModelProto:
    """Return a model with a loop, whose number of iterations is an input, and a branch."""
    boolean, scalar = TensorProto.BOOL, {"x": (F32, (4,)), "n": (I64, ())}
    body = make_graph(
        [make_node("Add", ["h", "x"], ["sum"]), make_node("Tanh", ["sum"], ["next"]),
         make_node("Identity", ["c"], ["again"]), make_node("Identity", ["next"], ["step"])],
        "body",
        [make_tensor_value_info("i", I64, ()), make_tensor_value_info("c", boolean, ()),
         make_tensor_value_info("h", F32, (4,))],
        [make_tensor_value_info("again", boolean, ()), make_tensor_value_info("next", F32, (4,)),
         make_tensor_value_info("step", F32, (4,))],
    )  # fmt: skip
    then, other = (
        make_graph([make_node(op, ["last"], [f"{op}_y"])], op, [], [make_tensor_value_info(f"{op}_y", F32, (4,))])
        for op in ("Exp", "Neg")
    )
    nodes = [
        node("Loop", "n true x", "last steps", body=body),
        node("ReduceSum", "last", "total", keepdims=0),
        node("Greater", "total zero", "positive"),
        node("If", "positive", "y", then_branch=then, else_branch=other),
    ]
    constants = {"true": np.array(True), "zero": np.float32(0)}
    return make_model(nodes, scalar, ["y", "steps"], constants)


X = _rng().standard_normal((7, 40)).astype(np.float32)
MODELS: dict[str, tuple[Any, dict[str, np.ndarray]]] = {
    "dynamic": (_dynamic, {"x": X}),
    "no rows": (_dynamic, {"x": np.zeros((0, 40), np.float32)}),
    "integers": (_integers, {"x": _rng().integers(0, 256, (5, 70)).astype(np.uint8)}),
    "quantized": (_quantized, {"x": _rng().standard_normal((2, 3, 8, 8)).astype(np.float32)}),
    "late": (_late, {"x": _rng().integers(0, 3, (6, 5)).astype(np.float32)}),
    "loop": (_control, {"x": np.float32([0.1, 0.2, -0.1, 0.3]), "n": np.array(5)}),
    "no iterations": (_control, {"x": np.float32([-0.1, -0.2, 0.1, 0.1]), "n": np.array(0)}),
}


def _check(program: Program, model: Any, inputs: dict[str, np.ndarray], calls: int = 3) -> None:
    """Require that a program computes what ONNX Runtime does."""
    session = exact_session(model)
    for found, wanted in zip(program.run(inputs, 1, calls), session.run(None, inputs), strict=True):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.sample(0)
@pytest.mark.parametrize("weights", ["embed", "beside"])
@pytest.mark.parametrize("name", MODELS)
def test_programs_compute_what_onnx_runtime_does(name: str, weights: str, tmp_path: Path) -> None:
    make, inputs = MODELS[name]
    program = make_source_program(make(), tmp_path, _compiler(), weights=weights)
    if weights == "beside" and (tmp_path / "model.weights").exists():
        found = program.run(inputs, 1, 3, str(tmp_path / "model.weights"))
        embedded = mirlo.compile(make(), "c", cache=False).run(inputs).values()
        for one, other in zip(found, embedded, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
        return
    _check(program, make(), inputs)


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", MODELS)
def test_sanitizers_find_nothing(name: str, tmp_path: Path) -> None:
    make, inputs = MODELS[name]
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"]
    probe = tmp_path / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    command = [_compiler(), *flags, str(probe), "-o", str(tmp_path / "probe")]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("the C compiler has no -fsanitize=address,undefined")
    _check(make_source_program(make(), tmp_path / "model", _compiler(), flags=flags), make(), inputs)


@pytest.mark.sample(0)
@pytest.mark.skipif(bool(emulated_aarch64.missing()), reason=emulated_aarch64.missing() or "there is")
@pytest.mark.parametrize("name", ["dynamic", "quantized", "late", "loop"])
def test_programs_for_aarch64_under_emulation(name: str, tmp_path: Path) -> None:
    make, inputs = MODELS[name]
    runner = [emulated_aarch64.EMULATOR]
    program = make_source_program(make(), tmp_path, emulated_aarch64.COMPILER, flags=["-static"], runner=runner)
    _check(program, make(), inputs)


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", ["mobilenetv2", "resnet50", "bert_base", "gpt2", "vit_base"])
def test_reduced_models(name: str, tmp_path: Path, whole: bool) -> None:
    if name not in ("mobilenetv2", "gpt2") and not whole:
        pytest.skip("in `make nightly`")
    path = reduced(name)
    executable = mirlo.compile(path, cache=False, jobs=1)
    inputs = executable.random_inputs(0)
    program = make_source_program(path, tmp_path, _compiler())
    for found, wanted in zip(
        program.run(inputs, 1, 1, str(tmp_path / "model.weights")), executable.run(inputs).values(), strict=True
    ):
        assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_wrong_tensors_are_errors(tmp_path: Path) -> None:
    program = make_source_program(_dynamic(), tmp_path, _compiler())
    (tmp_path / "inputs").write_bytes(np.array([3, 41], np.int64).tobytes() + bytes(3 * 41 * 4))
    done = program.start()
    assert done.returncode == 1 and "'x': dim 1 is 41, expected 40" in done.stderr


ASK = """
#include <stdio.h>
#include "model.h"
int main(void) {
  static const int64_t sizes[] = {7, (int64_t)1 << 31, (int64_t)1 << 40, (int64_t)1 << 60, INT64_MAX};
  mirlo_model *model;
  mirlo_context *context;
  int i;
  if (mirlo_create(&mirlo_model_model, NULL, &model, NULL, 0) || mirlo_context_create(model, &context)) return 1;
  for (i = 0; i < 5; ++i) {
    int64_t shape[2], a[2], b[2];
    DLTensor input = {NULL, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, NULL, 0}, outputs[2] = {{0}};
    outputs[0].shape = a, outputs[1].shape = b;
    shape[0] = sizes[i], shape[1] = 40;
    printf("%d\\n", mirlo_shapes(context, &input, outputs));
  }
  mirlo_context_destroy(context);
  mirlo_close(model);
  return 0;
}
"""


def test_sizes_that_overflow_are_errors(tmp_path: Path) -> None:
    make_source_program(_dynamic(), tmp_path, _compiler())
    (tmp_path / "ask.c").write_text(ASK)
    flags = ["-std=c99", "-fsanitize=undefined", "-fno-sanitize-recover=all"]
    command = [_compiler(), *flags, "ask.c", "model.c", "mirlo.c", "-o", "ask", "-lm", "-ldl"]
    if subprocess.run(command, cwd=tmp_path, check=False, capture_output=True).returncode:
        subprocess.run([part for part in command if part not in flags[1:]], cwd=tmp_path, check=True)
    printed = subprocess.run(["./ask"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert printed.split() == ["0", "0", "2", "2", "2"]


def test_functions_of_the_caller(tmp_path: Path) -> None:
    check_row_sums(make_source_program(calls_rows, tmp_path, _compiler()))


def test_integers_do_not_trap(tmp_path: Path) -> None:
    """Divisions by zero, of the smallest integer by -1, and shifts beyond the width give what target llvm gives."""
    low = np.iinfo(np.int32).min
    x = np.array([1, -7, low, low, 0, 5, low, 2**31 - 1], np.int32)
    y = np.array([0, 0, -1, 1, 0, -3, 0, -1], np.int32)
    nodes = [
        node("Div", "x y", "a"), node("Mod", "x y", "b"), node("Abs", "x", "c"), node("Neg", "x", "d"),
        node("Mul", "x x", "e"), node("Add", "x x", "f"), node("Cast", "x", "u", to=TensorProto.UINT32),
        node("Cast", "y", "v", to=TensorProto.UINT32), node("BitShift", "u v", "g", direction="LEFT"),
        node("BitShift", "u v", "h", direction="RIGHT"), node("Cast", "z", "i", to=TensorProto.INT32),
    ]  # fmt: skip
    inputs = {"x": (TensorProto.INT32, (8,)), "y": (TensorProto.INT32, (8,)), "z": (F32, (8,))}
    model = make_model(nodes, inputs, list("abcdefghi"))
    z = np.array([1e30, -1e30, np.inf, -np.inf, np.nan, 2.0**31, -1.5, 3.9], np.float32)
    flags = ["-fsanitize=undefined", "-fno-sanitize-recover=all"] if _sanitizes(tmp_path) else []
    program = make_source_program(model, tmp_path / "model", _compiler(), flags=flags)
    given = {"x": x, "y": y, "z": z}
    expected = mirlo.compile(model, cache=False, jobs=1).run(given).values()
    for found, wanted in zip(program.run(given), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def _sanitizes(folder: Path) -> bool:
    """Return whether the compiler has the sanitizer of undefined behaviour."""
    (folder / "probe.c").write_text("int main(void) { return 0; }\n")
    command = [_compiler(), "-fsanitize=undefined", str(folder / "probe.c"), "-o", str(folder / "probe")]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


HOSTILE = '*/ #error "x" \\\n??/ %s $(rm) \u202e'


@pytest.mark.sample(0)
def test_names_of_a_model_reach_no_code(tmp_path: Path) -> None:
    nodes = [
        make_node("MatMul", [HOSTILE, f"w{HOSTILE}"], ["a"], name=f"n{HOSTILE}"),
        make_node("Relu", ["a"], [f"y{HOSTILE}"]),
    ]
    w = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
    model = make_model(nodes, {HOSTILE: (F32, (2, 3))}, [f"y{HOSTILE}"], {f"w{HOSTILE}": w})
    program = make_source_program(model, tmp_path, _compiler(), weights="embed", name='a"b;\n')
    x = _rng().standard_normal((2, 3)).astype(np.float32)
    np.testing.assert_allclose(program.run({program.artifact.inputs[0].name: x})[0], np.maximum(x @ w, 0), rtol=1e-5)


def test_what_is_no_tensor_is_refused() -> None:
    sequence = make_model([node("SplitToSequence", "x", "y", axis=0)], {"x": (F32, (2, 3))}, ["y"])
    with pytest.raises(TargetError, match="the model works on sequences"):
        compile_code(CompileRequest(sequence, "c", form="source"))
    with pytest.raises(TargetError, match="target 'llvm' does not generate source of whole models"):
        compile_code(CompileRequest(_dynamic(), "llvm", form="source"))
