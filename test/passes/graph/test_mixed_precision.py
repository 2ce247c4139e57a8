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
        weight("k", 32, 8, 3, 3), weight("kb", 32, 1), weight("k2", 32, 32, 3, 3), weight("w", 512, 64),
        weight("w2", 64, 32), numpy_helper.from_array(np.array([4, 512]), "shape"),
        numpy_helper.from_array(np.ones(64, np.float32), "scale"),
    ]  # fmt: skip
    constants[1].dims[:] = [32]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 16, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 32])
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


def _product(rows: int | str, columns: int = 1152) -> Any:
    """Return a product with constant weights, of more than a MiB if there are many columns."""
    weights = np.random.default_rng(2).standard_normal((1024, columns)).astype(np.float32)
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 20]> g (float[{rows}, 1024] x) => (float[{rows}, {columns}] y) '
        "{ y = MatMul(x, w) }"
    )
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return model


def test_large_weights_take_half_of_the_memory() -> None:
    size = 4 * 1024 * 1152
    wide, narrow = (mirlo.compile(_product(1), cache=False, precision=p).memory.weights_bytes for p in (None, "bf16"))
    assert (wide, narrow) == (size, size // 2)


@pytest.mark.parametrize(
    ("options", "rows", "dtype"),
    [
        ("cpu=icelake-server", 1, "bf16"), ("cpu=icelake-server", 8, "bf16"), ("cpu=icelake-server", 15, "bf16"),
        ("cpu=icelake-server", 16, "f32"), ("cpu=icelake-server", 64, "f32"), ("cpu=icelake-server", "n", "bf16"),
        ("cpu=icelake-server", 0, "bf16"), ("cpu=icelake-server memory=small", 64, "bf16"),
        ("cpu=icelake-server invariant=true", 64, "bf16"),
        ("cpu=znver3", 7, "bf16"), ("cpu=znver3", 8, "f32"), ("cpu=znver3", "n", "bf16"), ("cpu=znver5", 64, "bf16"),
    ],
)  # fmt: skip
def test_weights_are_narrow_where_memory_limits_their_products(options: str, rows: int | str, dtype: str) -> None:
    """Where the sizes say that a weight is multiplied with many rows, it is read faster as f32 than widened."""
    compiled = mirlo.compile(_product(rows), precision="bf16", target=f"llvm{{{options}}}", load=False, cache=False)
    assert [spec.dtype for spec in compiled.artifact.params] == [dtype]
    assert ("approximations" in compiled.artifact.metadata) == (dtype == "bf16")


def test_without_constants_nothing_is_narrow() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> g (float[64, 9] x, float[9, 32] w) => (float[64, 32] y) '
        "{ y = MatMul(x, w) }"
    )
    compiled = mirlo.compile(model, precision="bf16", target="llvm{cpu=icelake-server}", load=False, cache=False)
    assert not compiled.artifact.params and "approximations" not in compiled.artifact.metadata


def test_a_weight_of_two_products_is_stored_for_each() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> g (float[1, 1024] x, float[64, 1024] z) '
        "=> (float[1, 1152] y, float[64, 1152] v) { y = MatMul(x, w)\n v = MatMul(z, w) }"
    )
    model.graph.initializer.append(_product(1).graph.initializer[0])
    compiled = mirlo.compile(model, precision="bf16", target="llvm{cpu=icelake-server}", load=False, cache=False)
    assert sorted(spec.dtype for spec in compiled.artifact.params) == ["bf16", "f32"]


