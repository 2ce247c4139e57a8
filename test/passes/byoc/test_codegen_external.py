"""Code generators from IR to numbers: state, options, saved files."""

from __future__ import annotations

import gc
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.byoc.codegen_external import external_modules
from mirlo.passes.byoc.read_external import read_external
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.registry import load_plugin
from mirlo.passes.session import Session

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
