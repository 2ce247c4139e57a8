"""Builds for fixed sizes next to the general one: selection, counts, and the stored file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import mirlo
from mirlo.driver.specialize import sharing
from mirlo.extend.codegen import Artifact, CodeGenerator, ExternalModule, is_const, is_op, wildcard
from mirlo.extend.runtime import ExternalArtifact, ExternalFunctions, LoadContext, register_external_loader
from mirlo.extend.target import Target, register_target
from mirlo.runtime.executable import Executable
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.specialized import Specialized
from mirlo.testing import temporary_registrations

F32 = onnx.TensorProto.FLOAT


def model() -> onnx.ModelProto:
    """Rows times a weight, then a softmax of them."""
    weight = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Softmax", ["p"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "rows",
        [helper.make_tensor_value_info("x", F32, ["batch", "sequence", 16])],
        [helper.make_tensor_value_info("y", F32, None)],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def scaled(value: float) -> onnx.ModelProto:
    """Rows times a weight of equal elements."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "scaled",
        [helper.make_tensor_value_info("x", F32, ["batch", "sequence", 16])],
        [helper.make_tensor_value_info("y", F32, None)],
        [onnx.numpy_helper.from_array(np.full((16, 16), value, np.float32), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


SIZES = [{"batch": 2}, {"batch": 2, "sequence": 8}]


@pytest.fixture(scope="module")
def compiled() -> Any:
    return mirlo.compile(model(), specialize=SIZES)


def rows(batch: int, sequence: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((batch, sequence, 16)).astype(np.float32)


def assert_right(compiled: Any, general: Any, batch: int, sequence: int) -> None:
    x = rows(batch, sequence)
    expected = general(x)
    for found in (compiled(x), compiled(x=x), compiled.run({"x": x})["y"], compiled(x, out=np.empty_like(expected))):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.sample(0)
def test_each_call_runs_the_build_that_fixes_most(compiled: Any) -> None:
    assert [str(build.inputs[0]) for build in compiled.builds] == ["x: f32[2, 8, 16]", "x: f32[2, sequence, 16]"]
    assert str(compiled.inputs[0]) == "x: f32[batch, sequence, 16]"
    general = mirlo.compile(model())
    before = {tuple(each.dims.items()): each.count for each in compiled.shape_counts}
    for batch, sequence, runs in ((2, 8, 0), (2, 5, 1), (3, 8, None)):
        assert_right(compiled, general, batch, sequence)
        build = compiled._find(((batch, sequence, 16),))
        assert build is (None if runs is None else compiled.builds[runs])
    after = {tuple(each.dims.items()): (each.count, each.specialized) for each in compiled.shape_counts}
    dims = (("batch", 2), ("sequence", 8))
    assert after[dims] == (before.get(dims, 0) + 4, True)
    assert after[("batch", 3), ("sequence", 8)][1] is False


def test_a_file_holds_all_builds_and_each_weight_once(compiled: Any, tmp_path: Path) -> None:
    compiled.save(tmp_path / "rows.mirlo")
    loaded = mirlo.load(tmp_path / "rows.mirlo")
    general = mirlo.compile(model())
    assert [build.inputs for build in loaded.builds] == [build.inputs for build in compiled.builds]
    for batch, sequence in ((2, 8), (2, 3), (1, 8)):
        assert_right(loaded, general, batch, sequence)
    assert loaded.memory.weights_bytes == compiled.memory.weights_bytes
    alone = [general, *(mirlo.compile(model(), shapes={"x": dims}) for dims in ([2, "s", 16], [2, 8, 16]))]
    assert compiled.memory.weights_bytes < sum(each.memory.weights_bytes for each in alone)


def test_what_was_called_most_can_be_specialized_for() -> None:
    counting = mirlo.compile(model(), specialize=[])
    for batch in (1, 4, 4, 4, 1, 7):
        counting(rows(batch, 2))
    counts = [(each.dims["batch"], each.count, each.specialized) for each in counting.shape_counts]
    assert counts == [(4, 3, False), (1, 2, False), (7, 1, False)]
    assert counting.hot_shapes(2) == [{"batch": 4, "sequence": 2}, {"batch": 1, "sequence": 2}]
    again = mirlo.compile(model(), specialize=counting.hot_shapes(1))
    assert str(again.builds[0].inputs[0]) == "x: f32[4, 2, 16]"


def test_arrays_that_do_not_fit_are_told_by_the_general_build(compiled: Any) -> None:
    compiled(np.zeros((2, 8, 16), np.float32))
    known = len(compiled.shape_counts)
    for wrong, text in ((np.zeros((2, 8, 15), np.float32), "x"), (np.zeros((2, 8, 16)), "f64"), (np.zeros(3), "x")):
        with pytest.raises(mirlo.MirloError, match=text):
            compiled(wrong)
    assert len(compiled.shape_counts) == known


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ([{"bach": 1}], "'bach' is not a symbolic dim of the model.*did you mean 'batch'"),
        ([{"batch": "1"}], "must be a number"),
        ({"batch": 1}, "expected a list"),
    ],
)
def test_sizes_that_cannot_be(sizes: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        mirlo.compile(model(), specialize=sizes)


class Products(CodeGenerator):
    """Takes products by constants, which its loader is given."""

    name = "products"
    guarded = False

    def patterns(self) -> list[tuple[str, Any]]:
        return [("product", is_op("relax.matmul")(wildcard(), is_const()))]

    def codegen(self, module: ExternalModule) -> Artifact:
        weights = {f.name: f.nodes[0].inputs[1].constant for f in module.functions}
        return Artifact("products", tuple(weights), params=tuple(weights.values()), metadata={"weights": weights})


def load_products(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
    def product(name: str) -> Any:
        def run(x: np.ndarray, y: np.ndarray) -> None:
            y[...] = x @ context.params[artifact.metadata["weights"][name]]

        return run

    return ExternalFunctions({name: product(name) for name in artifact.functions})


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    with temporary_registrations(__name__):
        register_target(Target("products", "products by constants", codegen=Products))
        yield


register_external_loader("products", load_products)


@pytest.mark.parametrize("targets", [["products", "llvm"], "onnxruntime,llvm", "products,c"])
def test_models_that_several_targets_share(targets: Any, tmp_path: Path) -> None:
    """Each build has parts of its own; constants are in memory and in the file once, whatever the parts call them."""
    compiled = mirlo.compile(model(), targets, specialize=SIZES)
    alone = mirlo.compile(model(), targets)
    assert all(each.artifact.externals for each in (compiled, *compiled.builds))
    compiled.save(tmp_path / "model.mirlo")
    loaded = mirlo.load(tmp_path / "model.mirlo")
    assert isinstance(loaded, Specialized)
    for each in (compiled, loaded):
        for batch, sequence in ((2, 8), (2, 5), (3, 8)):
            assert_right(each, alone, batch, sequence)
        assert {count.specialized for count in each.shape_counts} == {True, False}
        assert each.memory.weights_bytes == alone.memory.weights_bytes


def test_constants_of_equal_names_and_other_content_are_kept_apart() -> None:
    """Parts of different builds may call different constants alike."""
    store = ParameterStore()
    digests: dict[object, str] = {}
    values = (1.0, 2.0, 1.0)
    builds = [sharing(mirlo.compile(scaled(value), "products,llvm"), store, digests) for value in values]
    assert {build.externals[0].params for build in builds} == {("w",)}
    assert [build.externals[0].stored_params for build in builds] == [("w",), ("w_1",), ("w",)]
    for build, value in zip(builds, values, strict=True):
        found = Executable(build, store)(rows(1, 2))
        np.testing.assert_array_equal(found, rows(1, 2) @ np.full((16, 16), value, np.float32))
