"""Graphs in which an optimization finds nothing, or nothing but an edge: no pass ends in an internal error.

Each graph is taken through the pipelines of the targets, and each registered pass runs on it before its kernels are
scheduled, also where it has no work. A pass may refuse what is not its stage; its message is then one for the user.
"""

from __future__ import annotations

from functools import cache
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes import registry
from mirlo.passes.instrumentation import PassFailed
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session

WEIGHT = '"relax.constant"() {value = dense<0.5> : tensor<4x4xf32>} : () -> tensor<4x4xf32>'
GRAPHS = {
    "no function": "",
    "no operator": "func.func @main(%x: tensor<2x4xf32>) -> tensor<2x4xf32> { return %x : tensor<2x4xf32> }",
    "no result": "func.func @main(%x: tensor<2x4xf32>) { return }",
    "nothing": "func.func @main() { return }",
    "only a constant": f"func.func @main() -> tensor<4x4xf32> {{ %w = {WEIGHT} return %w : tensor<4x4xf32> }}",
    "unused constant": f"func.func @main(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {{ %w = {WEIGHT} "
    "return %x : tensor<2x4xf32> }",
    "only views": 'func.func @main(%x: tensor<2x4xf32>) -> (tensor<8xf32>, tensor<4x2xf32>) { '
    '%0 = "relax.reshape"(%x) {shape = [8]} : (tensor<2x4xf32>) -> tensor<8xf32> '
    '%1 = "relax.reshape"(%0) {shape = [4, 2]} : (tensor<8xf32>) -> tensor<4x2xf32> '
    "return %0, %1 : tensor<8xf32>, tensor<4x2xf32> }",
    "one operator": 'func.func @main(%x: tensor<2x4xf32>) -> tensor<2x4xf32> { '
    '%0 = "relax.relu"(%x) : (tensor<2x4xf32>) -> tensor<2x4xf32> return %0 : tensor<2x4xf32> }',
    "one result twice": 'func.func @main(%x: tensor<2x4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>) { '
    '%0 = "relax.relu"(%x) : (tensor<2x4xf32>) -> tensor<2x4xf32> '
    "return %0, %0 : tensor<2x4xf32>, tensor<2x4xf32> }",
    "unused operators": f"func.func @main(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {{ %w = {WEIGHT} "
    '%0 = "relax.matmul"(%x, %w) : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32> '
    '%1 = "relax.softmax"(%0) {axis = 1 : i64} : (tensor<2x4xf32>) -> tensor<2x4xf32> return %x : tensor<2x4xf32> }',
    "size 0": f"func.func @main(%x: tensor<0x4xf32>) -> tensor<0x4xf32> {{ %w = {WEIGHT} "
    '%0 = "relax.matmul"(%x, %w) : (tensor<0x4xf32>, tensor<4x4xf32>) -> tensor<0x4xf32> '
    '%1 = "relax.relu"(%0) : (tensor<0x4xf32>) -> tensor<0x4xf32> return %1 : tensor<0x4xf32> }',
    "sum of size 0": 'func.func @main(%x: tensor<2x0xf32>) -> tensor<2xf32> { '
    '%0 = "relax.reduce_sum"(%x) {axes = array<i64: 1>, keepdims = false} : (tensor<2x0xf32>) -> tensor<2xf32> '
    "return %0 : tensor<2xf32> }",
    "size 1": 'func.func @main(%x: tensor<1x1xf32>) -> tensor<1x1xf32> { '
    '%0 = "relax.softmax"(%x) {axis = 1 : i64} : (tensor<1x1xf32>) -> tensor<1x1xf32> return %0 : tensor<1x1xf32> }',
    "no dims": 'func.func @main(%x: tensor<f32>) -> tensor<f32> { '
    '%0 = "relax.exp"(%x) : (tensor<f32>) -> tensor<f32> return %0 : tensor<f32> }',
    "one user": f"func.func @main(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {{ %w = {WEIGHT} "
    '%0 = "relax.matmul"(%x, %w) : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32> '
    '%1 = "relax.relu"(%0) : (tensor<2x4xf32>) -> tensor<2x4xf32> return %1 : tensor<2x4xf32> }',
    "two users": f"func.func @main(%x: tensor<2x4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>) {{ %w = {WEIGHT} "
    '%0 = "relax.matmul"(%x, %w) : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32> '
    '%1 = "relax.relu"(%0) : (tensor<2x4xf32>) -> tensor<2x4xf32> '
    "return %0, %1 : tensor<2x4xf32>, tensor<2x4xf32> }",
    "a function that nothing calls": "func.func private @helper(%x: tensor<4xf32>) -> tensor<4xf32> { "
    '%0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32> return %0 : tensor<4xf32> } '
    "func.func @main(%x: tensor<2x4xf32>) -> tensor<2x4xf32> { return %x : tensor<2x4xf32> }",
}  # fmt: skip
X = np.arange(8, dtype=np.float32).reshape(2, 4) - 3
HALF = np.full((4, 4), 0.5, np.float32)
PRODUCT = X @ HALF
EXPECTED: dict[str, tuple[list[np.ndarray], list[np.ndarray]]] = {
    "no operator": ([X], [X]),
    "no result": ([X], []),
    "nothing": ([], []),
    "only a constant": ([], [HALF]),
    "unused constant": ([X], [X]),
    "only views": ([X], [X.reshape(8), X.reshape(4, 2)]),
    "one operator": ([X], [np.maximum(X, 0)]),
    "one result twice": ([X], [np.maximum(X, 0)] * 2),
    "unused operators": ([X], [X]),
    "size 0": ([X[:0]], [X[:0]]),
    "sum of size 0": ([X[:, :0]], [np.zeros(2, np.float32)]),
    "size 1": ([X[:1, :1]], [np.ones((1, 1), np.float32)]),
    "no dims": ([np.zeros((), np.float32)], [np.ones((), np.float32)]),
    "one user": ([X], [np.maximum(PRODUCT, 0)]),
    "two users": ([X], [PRODUCT, np.maximum(PRODUCT, 0)]),
    "a function that nothing calls": ([X], [X]),
}
"""The inputs of each graph with an entry, and what it computes."""
TARGETS = ("llvm", "c", "spirv", "nvvm")
PASSES = sorted(name for name in registry.load_all() if not name.startswith("pipeline-test"))


