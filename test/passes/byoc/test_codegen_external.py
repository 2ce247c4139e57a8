"""Code generators from IR to numbers: state, options, saved files."""

from __future__ import annotations

import gc
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import python

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.driver.place.survey import survey
from mirlo.passes.byoc.artifacts import artifacts_of, attach_artifact
from mirlo.passes.byoc.read_external import external_modules, read_external
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.registry import load_plugin
from mirlo.passes.session import Session
from mirlo.runtime.external import ExternalArtifact
from mirlo.runtime.params import ParameterStore

HERE = Path(__file__).parent
IR = HERE / "codegen-external.mlir"


@pytest.fixture(scope="module")
def generators() -> Any:
    load_plugin(str(HERE / "Inputs" / "generators.py"))
    return importlib.import_module("mirlo_plugin_generators")


@pytest.fixture
def model(tmp_path: Path, generators: Any) -> Path:
    path = tmp_path / "model.mlir"
    path.write_text(IR.read_text().split("// -----")[0])
    return path


@pytest.mark.sample(0)
def test_numbers_state_and_file(model: Path, tmp_path: Path, generators: Any) -> None:
    pipeline = Pipeline.named("llvm").prepend('codegen-external{target=toy options="scale=2"}')
    executable = mirlo.compile(model, pipeline=pipeline)
    x = np.linspace(-3, 3, 6, dtype=np.float32).reshape(2, 3)
    expected = 2 * np.maximum(x + np.float32([1, 2, 3]), 0)
    np.testing.assert_array_equal(executable(x), expected)
    executable.save(tmp_path / "model.mirlo")
    again = mirlo.load(tmp_path / "model.mirlo")
    np.testing.assert_array_equal(again(x), expected)
    assert again.profile(x).rows[0].symbol == "toy.toy_0"
    generators.RELEASED.clear()
    del executable, again
    gc.collect()
    assert generators.RELEASED == [("toy_0",), ("toy_0",)]


def test_a_function_that_raises_is_named(model: Path, generators: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = mirlo.compile(model, pipeline=Pipeline.named("llvm").prepend("codegen-external"))
    monkeypatch.delitem(generators.NUMPY, "relax.relu")
    with pytest.raises(mirlo.MirloError, match=r"packed function 'toy\.toy_0' raised KeyError: 'relax.relu'"):
        executable(np.zeros((2, 3), np.float32))


def test_a_declared_format_is_checked(model: Path, generators: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generators.Toy, "format", "toys")
    with pytest.raises(
        mirlo.MirloError, match="generator 'toy': expected an artifact of its format 'toys', found 'toy'"
    ):
        mirlo.compile(model, pipeline=Pipeline.named("llvm").prepend("codegen-external"), cache=False)


SIZES = (32, 256, 8)
CHAIN = """
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x64xf32>, %v: tensor<64x2xf32>) -> tensor<4x2xf32> {
  %0 = "relax.relu"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = "relax.tanh"(%0) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %2 = "relax.matmul"(%1, %w) : (tensor<4x8xf32>, tensor<8x64xf32>) -> tensor<4x64xf32>
  %3 = "relax.tanh"(%2) : (tensor<4x64xf32>) -> tensor<4x64xf32>
  %4 = "relax.matmul"(%3, %v) : (tensor<4x64xf32>, tensor<64x2xf32>) -> tensor<4x2xf32>
  return %4 : tensor<4x2xf32>
}
"""


@pytest.mark.sample(0)
@pytest.mark.parametrize("target", ["picky", "picky-apart"])
def test_declined_regions_go_back_to_the_graph(target: str, tmp_path: Path, generators: Any) -> None:
    """The second of three has too many elements: its reason is in the report, and the host computes it."""
    path = tmp_path / "chain.mlir"
    path.write_text(CHAIN)
    random = np.random.default_rng(0)
    x, w, v = (random.standard_normal(shape, np.float32) for shape in ((4, 8), (8, 64), (64, 2)))
    expected = np.tanh(np.tanh(np.maximum(x, 0)) @ w) @ v
    for most, kept in ((64, 2), (8, 1), (1, 0), (999, 3)):
        targets = f"{target}{{most={most}}},llvm"
        executable = mirlo.compile(path, target=targets, cache=False)
        np.testing.assert_allclose(executable(x, w, v), expected, rtol=1e-4)
        regions = survey(path, targets).placement.regions
        found = {region.reason for region in regions if not region.kept}
        assert {region.microseconds for region in regions if region.kept} == ({12.5} if kept else set())
        assert found == {f"too many elements (elements={n})" for n in SIZES if n > most}
        assert sum(len(external.functions) for external in executable.artifact.externals) == kept


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("declines-nothing", "declined no region: return an artifact"),
        ("declines-others", "declined a region 'f', which the module does not have"),
    ],
)
def test_declines_are_checked(target: str, message: str, tmp_path: Path, generators: Any) -> None:
    path = tmp_path / "model.mlir"
    path.write_text(
        IR.read_text().split("// -----")[0].replace('relax.external = "toy"', f'relax.external = "{target}"')
    )
    with pytest.raises(mirlo.MirloError, match=f"target '{target}' .*{message}"):
        mirlo.compile(path, pipeline=Pipeline.named("llvm").prepend("codegen-external"), cache=False)


