"""Models as they come: all versions of the format, missing names, shapes that lie, files larger than memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.frontends.onnx import OnnxImportError

F32, I64 = TensorProto.FLOAT, TensorProto.INT64
ONES = np.ones((2, 3), np.float32)


def info(name: str, shape: Any = (2, 3), kind: int = F32) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: list[Any], inputs: list[Any], outputs: list[Any], *, ir: int = 10, opset: int = 17, **rest: Any
) -> Any:
    graph = helper.make_graph(nodes, "g", inputs, outputs, **rest)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)


@pytest.mark.parametrize("ir", range(3, 14))
def test_versions_of_the_format(ir: int) -> None:
    """In version 3 all initializers are inputs too; they stay constants."""
    weight = numpy_helper.from_array(2 * ONES, "w")
    inputs = [info("x"), info("w")] if ir == 3 else [info("x")]
    made = model(
        [helper.make_node("Add", ["x", "w"], ["y"])], inputs, [info("y")], ir=ir, opset=8, initializer=[weight]
    )
    f = mirlo.compile(made)
    assert [spec.name for spec in f.inputs] == ["x"]
    np.testing.assert_array_equal(f(ONES), 3 * ONES)


def test_nodes_without_names_in_any_order_and_what_nobody_reads() -> None:
    nodes = [
        helper.make_node("Neg", ["b"], ["y"]),
        helper.make_node("Relu", ["unused"], ["nothing"]),
        helper.make_node("Add", ["a", "a"], ["b"]),
        helper.make_node("Add", ["x", "x"], ["a"]),
        helper.make_node("Relu", ["x"], ["unused"]),
    ]
    idle = numpy_helper.from_array(ONES, "idle")
    made = model(nodes, [info("x"), info("z", (1,))], [info("y")], initializer=[idle])
    np.testing.assert_array_equal(mirlo.compile(made)(ONES, np.ones(1, np.float32)), -4 * ONES)


def test_declared_shapes_of_values_that_are_wrong() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    weight = numpy_helper.from_array(np.ones((3, 4), np.float32), "w")
    for wrong in (info("a", (7, 7)), info("a", ("n", "m")), info("a", (2, 4), I64), info("a", None)):
        made = model(nodes, [info("x")], [info("y", None)], initializer=[weight], value_info=[wrong])
        np.testing.assert_array_equal(mirlo.compile(made)(ONES), np.full((2, 4), 3, np.float32))


def test_one_output_twice_and_inputs_that_are_outputs() -> None:
    made = model([helper.make_node("Relu", ["x"], ["y"])], [info("x")], [info("y"), info("x")])
    y, x = mirlo.compile(made)(-ONES)
    np.testing.assert_array_equal(y, 0 * ONES)
    np.testing.assert_array_equal(x, -ONES)


def test_empty_names_leave_inputs_out() -> None:
    nodes = [helper.make_node("Clip", ["x", "", "high"], ["y"]), helper.make_node("Dropout", ["y", "", ""], ["z", ""])]
    high = numpy_helper.from_array(np.float32(0.5), "high")
    made = model(nodes, [info("x")], [info("z")], initializer=[high])
    np.testing.assert_array_equal(mirlo.compile(made)(ONES), ONES / 2)


def test_names_of_graphs_inside_may_hide_those_outside() -> None:
    inner = helper.make_graph([helper.make_node("Neg", ["x"], ["a"])], "then", [], [info("a")])
    other = helper.make_graph([helper.make_node("Relu", ["x"], ["a"])], "else", [], [info("a")])
    nodes = [
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=other),
        helper.make_node("Add", ["a", "y"], ["z"]),
    ]
    f = mirlo.compile(model(nodes, [info("x"), info("c", (), TensorProto.BOOL)], [info("z")]))
    np.testing.assert_array_equal(f(-ONES, np.array(True)), 2 * ONES)
    np.testing.assert_array_equal(f(-ONES, np.array(False)), ONES)


def test_operator_set_that_is_not_imported() -> None:
    made = model([helper.make_node("Relu", ["x"], ["y"])], [info("x")], [info("y")])
    del made.opset_import[:]
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(OnnxImportError, match="Relu|imports no"):
        mirlo.compile(made)


@pytest.mark.sample(0)
def test_a_chain_of_thousands_of_nodes_is_imported() -> None:
    from mirlo.frontends.onnx import import_model

    count = 5000
    nodes = [helper.make_node("Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
    module, _ = import_model(model(nodes[::-1], [info("v0")], [info(f"v{count}")]))
    assert len(list(module.body.operations[0].regions[0].blocks[0].operations)) == count + 1


def test_weights_of_more_than_two_gigabytes(tmp_path: Path) -> None:
    """Of a sparse file, only the needed rows are read."""
    rows = 600_000_000 // 1024
    weight = TensorProto(name="table", data_type=F32, dims=[rows, 1024], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "table.bin"), ("offset", "0"), ("length", str(rows * 4096))):
        weight.external_data.add(key=key, value=value)
    made = model(
        [helper.make_node("Gather", ["table", "i"], ["y"])], [info("i", (2,), I64)], [info("y", (2, 1024))],
        initializer=[weight],
    )  # fmt: skip
    onnx.save(made, tmp_path / "large.onnx")
    last = np.arange(1024, dtype=np.float32)
    with open(tmp_path / "table.bin", "wb") as file:
        file.truncate(rows * 4096)
        file.seek((rows - 1) * 4096)
        file.write(last.tobytes())
    f = mirlo.compile(tmp_path / "large.onnx", cache=False)
    assert f.memory.weights_bytes > 2**31
    y = f(np.array([0, rows - 1]))
    np.testing.assert_array_equal(y, np.stack([np.zeros(1024, np.float32), last]))


@pytest.mark.parametrize("from_file", [False, True])
def test_models_older_than_the_converters(from_file: bool, tmp_path: Path) -> None:
    """Operator set 6, where broadcasting was an attribute of Add, is brought to 7 first."""
    adds = helper.make_node("Add", ["x", "w"], ["y"], broadcast=1)
    x, y = (helper.make_tensor_value_info(name, F32, [2, 3, 4]) for name in "xy")
    weights = [numpy_helper.from_array(np.arange(4, dtype=np.float32), "w")]
    graph = helper.make_graph([adds], "old", [x, helper.make_tensor_value_info("w", F32, [4])], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 6)], ir_version=3)
    given = np.ones((2, 3, 4), np.float32)
    if from_file:
        onnx.save(model, tmp_path / "old.onnx")
    found = mirlo.compile(tmp_path / "old.onnx" if from_file else model)(given)
    np.testing.assert_array_equal(found, given + np.arange(4, dtype=np.float32))
