"""Models for several targets are cached whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from c_compiler import needs_c_compiler
from onnx import TensorProto, helper, numpy_helper, save

from mirlo.driver import build as building
from mirlo.driver.build import _key_of
from mirlo.driver.compile import compile as compile_model
from mirlo.driver.model_cache import CacheKey, Uncacheable, open_cache
from mirlo.driver.request import CompileRequest

LIST = "onnx{provider=cpu},llvm"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("mirlo.driver.model_cache.extended", lambda target: None)  # other tests import mirlo.extend
    monkeypatch.setattr(building, "MIN_COMPILE_SECONDS", 0.0)
    weight = numpy_helper.from_array(np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [4, 8]), ("y", [4, 6])))
    graph = helper.make_graph(nodes, "g", [x], [y], [weight])
    path = tmp_path / "model.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def test_the_second_compilation_is_a_lookup(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = str(tmp_path / "cache")
    x = np.random.default_rng(1).standard_normal((4, 8), np.float32)
    expected = compile_model(model, LIST, cache=cache)(x)

    def never(*arguments: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr("mirlo.driver.compiler.Compiler.run", never)
    found = compile_model(model, ["onnx{provider=cpu}", "llvm"], cache=cache)
    np.testing.assert_array_equal(found(x), expected)
    with pytest.raises(AssertionError, match="compiled again"):
        compile_model(model, "onnx,llvm", cache=cache)


@needs_c_compiler
def test_keys(model: Path, tmp_path: Path) -> None:
    def key(target: str, **options: object) -> CacheKey | Uncacheable:
        return _key_of(CompileRequest(model, target, cache=open_cache(str(tmp_path / "cache")), **options))

    lists = [LIST, "onnx,llvm", "c,llvm", "c,onnx,llvm", "onnx,c,llvm", "c,llvm{cpu=x86-64-v3}"]
    keys = [key(target) for target in lists]
    assert all(isinstance(found, CacheKey) for found in keys)
    assert len({found.key for found in keys}) == len(lists)
    nodes = key(LIST, placement={"onnx": [0]})
    assert isinstance(nodes, CacheKey) and nodes.key not in {found.key for found in keys}
    assert isinstance(key(LIST, placement="measured"), Uncacheable)
