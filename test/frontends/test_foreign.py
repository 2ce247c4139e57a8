"""Front ends for other frameworks: found by the package of an object's class, added by entry points."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import mirlo
from mirlo.frontends import foreign
from mirlo.frontends.foreign import ConvertedModel, ExampleInputs, FrontendError


class Model:
    """A model of a framework that no package here provides."""


class _Frontend:
    def convert(self, model: Any, example: ExampleInputs) -> ConvertedModel:
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("x", "y")]
        graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", values[:1], values[1:])
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        return ConvertedModel(proto, lambda executable: SimpleNamespace(run=executable, example=example))


def test_a_package_adds_a_front_end(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = SimpleNamespace(name=Model.__module__.partition(".")[0], load=_Frontend)
    monkeypatch.setattr(foreign, "offered", lambda group: [entry] if group == foreign.GROUP else [])
    compiled = mirlo.compile(Model(), args=(1,), cache=False)
    assert compiled.example.args == (1,)
    np.testing.assert_array_equal(compiled.run(np.ones(3, np.float32)), -np.ones(3, np.float32))


def test_a_front_end_that_does_not_load_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> Any:
        raise ImportError("no module named 'other'")

    entry = SimpleNamespace(name=Model.__module__.partition(".")[0], load=load)
    monkeypatch.setattr(foreign, "offered", lambda group: [entry])
    with pytest.raises(FrontendError, match="does not load: no module named 'other'"):
        mirlo.compile(Model())


def test_examples_are_for_models_of_frameworks() -> None:
    with pytest.raises(ValueError, match="args, kwargs and dynamic_shapes are for models of other frameworks"):
        mirlo.compile(b"", args=(1,))
    with pytest.raises(ValueError, match="a model is a path, bytes, .* PyTorch, JAX or scikit-learn, got Model"):
        mirlo.compile(Model())


def test_a_missing_package_names_the_extra() -> None:
    with pytest.raises(FrontendError, match=r"pip install 'mirlo\[torch\]'"):
        foreign.require_package("no_such_package", "torch")
