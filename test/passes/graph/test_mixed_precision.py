"""`compile(precision=...)`: the tolerance of results relative to f32, and memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.driver.compiler import precision_passes
from mirlo.passes.targets import CompileOptions, find_target
from mirlo.tools.explain.model import explain_model

BOUNDS = {"bf16": 2.0**-6, "f16": 2.0**-9}
"""Largest error, relative to the largest value: four units in the last place of 8 and 11 bits."""


def _network() -> Any:
    """Convolutions, a residual add, a pool, an MLP with a norm and a softmax."""
    random = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> Any:
        fan_in = shape[0] if len(shape) == 2 else int(np.prod(shape[1:]))
        return numpy_helper.from_array((random.standard_normal(shape) / fan_in**0.5).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "k", "kb"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "k2"], ["c2"], pads=[1] * 4),
        helper.make_node("Add", ["c2", "r"], ["a"]),
        helper.make_node("MaxPool", ["a"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Reshape", ["p", "shape"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["m"]),
        helper.make_node("Gelu", ["m"], ["g"]),
        helper.make_node("LayerNormalization", ["g", "scale"], ["l"]),
        helper.make_node("MatMul", ["l", "w2"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"]),
    ]
    constants = [
        weight("k", 32, 8, 3, 3), weight("kb", 32, 1), weight("k2", 32, 32, 3, 3), weight("w", 128, 64),
        weight("w2", 64, 32), numpy_helper.from_array(np.array([16, 128]), "shape"),
        numpy_helper.from_array(np.ones(64, np.float32), "scale"),
    ]  # fmt: skip
    constants[1].dims[:] = [32]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 16, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [16, 32])
    return helper.make_model(
        helper.make_graph(nodes, "network", [x], [y], constants), opset_imports=[helper.make_opsetid("", 20)]
    )


@pytest.mark.sample(0)
@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_numbers_are_near_those_in_f32(precision: str) -> None:
    x = np.random.default_rng(1).standard_normal((1, 8, 16, 16)).astype(np.float32)
    expected = np.asarray(mirlo.compile(_network(), cache=False)(x))
    found = np.asarray(mirlo.compile(_network(), cache=False, precision=precision)(x))
    assert found.dtype == np.float32
    error = np.abs(found - expected).max() / np.abs(expected).max()
    assert 0 < error <= BOUNDS[precision]


def test_large_weights_take_half_of_the_memory() -> None:
    weights = np.random.default_rng(2).standard_normal((1024, 1152)).astype(np.float32)
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> g (float[64, 1024] x) => (float[64, 1152] y) { y = MatMul(x, w) }'
    )
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    wide, narrow = (mirlo.compile(model, cache=False, precision=p).memory.weights_bytes for p in (None, "bf16"))
    assert (wide, narrow) == (weights.nbytes, weights.nbytes // 2)


@pytest.mark.parametrize(
    ("cpu", "precision", "operands"),
    [
        ("emeraldrapids", "bf16", "all"), ("icelake-server", "bf16", "constants"),
        ("znver5", "bf16", "all"), ("znver3", "bf16", "constants"),
        ("znver5", "f16", "constants"), ("neoverse-n2", "bf16", "all"), ("neoverse-n1", "bf16", "constants"),
    ],
)  # fmt: skip
def test_only_weights_are_narrow_where_no_instruction_multiplies_faster(
    cpu: str, precision: str, operands: str
) -> None:
    target = find_target("llvm")
    passes = precision_passes(precision, None, target, CompileOptions("llvm", target_options=f"cpu={cpu}"))
    assert f"to-mixed-precision{{dtype={precision} operands={operands}}}" in passes


@pytest.mark.parametrize("cpu", ["emeraldrapids", "znver5"])
def test_rows_stay_wide_where_only_weights_are_narrow(cpu: str) -> None:
    weights = np.random.default_rng(2).standard_normal((1024, 1152)).astype(np.float32)
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> g (float[64, 1024] x) => (float[64, 1152] y) { y = MatMul(x, w) }'
    )
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    compiled = explain_model(model, f"llvm{{cpu={cpu}}}", follow=True, precision="bf16")
    text = "".join(stage.text for stages in compiled.stages.values() for stage in stages)
    assert "bf16" in text
    assert ('instruction = "vdpbf16ps"' in text) == (cpu == "znver5")


def test_what_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match="precision: expected bf16, f16, fastest or None, found 'int4'"):
        mirlo.compile(_network(), precision="int4")
    with pytest.raises(ValueError, match="a pipeline of your own"):
        mirlo.compile(_network(), precision="bf16", pipeline="simplify")


def test_an_operator_that_does_not_exist_is_no_one_to_keep() -> None:
    with pytest.raises(mirlo.MirloError, match=r"keep: 'relax.convv' is neither.*relax.conv"):
        mirlo.Pipeline("to-mixed-precision{keep=relax.convv}").run(_module())


def _module() -> Any:
    from mirlo.driver.models import open_model

    return open_model(_network(), None, None).module


@pytest.mark.parametrize(
    ("cpu", "chosen"),
    [("emeraldrapids", "bf16"), ("emeraldrapids tiles=none", None), ("znver5", "bf16"), ("znver3", None)],
)
def test_the_fastest_precision_is_that_of_the_processor(cpu: str, chosen: str | None) -> None:
    passes = precision_passes("fastest", None, find_target("llvm"), CompileOptions("llvm", target_options=f"cpu={cpu}"))
    assert (f"dtype={chosen}" in passes) if chosen else not passes


def test_a_model_says_what_its_precision_is() -> None:
    fastest = mirlo.compile(_network(), precision="fastest", target="llvm{cpu=znver5}", load=False, cache=False)
    assert fastest.artifact.metadata["precision"] == "bf16"
    assert any("expect up to 2^-6" in text for text in fastest.artifact.metadata["approximations"])
    plain = mirlo.compile(_network(), precision="fastest", target="llvm{cpu=znver3}", load=False, cache=False)
    assert plain.artifact.metadata["precision"] == "f32" and "approximations" not in plain.artifact.metadata
