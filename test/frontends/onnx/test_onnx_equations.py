"""Data-dependent sizes that operators require to be equal: right, and imported in a time linear in the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.frontends.onnx import checkpoints, import_model
from mirlo.frontends.onnx.graph import NodeDef
from mirlo.frontends.onnx.node import Observer
from mirlo.frontends.onnx.values import Scope

HIDDEN = 4


def experts(count: int, function: bool = False) -> onnx.ModelProto:
    """Return a mixture of experts that finds the rows of each expert twice, for the data and for their weights."""
    rng = np.random.default_rng(0)
    constants: dict[str, Any] = {
        "gate": rng.standard_normal((HIDDEN, count)),
        "zero": np.zeros(1),
        "own": np.eye(HIDDEN),
    }
    arrays = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()]
    arrays.append(numpy_helper.from_array(np.array([1]), "one"))
    lines = [
        ("MatMul", ["x", "gate"], "logits", {}), ("ArgMax", ["logits"], "chosen", {"axis": 1, "keepdims": 0}),
        ("Softmax", ["logits"], "weights", {}), ("Mul", ["x", "zero"], "sum0", {}),
    ]  # fmt: skip
    for e in range(count):
        arrays.append(numpy_helper.from_array(np.array(e), f"e{e}"))
        lines += [
            ("Equal", ["chosen", f"e{e}"], f"mask{e}", {}), ("NonZero", [f"mask{e}"], f"found{e}", {}),
            ("NonZero", [f"mask{e}"], f"again{e}", {}), ("Transpose", [f"found{e}"], f"rows{e}", {}),
            ("Transpose", [f"again{e}"], f"same{e}", {}), ("GatherND", ["x", f"rows{e}"], f"own{e}", {}),
            ("GatherND", ["weights", f"same{e}"], f"weight{e}", {}),
            ("Gather", [f"weight{e}", f"e{e}"], f"scale{e}", {"axis": 1}),
            ("Unsqueeze", [f"scale{e}", "one"], f"column{e}", {}), ("MatMul", [f"own{e}", "own"], f"made{e}", {}),
            ("Mul", [f"made{e}", f"column{e}"], f"scaled{e}", {}),
            ("ScatterND", [f"sum{e}", f"rows{e}", f"scaled{e}"], f"sum{e + 1}", {}),
        ]  # fmt: skip
    nodes = [helper.make_node(name, inputs, [output], **attributes) for name, inputs, output, attributes in lines]
    opsets, functions = [helper.make_opsetid("", 17)], []
    if function:
        names = [array.name for array in arrays]
        functions = [helper.make_function("own", "All", ["x", *names], [f"sum{count}"], nodes, opsets)]
        nodes = [helper.make_node("All", ["x", *names], [f"sum{count}"], domain="own")]
        opsets = [*opsets, helper.make_opsetid("own", 1)]
    graph = helper.make_graph(
        nodes, "experts", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", HIDDEN])],
        [helper.make_tensor_value_info(f"sum{count}", TensorProto.FLOAT, ["n", HIDDEN])], arrays,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=9)


class Counter(Observer):
    """Counts the nodes that are imported, again or not."""

    nodes = 0

    def imported(self, step: NodeDef, scope: Scope) -> None:
        self.nodes += 1


@pytest.mark.sample(0)
@pytest.mark.parametrize("function", [False, True])
def test_import_is_linear(function: bool) -> None:
    imported = []
    for count in (10, 40):
        counter, model = Counter(), experts(count, function)
        import_model(model, observer=counter)
        imported.append(counter.nodes)
        assert counter.nodes < 4 * (12 * count + 4)
    assert imported[1] < 5 * imported[0]


def test_resumed_imports_are_those_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether checkpoints are before every node, before some, or nowhere."""
    model, found = experts(5), set()
    for interval in (1, 3, 1 << 30):
        monkeypatch.setattr("mirlo.frontends.onnx.node.INTERVAL", interval)
        module, store = import_model(model)
        found.add((str(module), store.names(), tuple(store.get(name).tobytes() for name in store.names())))
    assert len(found) == 1
    assert checkpoints.INTERVAL > 1


@pytest.mark.sample(0)
def test_results() -> None:
    model = experts(3)
    x = np.random.default_rng(1).standard_normal((9, HIDDEN)).astype(np.float32)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    np.testing.assert_allclose(mirlo.compile(model)(x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("operator", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_the_gates_of_a_layer_decide_the_sizes_of_its_weights(operator: str, gates: int) -> None:
    shapes: dict[str, list[int | str]] = {"X": [1, 2, 3], "W": [1, "w", 3], "R": [1, "r", 4], "B": [1, "b"]}
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    node = helper.make_node(operator, list(shapes), ["Y"], hidden_size=4)
    graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)])
    f = mirlo.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    sizes = {each.name: each.shape for each in f.inputs}
    assert sizes["W"] == (1, gates * 4, 3) and sizes["R"] == (1, gates * 4, 4) and sizes["B"] == (1, gates * 8)
