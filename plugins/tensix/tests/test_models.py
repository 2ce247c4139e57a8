"""Models: their results, how much of them the core computes, and what stays in L1."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from mirlo_tensix import loader, simulator
from mirlo_tensix.instructions import TILE
from mirlo_tensix.kernels import REDUCTIONS, VectorWork
from mirlo_tensix.layouts import CLASSES, Load, Run, Store
from mirlo_tensix.simulator import Cycles
from mirlo_tensix.unit import DTYPES, from_tiles
from mirlo_tensix.work import Work
from model import bits_of
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.benchmarks.models import tiny
from mirlo.extend.runtime import records_of_json
from mirlo.testing import placement_of

needs_simulator = pytest.mark.skipif(simulator.missing() is not None, reason=f"simulator: {simulator.missing()}")
Inputs = dict[str, np.ndarray]


def model_of(name: str, nodes: list[Any], shapes: tuple[Any, Any], weights: Inputs, opset: int = 18) -> onnx.ModelProto:
    ends = [
        [helper.make_tensor_value_info(end, TensorProto.FLOAT, shape)] for end, shape in zip("xy", shapes, strict=True)
    ]
    constants = [numpy_helper.from_array(value.astype(np.float32), end) for end, value in weights.items()]
    graph = helper.make_graph(nodes, name, *ends, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def resnet_8() -> tuple[Any, Inputs]:
    return tiny.resnet_8(), {"x": tiny.samples("resnet_8", 1)}


def mobilenet_v2() -> tuple[Any, Inputs]:
    return tiny.mobilenet_v2(), {"x": tiny.samples("mobilenet_v2", 1)}


def bert(layers: int, rows: int, width: int = 128, heads: int = 2) -> tuple[Any, Inputs]:
    """Return encoder layers with drawn weights, by default those of BERT-tiny, some keys masked, and inputs."""
    rng, nodes, weights = np.random.default_rng(0), list[Any](), dict[str, np.ndarray]()

    def add(operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"{operator.lower()}_{len(nodes)}"
        nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def constant(value: Any) -> str:
        name = f"w{len(weights)}"
        weights[name] = np.asarray(value)
        return name

    def dense(x: str, inputs: int, outputs: int) -> str:
        weight = constant(rng.standard_normal((inputs, outputs)) / inputs**0.5)
        return add("Add", add("MatMul", x, weight), constant(0.1 * rng.standard_normal(outputs)))

    def norm(x: str) -> str:
        return add("LayerNormalization", x, constant(np.ones(width)), constant(np.zeros(width)))

    def shaped(x: str, *shape: int) -> str:
        nodes.append(helper.make_node("Constant", [], [f"s{len(nodes)}"], value_ints=shape))
        return add("Reshape", x, nodes[-1].output[0])

    x, mask = "x", np.zeros((1, 1, 1, rows))
    mask[..., -5:] = -1e4
    for _ in range(layers):
        orders = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        q, k, v = (
            add("Transpose", shaped(dense(x, width, width), 1, rows, heads, width // heads), perm=order)
            for order in orders
        )
        scores = add("Mul", add("MatMul", q, k), constant(np.float32((width / heads) ** -0.5)))
        mixed = add("MatMul", add("Softmax", add("Add", scores, constant(mask)), axis=-1), v)
        mixed = shaped(add("Transpose", mixed, perm=[0, 2, 1, 3]), 1, rows, width)
        x = norm(add("Add", x, dense(mixed, width, width)))
        x = norm(add("Add", x, dense(add("Gelu", dense(x, width, 4 * width)), 4 * width, width)))
    nodes.append(helper.make_node("Identity", [x], ["y"], name="end"))
    model = model_of("bert", nodes, ((1, rows, width),) * 2, weights, opset=20)
    return model, {"x": rng.standard_normal((1, rows, width)).astype(np.float32)}


def gpt(rows: int, width: int = 128, heads: int = 2) -> tuple[Any, Inputs]:
    """Return a block of GPT-2 with drawn weights, whose queries, keys and values are one product, and inputs."""
    rng, nodes, weights = np.random.default_rng(0), list[Any](), dict[str, np.ndarray]()

    def add(operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> list[str]:
        names = [f"{operator.lower()}_{len(nodes)}_{i}" for i in range(outputs)]
        nodes.append(helper.make_node(operator, inputs, names, name=names[0], **attributes))
        return names

    def constant(value: Any) -> str:
        name = f"w{len(weights)}"
        weights[name] = np.asarray(value)
        return name

    def dense(x: str, inputs: int, outputs: int) -> str:
        (product,) = add("MatMul", x, constant(rng.standard_normal((inputs, outputs)) / inputs**0.5))
        return add("Add", product, constant(0.1 * rng.standard_normal(outputs)))[0]

    def norm(x: str) -> str:
        return add("LayerNormalization", x, constant(np.ones(width)), constant(np.zeros(width)))[0]

    def shaped(x: str, *shape: int) -> str:
        nodes.append(helper.make_node("Constant", [], [f"s{len(nodes)}"], value_ints=shape))
        return add("Reshape", x, nodes[-1].output[0])[0]

    parts = add("Split", dense(norm("x"), width, 3 * width), outputs=3, axis=-1, num_outputs=3)
    q, k, v = (
        add("Transpose", shaped(part, 1, rows, heads, width // heads), perm=order)[0]
        for part, order in zip(parts, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
    )
    (scores,) = add("Mul", *add("MatMul", q, k), constant(np.float32((width / heads) ** -0.5)))
    hidden = constant(np.triu(np.full((1, 1, rows, rows), -3e38), 1))
    (mixed,) = add("MatMul", *add("Softmax", *add("Add", scores, hidden), axis=-1), v)
    mixed = shaped(*add("Transpose", mixed, perm=[0, 2, 1, 3]), 1, rows, width)
    (h,) = add("Add", "x", dense(mixed, width, width))
    (wide,) = add("Gelu", dense(norm(h), width, 4 * width), approximate="tanh")
    (h,) = add("Add", h, dense(wide, 4 * width, width))
    nodes.append(helper.make_node("Identity", [norm(h)], ["y"], name="end"))
    model = model_of("gpt", nodes, ((1, rows, width),) * 2, weights, opset=20)
    return model, {"x": rng.standard_normal((1, rows, width)).astype(np.float32)}


def error_of(model: Any, inputs: Inputs, target: str) -> float:
    """Return the greatest difference to the CPU, relative to the greatest result."""
    found = mirlo.compile(model, f"{target},llvm", cache=False)(**inputs)
    expected = mirlo.compile(model, cache=False)(**inputs)
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def share_of(model: Any, target: str) -> float:
    """Return the share of operations that the core computes."""
    placement = placement_of(model, f"{target},llvm").placement
    taken = {number for region in placement.regions if region.kept for number in region.nodes}
    return sum(placement.nodes[i].flops for i in taken) / sum(node.flops for node in placement.nodes)


@pytest.mark.usefixtures("unit_in_numpy")
@pytest.mark.parametrize(
    ("made", "target"),
    [
        (resnet_8, "tensix{dtype=fp16 phases=3}"),
        (lambda: bert(1, 24), "tensix{dtype=tf32 phases=3}"),
        (lambda: gpt(24), "tensix{dtype=tf32 phases=3}"),
    ],
    ids=("resnet_8", "bert", "gpt"),
)
def test_bits_of_models_are_near_those_of_the_cpu(made: Any, target: str) -> None:
    model, inputs = made()
    share, error = share_of(model, target), error_of(model, inputs, target)
    print(f"{share:.1%} of the operations, error {error:.1e}")
    assert share >= 0.95 and error <= 1e-2


@pytest.mark.usefixtures("unit_in_numpy")
def test_bits_of_an_encoder_stay_in_l1_between_operators() -> None:
    model, _ = bert(1, 32)
    unit = mirlo.compile(model, "tensix,llvm", cache=False)
    (external,) = unit.artifact.externals
    (region,) = json.loads(external.data)["regions"].values()
    items = records_of_json(region["items"], CLASSES)
    assert sum(isinstance(item, Run) for item in items) == 21
    loaded = [source for item in items if isinstance(item, Load) for source in item.sources]
    assert [source.name for source in loaded if not source.is_constant] == region["inputs"]
    assert [item.name for item in items if isinstance(item, Store)] == region["outputs"]


@needs_simulator
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("made", "target"),
    [
        (resnet_8, "tensix{phases=3}"),
        (lambda: bert(2, 32), "tensix{dtype=tf32 phases=3}"),
        (lambda: gpt(32), "tensix{dtype=tf32 phases=3}"),
        (lambda: bert(1, 128, 768, 12), "tensix{dtype=tf32 phases=3}"),
        (mobilenet_v2, "tensix{dtype=tf32 phases=3}"),
    ],
    ids=("resnet_8", "bert_tiny", "gpt_block", "bert_base_layer", "mobilenet_v2"),
)
def test_models_run_on_the_core(made: Any, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare every bit of each piece of work, and the results with those of the CPU."""
    cycles = list[int]()

    class Comparing(simulator.Machine):
        def run(self, work: Work, places: Sequence[int]) -> Cycles:
            *sizes, result = work.tensor_bytes
            operands = [self._bits(work, *each) for each in zip(places, sizes, strict=False)]
            found = super().run(work, places)
            expected = np.ravel(bits_of(work, *operands))
            pair = self._bits(work, places[-1], result)[: expected.size], expected
            if isinstance(work, VectorWork) and work.name in REDUCTIONS:  # of which the first column counts
                pair = tuple(from_tiles(bits, TILE * work.m, 1) for bits in pair)
            np.testing.assert_array_equal(*pair, str(work))
            cycles.append(found.bound)
            return found

        def _bits(self, work: Work, at: int, size: int) -> np.ndarray:
            return np.frombuffer(self.read(at, size), DTYPES[work.format])

    monkeypatch.setattr(loader, "Machine", Comparing)
    model, inputs = made()
    began, share = time.monotonic(), share_of(model, target)
    error = error_of(model, inputs, target)
    print(f"{sum(cycles):,} cycles in {time.monotonic() - began:.0f} s, {share:.1%} of the operations, {error:.1e}")
    assert share >= 0.95 and error <= (2e-2 if made is mobilenet_v2 else 1e-2)  # 53 convolutions deep