def test_bad_options_name_the_target(model: Path, generators: Any) -> None:
    with pytest.raises(mirlo.MirloError, match="target 'toy' has no option 'scales'; did you mean 'scale'"):
        mirlo.compile(model, pipeline=Pipeline("codegen-external{target=toy options={scales=2}}"))


def test_the_view_is_flat_and_knows_composites(model: Path) -> None:
    with make_context(), ir.Location.unknown():
        module = ir.Module.parseFile(str(model))
        view = read_external(external_modules(module)[0], Session())
        function = view.function("toy_0")
        add, relu = function.nodes
        (composite,) = function.composites
        assert composite.name == "toy.add_relu" and composite.pattern == "add_relu"
        assert add.composite is composite and add["lhs"] is function.inputs[0]
        assert relu["x"] is add.output and relu.output is function.outputs[0] is composite.outputs[0]
        assert function.inputs[0].users == [add] and str(function.inputs[0]) == "x0: f32[2, 3]"
        (constant,) = function.constants
        assert add["rhs"] is constant and list(view.constants) == [constant.constant]
        np.testing.assert_array_equal(constant.array, np.float32([1, 2, 3]))
        with pytest.raises(KeyError, match="relax.relu has no 'axis'; it has: x"):
            relu["axis"]


WITH_WEIGHTS = """
func.func @main(%x: tensor<2x32xf32>) -> tensor<2x32xf32> {
  %0 = "relax.call_external"(%x) {callee = @apart::@apart_0, operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<2x32xf32>) -> tensor<2x32xf32>
  return %0 : tensor<2x32xf32>
}
builtin.module @apart attributes {relax.external = "apart"} {
  func.func @apart_0(%x: tensor<2x32xf32>) -> tensor<2x32xf32> {
    %w = "relax.constant"() {param = "w"} : () -> tensor<32x32xf32>
    %0 = "relax.matmul"(%x, %w) : (tensor<2x32xf32>, tensor<32x32xf32>) -> tensor<2x32xf32>
    return %0 : tensor<2x32xf32>
  }
}
"""  # noqa: E501


@pytest.mark.sample(0)
def test_a_process_of_its_own_is_given_the_weights(generators: Any, tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((32, 32), np.float32)
    x = np.ones((2, 32), np.float32)

    def compiled(array: np.ndarray) -> Any:
        params = ParameterStore()
        params.add("w", array)
        path = tmp_path / "model.mlir"
        path.write_text(WITH_WEIGHTS)
        pipeline = Pipeline.named("llvm").prepend(f"codegen-external{{bundles={tmp_path / 'bundles'}}}")
        return mirlo.compile(path, pipeline=pipeline, params=params)

    np.testing.assert_allclose(compiled(weight)(x), x @ weight, rtol=1e-5, atol=1e-5)
    assert not list((tmp_path / "bundles").iterdir())  # what served to hand it over is gone
    with pytest.raises(mirlo.MirloError, match=r"target 'apart' .*crashed \(signal SIGSEGV\).*'mirlo-opt --run-repr"):
        compiled(weight + 5000)
    # What is left of a crash repeats it, with the weights that it is about.
    bundle = tmp_path / "bundles" / "apart.mlir"
    done = python("-m", "mirlo.tools.opt", "--run-reproducer", "--trust-file", bundle, cwd=tmp_path)
    assert done.returncode == 1 and "crashed (signal SIGSEGV)" in done.stderr


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0", b"\xff" * 70, bytes(range(256))])
def test_artifacts_keep_their_bytes_in_ir(data: bytes) -> None:
    artifact = ExternalArtifact("f", ("a", "b"), data, ("w",), {"k": [1, "é"]}, "t")
    with make_context(), ir.Location.unknown():
        module = ir.Module.create()
        assert attach_artifact(module, artifact) == "t" and attach_artifact(module, artifact) == "t.1"
        again = ir.Module.parse(str(module))
        assert artifacts_of(again) == (artifact, artifact)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1", "must be a dictionary of artifacts with 'format', 'functions', 'params', got 1"),
        ("{t = {functions = [], params = []}}", "must be a dictionary of artifacts"),
        ('{t = {format = "x", functions = [1], params = []}}', "must be a dictionary of artifacts"),
        (
            '{t = {format = "x", functions = [], params = [], data = dense<1.0> : tensor<2xf32>}}',
            "must be a dictionary",
        ),
        ('{t = {format = "x", functions = [], params = [], metadata = "]"}}', "must be a dictionary of artifacts"),
    ],
)
def test_artifacts_that_are_none_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "m.mlir"
    path.write_text(f"module attributes {{relax.external_artifacts = {text}}} {{}}")
    with pytest.raises(mirlo.MirloError, match=message):
        mirlo.compile(path, trust_file=True)
    with pytest.raises(mirlo.MirloError, match="code that other compilers made"):
        mirlo.compile(path)
