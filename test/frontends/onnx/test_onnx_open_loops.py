"""Recurrent layers and Scan whose number of steps is a symbol: one compilation, any length."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import mirlo
from mirlo.frontends.onnx import import_model

F32, I32, I64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64

value = helper.make_tensor_value_info


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[str],
    constants: Any = (),
    opset: int = 18,
) -> onnx.ModelProto:
    wanted = [value(name, F32, None) for name in outputs]
    graph = helper.make_graph(nodes, "open", inputs, wanted, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def layer(operator: str, direction: str, gates: int, **attributes: Any) -> onnx.ModelProto:
    """Return a layer of 6 to 4, whose sequences have lengths of their own."""
    random = np.random.default_rng(0)
    directions = 2 if direction == "bidirectional" else 1

    def weights(*shape: int) -> np.ndarray:
        return (random.standard_normal((directions, *shape)) * 0.5).astype(np.float32)

    arrays = {"w": weights(gates * 4, 6), "r": weights(gates * 4, 4), "b": weights(2 * gates * 4)}
    outputs = ["y", "h", "c"][: 3 if operator == "LSTM" else 2]
    made = helper.make_node(
        operator, ["x", *arrays, "lengths"], outputs, name="layer", hidden_size=4, direction=direction, **attributes
    )
    inputs = [value("x", F32, ["steps", "batch", 6]), value("lengths", I32, ["batch"])]
    return model_of([made], inputs, outputs, [onnx.numpy_helper.from_array(a, name) for name, a in arrays.items()])


@pytest.mark.sample(0)
@pytest.mark.parametrize(
    ("operator", "direction", "gates", "attributes"),
    [
        ("RNN", "reverse", 1, {}),
        ("GRU", "bidirectional", 3, {"linear_before_reset": 1}),
        ("LSTM", "forward", 4, {}),
    ],
)
def test_layers(operator: str, direction: str, gates: int, attributes: dict[str, Any]) -> None:
    """As builds for one size, whose steps are unrolled."""
    model = layer(operator, direction, gates, **attributes)
    compiled = mirlo.compile(model)
    random = np.random.default_rng(1)
    for steps, batch in ((1, 1), (5, 3)):
        x = random.standard_normal((steps, batch, 6)).astype(np.float32)
        inputs = {"x": x, "lengths": random.integers(1, steps + 1, batch).astype(np.int32)}
        expected = mirlo.compile(model, shapes={"x": list(x.shape), "lengths": [batch]}).run(inputs)
        for name, found in compiled.run(inputs).items():
            np.testing.assert_allclose(found, expected[name], rtol=1e-5, atol=1e-6, err_msg=name)
    y, *last = compiled.run({"x": np.zeros((0, 2, 6), np.float32), "lengths": np.zeros(2, np.int32)}).values()
    assert y.shape[0] == 0 and not any(np.any(state) for state in last)


def adder(given: str = "x") -> onnx.GraphProto:
    """Return the running sum, which is carried and collected."""
    nodes = [helper.make_node("Add", ["s", given], ["t"]), helper.make_node("Identity", ["t"], ["u"])]
    return helper.make_graph(
        nodes, "adder", [value(n, F32, [2]) for n in ("s", given)], [value(n, F32, [2]) for n in "tu"]
    )


@pytest.mark.parametrize("backwards", [0, 1])
def test_scan(backwards: int) -> None:
    """Along the last axis of the input and of the output, in either direction."""
    scan = helper.make_node(
        "Scan",
        ["s", "x"],
        ["last", "sums"],
        body=adder("e"),
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_output_axes=[-1],
        scan_input_directions=[backwards],
        scan_output_directions=[backwards],
    )
    compiled = mirlo.compile(model_of([scan], [value("s", F32, [2]), value("x", F32, [2, "n"])], ["last", "sums"]))
    start = np.array([1, -1], np.float32)
    for n in (0, 1, 7):
        x = np.arange(2 * n, dtype=np.float32).reshape(2, n)
        found = compiled.run({"s": start, "x": x})
        sums = start[:, None] + (np.cumsum(x[:, ::-1], 1)[:, ::-1] if backwards else np.cumsum(x, 1))
        np.testing.assert_array_equal(found["sums"], sums)
        np.testing.assert_array_equal(found["last"], start + x.sum(1))


def test_scanned_inputs_have_one_length() -> None:
    """Two names for it become one, which the call checks."""
    body = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["c"])], "pair", [value(n, F32, []) for n in "ab"], [value("c", F32, [])]
    )
    scan = helper.make_node("Scan", ["x", "y"], ["z"], body=body, num_scan_inputs=2)
    compiled = mirlo.compile(model_of([scan], [value("x", F32, ["n"]), value("y", F32, ["m"])], ["z"]))
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(compiled.run({"x": x, "y": x})["z"], 2 * x)
    with pytest.raises(mirlo.MirloError, match="'y'"):
        compiled.run({"x": x, "y": x[:2]})


@pytest.mark.parametrize("lengths", [None, [3, 1, 2]])
def test_scan_of_a_batch(lengths: list[int] | None) -> None:
    """Operator set 8: elements after the end of a sequence are 0."""
    scan = helper.make_node(
        "Scan", ["lengths" if lengths else "", "s", "x"], ["last", "sums"], body=adder("e"), num_scan_inputs=1
    )
    inputs = [value("s", F32, ["batch", 2]), value("x", F32, ["batch", "n", 2])]
    if lengths:
        inputs.append(value("lengths", I64, ["batch"]))
    compiled = mirlo.compile(model_of([scan], inputs, ["last", "sums"], opset=8))
    x = np.arange(18, dtype=np.float32).reshape(3, 3, 2)
    given = {"s": np.ones((3, 2), np.float32), "x": x, **({"lengths": np.array(lengths)} if lengths else {})}
    found = compiled.run(given)
    for i, length in enumerate(lengths or [3] * 3):
        sums = 1 + np.cumsum(x[i, :length], 0)
        np.testing.assert_array_equal(found["sums"][i], np.concatenate([sums, np.zeros((3 - length, 2))]))
        np.testing.assert_array_equal(found["last"][i], sums[-1])


@pytest.mark.parametrize(("steps", "loops", "products"), [(4, 0, 1 + 3 * 4), (100, 1, 9), (1000, 1, 9)])
def test_long_layers_are_loops(steps: int, loops: int, products: int) -> None:
    """Of a known length, too: the operators of many steps are not written down one by one."""
    module, _ = import_model(layer("GRU", "forward", 3), shapes={"x": [steps, 1, 6], "lengths": [1]})
    text = str(module)
    assert text.count("scf.while") == loops and text.count('"relax.matmul"') <= products


def test_steps_that_are_counted_leave_nothing_behind() -> None:
    """A layer as a loop has the results of an unrolled one, whose steps are counted as well."""
    model = layer("LSTM", "reverse", 4)
    x = np.random.default_rng(1).standard_normal((60, 2, 6)).astype(np.float32)
    lengths = np.array([60, 3], np.int32)
    expected = mirlo.compile(model).run({"x": x, "lengths": lengths})
    fixed = mirlo.compile(model, shapes={"x": [60, 2, 6], "lengths": [2]})
    for name, found in fixed.run({"x": x, "lengths": lengths}).items():
        np.testing.assert_allclose(found, expected[name], rtol=1e-5, atol=1e-6, err_msg=name)
    module, _ = import_model(model, shapes={"x": [60, 2, 6], "lengths": [2]})
    assert "scf.execute_region" not in str(module)


def test_long_scans_are_loops() -> None:
    """An import of more slices has no more operations."""
    scan = helper.make_node("Scan", ["s", "x"], ["last", "sums"], body=adder("e"), num_scan_inputs=1)
    counts = []
    for length in (100, 800):
        x = onnx.numpy_helper.from_array(np.ones((length, 2), np.float32), "x")
        module, _ = import_model(model_of([scan], [value("s", F32, [2])], ["last", "sums"], [x]))
        counts.append(len(str(module).splitlines()))
    assert counts[0] == counts[1] < 100
