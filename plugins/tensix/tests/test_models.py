"""Models: their results, how much of them the core computes, and what stays in L1."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
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


class TransformerGraph:
    """The nodes and the drawn weights of a model of transformer layers."""

    def __init__(self, rows: int, width: int, heads: int) -> None:
        self.rows, self.width, self.heads = rows, width, heads
        self.rng, self.nodes, self.weights = np.random.default_rng(0), list[Any](), dict[str, np.ndarray]()

    def several(self, operator: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        names = [f"{operator.lower()}_{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, name=names[0], **attributes))
        return names

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        (name,) = self.several(operator, *inputs, outputs=1, **attributes)
        return name

    def constant(self, value: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(value)
        return name

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        weight = self.constant(self.rng.standard_normal((inputs, outputs)) / inputs**0.5)
        return self.add("Add", self.add("MatMul", x, weight), self.constant(0.1 * self.rng.standard_normal(outputs)))

    def norm(self, x: str) -> str:
        ones, zeros = self.constant(np.ones(self.width)), self.constant(np.zeros(self.width))
        return self.add("LayerNormalization", x, ones, zeros)

    def shaped(self, x: str, *shape: int) -> str:
        self.nodes.append(helper.make_node("Constant", [], [f"s{len(self.nodes)}"], value_ints=shape))
        return self.add("Reshape", x, self.nodes[-1].output[0])

    def mixed(self, parts: Iterable[str], mask: np.ndarray) -> str:
        """Return the attention of queries, keys and values, which have all heads in a row."""
        size = self.width // self.heads
        q, k, v = (
            self.add("Transpose", self.shaped(part, 1, self.rows, self.heads, size), perm=order)
            for part, order in zip(parts, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
        )
        scores = self.add("Mul", self.add("MatMul", q, k), self.constant(np.float32(size**-0.5)))
        masked = self.add("Add", scores, self.constant(mask))
        mixed = self.add("MatMul", self.add("Softmax", masked, axis=-1), v)
        return self.shaped(self.add("Transpose", mixed, perm=[0, 2, 1, 3]), 1, self.rows, self.width)

    def finish(self, name: str, result: str) -> tuple[Any, Inputs]:
        """Return the model with this result, and inputs."""
        self.nodes.append(helper.make_node("Identity", [result], ["y"], name="end"))
        shape = (1, self.rows, self.width)
        model = model_of(name, self.nodes, (shape,) * 2, self.weights, opset=20)
        return model, {"x": self.rng.standard_normal(shape).astype(np.float32)}


def bert(layers: int, rows: int, width: int = 128, heads: int = 2) -> tuple[Any, Inputs]:
    """Return encoder layers with drawn weights, by default those of BERT-tiny, some keys masked, and inputs."""
    g, x, mask = TransformerGraph(rows, width, heads), "x", np.zeros((1, 1, 1, rows))
    mask[..., -5:] = -1e4
    for _ in range(layers):
        mixed = g.mixed((g.dense(x, width, width) for _ in range(3)), mask)
        x = g.norm(g.add("Add", x, g.dense(mixed, width, width)))
        x = g.norm(g.add("Add", x, g.dense(g.add("Gelu", g.dense(x, width, 4 * width)), 4 * width, width)))
    return g.finish("bert", x)


def gpt(rows: int, width: int = 128, heads: int = 2) -> tuple[Any, Inputs]:
    """Return a block of GPT-2 with drawn weights, whose queries, keys and values are one product, and inputs."""
    g = TransformerGraph(rows, width, heads)
    parts = g.several("Split", g.dense(g.norm("x"), width, 3 * width), outputs=3, axis=-1, num_outputs=3)
    mixed = g.mixed(parts, np.triu(np.full((1, 1, rows, rows), -3e38), 1))
    h = g.add("Add", "x", g.dense(mixed, width, width))
    wide = g.add("Gelu", g.dense(g.norm(h), width, 4 * width), approximate="tanh")
    h = g.add("Add", h, g.dense(wide, 4 * width, width))
    return g.finish("gpt", g.norm(h))


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
        pytest.param(lambda: bert(1, 24), "tensix{dtype=tf32 phases=3}", marks=pytest.mark.nightly),
        pytest.param(lambda: gpt(24), "tensix{dtype=tf32 phases=3}", marks=pytest.mark.nightly),
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
