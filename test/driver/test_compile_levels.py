"""Several levels of optimization of a model whose passes run once."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from onnx_models import F32, make_model, node

import mirlo
from mirlo.driver.compile import compile_levels
from mirlo.driver.options import CompileArguments

X = np.linspace(-2, 2, 64, dtype=np.float32).reshape(4, 16)
WEIGHT = np.linspace(-1, 1, 256, dtype=np.float32).reshape(16, 16)


def levels_of(model: Any, levels: tuple[int, ...], target: str = "llvm", **more: Any) -> list[Any]:
    return list(compile_levels(CompileArguments(model, target, threads=1, jobs=1, cache=False, **more), levels))


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_code_is_that_of_separate_compilations(target: str) -> None:
    nodes = [node("MatMul", "x w", "product"), node("Softmax", "product", "y")]
    model = make_model(nodes, {"x": (F32, X.shape)}, ["y"], {"w": WEIGHT})
    steps: list[str] = []
    compiled = levels_of(model, (3, 0, 1), target, progress=steps.append)
    assert steps.count("import") == steps.count("schedule") == 1 and steps.count("emit") == 3
    for level, each in zip((3, 0, 1), compiled, strict=True):
        alone = mirlo.compile(model, target, threads=1, jobs=1, cache=False, opt_level=level)
        assert each.artifact.code == alone.artifact.code
        np.testing.assert_array_equal(each(X), alone(X))
    assert compiled[0].artifact.code != compiled[1].artifact.code


@pytest.mark.parametrize(
    "target, module, function",
    [("llvm", "mirlo.targets.llvm.object_code", "lower_module"), ("c", "mirlo.targets.c.artifact", "print_model")],
)
def test_code_of_all_levels_is_made_from_one_text(
    target: str, module: str, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    loaded = importlib.import_module(module)
    original = getattr(loaded, function)
    monkeypatch.setattr(loaded, function, lambda *args, **more: (calls.append(target), original(*args, **more))[1])
    model = make_model([node("Softmax", "x", "y")], {"x": (F32, X.shape)}, ["y"])
    assert len(levels_of(model, (0, 1, 2, 3), target)) == 4 and calls == [target]
    levels_of(model, (2,), target)
    assert calls == [target, target]


def test_no_levels_and_no_kernels() -> None:
    model = make_model([node("Identity", "x", "y")], {"x": (F32, (2, 0))}, ["y"])
    assert levels_of(model, ()) == []
    assert [each(np.zeros((2, 0), np.float32)).shape for each in levels_of(model, (0, 2))] == [(2, 0)] * 2


def test_programs() -> None:
    nodes = [node("SequenceConstruct", "x x", "s"), node("ConcatFromSequence", "s", "y", axis=0)]
    for each in levels_of(make_model(nodes, {"x": (F32, X.shape)}, ["y"]), (0, 3)):
        np.testing.assert_array_equal(each(X), np.concatenate([X, X]))
