"""Models with parts of tensors compute what the reference evaluator of ONNX does, whether parts are copied or not."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest
from c_compiler import needs_c_compiler
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import mirlo

INNER = 4


@dataclass
class Graph:
    """A random graph: tensors of [rows, n, 4], some with dynamic n, of which rows are taken, changed and joined."""

    random: random.Random
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def add(self, operator: str, *inputs: str, outputs: int = 1, **attributes: int) -> list[str]:
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        return names

    def constant(self, values: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(values, f"c{len(self.constants)}"))
        return str(self.constants[-1].name)

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def part(self, name: str, rows: int) -> list[tuple[str, int]]:
        """Take rows of a tensor in one of the ways that models do."""
        begin = self.random.randrange(rows)
        kind = self.random.choice(("slice", "gather", "split", "squeezed"))
        if kind == "split" and rows % 2 == 0:
            return [(half, rows // 2) for half in self.add("Split", name, outputs=2, axis=0, num_outputs=2)]
        if kind == "gather":
            (taken,) = self.add("Gather", name, self.ints(begin), axis=0)
            return [(taken, 1)]
        end = begin + 1 if kind == "squeezed" else self.random.randint(begin + 1, rows)
        (taken,) = self.add("Slice", name, self.ints(begin), self.ints(end), self.ints(0))
        if kind == "squeezed":
            (flat,) = self.add("Squeeze", taken, self.ints(0))
            (flat,) = self.add("Tanh", flat)
            (taken,) = self.add("Unsqueeze", flat, self.ints(0))
        return [(taken, end - begin)]

    def changed(self, name: str) -> str:
        kind = self.random.choice(("Tanh", "MatMul", "Add", "Mul", "Neg"))
        if kind in ("Tanh", "Neg"):
            return self.add(kind, name)[0]
        shape = (INNER, INNER) if kind == "MatMul" else (INNER,)
        values = np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
        return self.add(kind, name, self.constant(values))[0]


def random_model(seed: int) -> onnx.ModelProto:
    graph = Graph(random.Random(seed))
    known, outputs = [("x", 6)], []
    for _ in range(14):
        name, rows = graph.random.choice(known[-5:])
        step = graph.random.random()
        if step < 0.45:
            known += graph.part(name, rows)
        elif step < 0.8:
            known.append((graph.changed(name), rows))
        else:
            other, more = graph.random.choice(known)
            known.append((graph.add("Concat", name, other, axis=0)[0], rows + more))
        if graph.random.random() < 0.2 and known[-1][0] not in outputs:
            outputs.append(known[-1][0])
    outputs = list(dict.fromkeys([*outputs, known[-1][0]]))
    dims = ["n" if seed % 2 else 3, INNER]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, *dims])
    model = helper.make_model(
        helper.make_graph(graph.nodes, "parts", [x], values, graph.constants),
        opset_imports=[helper.make_opsetid("", 18)],
    )
    return onnx.shape_inference.infer_shapes(model)


@pytest.mark.sample(4)
@needs_c_compiler
@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(seed: int, target: str) -> None:
    model = random_model(seed)
    executable = mirlo.compile(model, target=target)
    for n in (1, 3, 5) if seed % 2 else (3,):
        x = np.random.default_rng(n).uniform(-1, 1, (6, n, INNER)).astype(np.float32)
        expected = ReferenceEvaluator(model).run(None, {"x": x})
        for result, array in zip(executable.run({"x": x}).values(), expected, strict=True):
            np.testing.assert_allclose(result, array, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("take", ["slice", "gather", "split"])
def test_rows_are_not_copied(take: str) -> None:
    """A product, rows of it, and a product of each of them: no other kernel."""
    graph = Graph(random.Random(0))
    weight = graph.constant(np.eye(INNER, dtype=np.float32))
    (product,) = graph.add("MatMul", "x", weight)
    if take == "split":
        rows = graph.add("Split", product, outputs=2, axis=0, num_outputs=2)
    elif take == "gather":
        rows = [graph.add("Gather", product, graph.ints(i), axis=0)[0] for i in range(2)]
    else:
        rows = [graph.add("Slice", product, graph.ints(i), graph.ints(i + 1), graph.ints(0))[0] for i in range(2)]
    outputs = [graph.add("MatMul", row, weight)[0] for row in rows]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, "n", INNER])
    model = onnx.shape_inference.infer_shapes(
        helper.make_model(
            helper.make_graph(graph.nodes, "rows", [x], values, graph.constants),
            opset_imports=[helper.make_opsetid("", 18)],
        )
    )
    executable = mirlo.compile(model)
    assert len(executable.artifact.kernels) == 3
    array = np.arange(2 * 3 * INNER, dtype=np.float32).reshape(2, 3, INNER)
    for row, result in zip(array, executable.run({"x": array}).values(), strict=True):
        np.testing.assert_array_equal(result.reshape(3, INNER), row)