@pytest.mark.parametrize(
    ("cpu", "precision", "options"),
    [
        ("emeraldrapids", "bf16", "operands=all"), ("icelake-server", "bf16", "operands=constants max-rows=15"),
        ("znver5", "bf16", "operands=all"), ("znver3", "bf16", "operands=constants max-rows=7"),
        ("znver5", "f16", "operands=constants max-rows=15"), ("neoverse-n2", "bf16", "operands=all"),
        ("neoverse-n1", "bf16", "operands=constants max-rows=3"),
        ("icelake-server memory=small", "bf16", "operands=constants"),
        ("icelake-server invariant=true", "bf16", "operands=constants"),
    ],
)  # fmt: skip
def test_only_weights_are_narrow_where_no_instruction_multiplies_faster(cpu: str, precision: str, options: str) -> None:
    target = find_target("llvm")
    passes = precision_passes(precision, None, target, CompileOptions("llvm", target_options=f"cpu={cpu}"))
    assert f"to-mixed-precision{{dtype={precision} {options}}}" in passes


@pytest.mark.parametrize("cpu", ["emeraldrapids", "znver5"])
def test_rows_stay_wide_where_only_weights_are_narrow(cpu: str) -> None:
    compiled = explain_model(_product("n"), f"llvm{{cpu={cpu}}}", follow=True, precision="bf16")
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


def _bf16_product(rows: int = 256) -> tuple[Any, np.ndarray]:
    """Return a product with weights that are stored in bf16, and a norm; and the weights."""
    values = np.random.default_rng(0).standard_normal((rows, 192)).astype(np.float32) / 16
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    weights = helper.make_tensor("w", TensorProto.BFLOAT16, values.shape, bits.tobytes(), raw=True)
    nodes = [
        helper.make_node("Cast", ["w"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["x", "wide"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", rows])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 192])
    graph = helper.make_graph(nodes, "product", [x], [y], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    return model, (bits.astype(np.uint32) << 16).view(np.float32)


def _rounded(x: np.ndarray) -> np.ndarray:
    """Round to the nearest bf16."""
    bits = x.view(np.uint32)
    wide: np.ndarray = ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
    return wide


@pytest.mark.parametrize("options", [{}, {"activations": "bf16"}, {"precision": "bf16"}, {"activations": "exact"}])
def test_options_act_on_weights_in_bf16(options: dict[str, str]) -> None:
    """Rows are rounded with `activations`, and stay as they are without; results are not.

    Weights of this size stay narrow in memory where products multiply them as they are.
    """
    model, weights = _bf16_product()
    executable = mirlo.compile(model, cache=False, **options)
    x = np.random.default_rng(1).standard_normal((5, len(weights))).astype(np.float32)
    found = np.asarray(executable(x)).astype(np.float64)
    exact, narrow = (rows.astype(np.float64) @ weights.astype(np.float64) for rows in (x, _rounded(x)))
    if options.get("activations") == "bf16":
        assert np.abs(found - narrow).max() < 1e-5 and np.abs(found - exact).max() > 1e-3
    elif "precision" in options:
        assert np.abs(found - exact).max() < 2.0**-6 * np.abs(exact).max()
    else:
        assert np.abs(found - exact).max() < 1e-5
    notes = " ".join(executable.artifact.metadata.get("approximations", ()))
    assert ("bf16 rows of products" in notes) == (options.get("activations") == "bf16")
    if options:
        multiplied = "bf16 rows of products" in notes or "bf16 operands of products" in notes
        assert (executable.memory.weights_bytes == weights.nbytes // 2) == multiplied


@pytest.mark.parametrize(("cpu", "chosen"), [("znver5", "bf16"), ("znver3", "exact"), ("emeraldrapids", "bf16")])
def test_fastest_activations_of_weights_in_bf16(cpu: str, chosen: str) -> None:
    model, _ = _bf16_product()
    artifact = mirlo.compile(model, activations="auto", target=f"llvm{{cpu={cpu}}}", load=False, cache=False).artifact
    assert artifact.metadata["activations"] == [chosen]
    assert ("approximations" in artifact.metadata) == (chosen == "bf16")


def test_activations_leave_other_products_as_they_are() -> None:
    options: dict[str, Any] = {"cache": False, "load": False}
    artifact = mirlo.compile(_network(), activations="bf16", **options).artifact
    assert "approximations" not in artifact.metadata
