"""Pass `tile-batch`: random networks that are computed image by image, as ONNX Runtime computes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.dialects.relax import OPS
from mirlo.passes.graph.row_loop import RowwisePrefix
from mirlo.passes.rules import Decline, decline
from mirlo.targets.llvm import tile_batch
from mirlo.targets.llvm.machine import Machine

ROWS, CHANNELS, SIZE = 3, 4, 6
SHAPES = {"x": (ROWS, CHANNELS, SIZE, SIZE), "scale": (CHANNELS, 1, 1)}


class Network:
    """A random model of images [batch, channels, size, size]; some of its operators mix images."""

    def __init__(self, seed: int, batch: str | int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes, self.weights, self.batch = list[onnx.NodeProto](), list[onnx.TensorProto](), batch
        self.images, self.vectors = ["x"], list[str]()
        steps = [self.conv, self.conv, self.arithmetic, self.pool, self.channels, self.merged, self.vector]
        for _ in range(int(self.rng.integers(4, 9))):
            self.any(steps)()
        across = [self.sum_of_images, self.first_image, self.scaled, self.numbered, self.products, self.vector]
        across[seed % len(across)]()
        self.conv()

    def any(self, of: list[Callable[[], None]]) -> Callable[[], None]:
        return of[int(self.rng.integers(len(of)))]

    def image(self) -> str:
        return self.images[-1 - int(self.rng.integers(min(3, len(self.images))))]

    def node(self, op: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names[-1]

    def weight(self, array: npt.ArrayLike) -> str:
        name = f"w{len(self.weights)}"
        value = np.asarray(array)
        self.weights.append(numpy_helper.from_array(value.astype(np.float32) if value.dtype == float else value, name))
        return name

    def conv(self) -> None:
        group = int(self.rng.choice([1, 2, CHANNELS]))
        weight = self.weight(self.rng.standard_normal((CHANNELS, CHANNELS // group, 3, 3)) / 4)
        self.images.append(self.node("Conv", self.image(), weight, pads=[1, 1, 1, 1], group=group))

    def arithmetic(self) -> None:
        right = self.image() if self.rng.random() < 0.6 else self.weight(self.rng.standard_normal((CHANNELS, 1, SIZE)))
        self.images.append(self.node(str(self.rng.choice(["Add", "Mul", "Sub"])), self.image(), right))

    def pool(self) -> None:
        op = str(self.rng.choice(["MaxPool", "AveragePool"]))
        self.images.append(self.node(op, self.image(), kernel_shape=[3, 3], pads=[1, 1, 1, 1]))

    def channels(self) -> None:
        halves = self.node("Split", self.image(), outputs=2, axis=1, num_outputs=2)
        self.images.append(self.node("Concat", halves, halves[:-1] + "0", axis=1))

    def merged(self) -> None:
        rows = self.node("Reshape", self.image(), self.weight(np.array([-1, SIZE])))
        product = self.node("MatMul", rows, self.weight(self.rng.standard_normal((SIZE, SIZE)) / 2))
        soft = self.node("Softmax", product, axis=-1)
        self.images.append(self.node("Reshape", soft, self.weight(np.array([-1, CHANNELS, SIZE, SIZE]))))

    def vector(self) -> None:
        self.vectors.append(self.node("ReduceMean", self.image(), self.weight(np.array([2, 3])), keepdims=0))

    def sum_of_images(self) -> None:
        total = self.node("ReduceSum", self.image(), self.weight(np.array([0])), keepdims=1)
        self.images.append(self.node("Add", self.image(), total))

    def first_image(self) -> None:
        first = self.node("Gather", self.image(), self.weight(np.array([0])), axis=0)
        self.images.append(self.node("Sub", self.image(), first))

    def numbered(self) -> None:
        rows = self.batch if isinstance(self.batch, int) else 1
        self.images.append(
            self.node("Add", self.image(), self.weight(self.rng.standard_normal((rows, CHANNELS, 1, 1))))
        )

    def products(self) -> None:
        vectors = self.node("ReduceMean", self.image(), self.weight(np.array([2, 3])), keepdims=0)
        between = self.node("MatMul", vectors, self.node("Transpose", vectors, perm=[1, 0]))
        total = self.node("ReduceSum", between, self.weight(np.array([1])), keepdims=0)
        rows = self.node("Reshape", total, self.weight(np.array([-1, 1, 1, 1])))
        self.images.append(self.node("Mul", self.image(), rows))

    def scaled(self) -> None:
        self.images.append(self.node("Mul", self.image(), "scale"))

    def model(self) -> onnx.ModelProto:
        shapes = {"x": [self.batch, CHANNELS, SIZE, SIZE], "scale": [CHANNELS, 1, 1]}
        inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
        names = [name for name in dict.fromkeys([self.images[-1], self.images[-2], *self.vectors]) if name != "x"]
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]
        graph = helper.make_graph(self.nodes, "network", inputs, outputs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.fixture
def looped(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Have as many operators as can be in the loop, and report how many that were."""
    counts = list[int]()

    def longest(prefix: RowwisePrefix, machine: Machine) -> int | Decline:
        ends = [i for i, leaving in enumerate(prefix.leaving(), start=1) if prefix.refusal(leaving) is None]
        counts.append(ends[-1] if ends else 0)
        return counts[-1] or decline("no operator computes rows")

    monkeypatch.setattr(tile_batch, "choose_count", longest)
    yield counts


@pytest.mark.sample(4)
@pytest.mark.parametrize("batch", ["batch", ROWS])
@pytest.mark.parametrize("seed", range(8))
def test_random_networks(seed: int, batch: str | int, looped: list[int]) -> None:
    model = Network(seed, batch).model()
    compiled = mirlo.compile(model, cache=False, opt_level=0, jobs=1)
    assert len(looped) == 1 and looped[0] > 0
    session = onnxruntime.InferenceSession(model.SerializeToString())
    rng = np.random.default_rng(seed)
    scale = rng.standard_normal((CHANNELS, 1, 1)).astype(np.float32)
    needs_images = any(node.op_type == "Gather" for node in model.graph.node)
    for rows in (ROWS,) if batch == ROWS else (1, 5) if needs_images else (1, 5, 0):
        x = rng.standard_normal((rows, CHANNELS, SIZE, SIZE)).astype(np.float32)
        got = compiled(x=x, scale=scale)
        want = session.run(None, {"x": x, "scale": scale}) if rows else [None] * len(session.get_outputs())
        for ours, theirs in zip(got if isinstance(got, (tuple, list)) else [got], want, strict=True):
            if theirs is None:
                assert np.asarray(ours).size == 0 or np.asarray(ours).shape[0] == 1
            else:
                np.testing.assert_allclose(np.asarray(ours), theirs, rtol=2e-4, atol=2e-4)


@pytest.mark.sample(0)
def test_sizes_of_the_batch_in_attributes(looped: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that does not name the attribute with the shape of the whole batch ends the loop, with right results."""
    network = Network(5, "batch")
    network.conv()
    network.merged()
    model = network.model()
    mirlo.compile(model, cache=False, opt_level=0, jobs=1)
    reshape = OPS["reshape"]
    rule = reshape.sharding
    monkeypatch.setattr(reshape, "sharding", staticmethod(lambda *a, **k: replace(rule(*a, **k), shape="")))
    compiled = mirlo.compile(model, cache=False, opt_level=0, jobs=1)
    assert looped[1] < looped[0]
    rng = np.random.default_rng(0)
    feed = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for ours, theirs in zip(compiled(**feed), session.run(None, feed), strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=2e-4, atol=2e-4)