@cache
def stages(graph: str) -> tuple[str, ...]:
    """Return the text of a graph, and after each pass of the pipeline of `llvm` before `schedule` that changes it."""
    with make_context(), ir.Location.unknown():
        module, session, texts = ir.Module.parse(GRAPHS[graph]), Session(), [GRAPHS[graph]]
        for step in takewhile(lambda step: step.name != "schedule", Pipeline.named("llvm")):
            Pipeline([step]).run(module, session)
            text = str(module)
            if text != texts[-1]:
                texts.append(text)
    return tuple(texts)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("target", TARGETS)
def test_pipelines(target: str, graph: str) -> None:
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(GRAPHS[graph])
        try:
            Pipeline.named(target).run(module, Session())
        except PassFailed as failure:
            assert not failure.internal, failure


@pytest.mark.sample(80)
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", PASSES)
def test_each_pass_where_it_has_no_work(name: str, graph: str) -> None:
    for text in stages(graph):
        with make_context(), ir.Location.unknown():
            module = ir.Module.parse(text)
            try:
                Pipeline(name).run(module, Session())
            except PassFailed as failure:
                assert not failure.internal, f"{failure}\n{text}"


@pytest.mark.parametrize("graph", EXPECTED)
@pytest.mark.parametrize("target", ["llvm", "c"])
def test_results(target: str, graph: str, tmp_path: Path) -> None:
    inputs, expected = EXPECTED[graph]
    path = tmp_path / "graph.mlir"
    path.write_text(GRAPHS[graph])
    executable = mirlo.compile(path, target=target, cache=False)
    found = executable(*inputs)
    arrays = list(found) if isinstance(found, (tuple, list)) else [found]
    assert len(arrays) == len(expected)
    for array, wanted in zip(arrays, expected, strict=True):
        np.testing.assert_allclose(array, wanted, rtol=1e-5)
