"""`mirlo check`: every node is checked, also after unsupported ones."""

from __future__ import annotations

import json

import onnx
import pytest
from onnx import TensorProto, helper

from mirlo.tools.cli import main


def _model(path, nodes, told=(), opsets=(("", 18), ("com.acme", 1))):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in told]
    graph = helper.make_graph(nodes, "g", [x], [y], value_info=values)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid(*opset) for opset in opsets]), path)
    return str(path)


NODES = (
    helper.make_node("Relu", ["x"], ["a"], name="first"),
    helper.make_node("FancyNorm", ["a"], ["b"], name="fancy", domain="com.acme"),
    helper.make_node("MaxPool", ["b"], ["c"], name="pool", kernel_shape=[2]),
    helper.make_node("Sigmoid", ["a"], ["unused"], name="left_out"),
    helper.make_node("Add", ["a", "c"], ["y"], name="last"),
)


def _states(capsys, path):
    code = main(["check", path, "--json"])
    report = json.loads(capsys.readouterr().out)
    return code, {node["name"]: (node["state"], node["reason"]) for node in report["nodes"]}


def test_nodes_behind_an_unsupported_one_are_unknown_without_types(tmp_path, capsys):
    code, states = _states(capsys, _model(tmp_path / "m.onnx", NODES))
    assert code == 1
    assert states["first"] == ("supported", "")
    assert states["fancy"][0] == "unsupported" and "no operator of this domain" in states["fancy"][1]
    assert states["pool"] == ("unknown", "depends on 'b'")
    assert states["last"] == ("unknown", "depends on 'c'")
    assert states["left_out"] == ("unused", "")


def test_types_that_the_model_tells_let_the_check_go_on(tmp_path, capsys):
    path = _model(tmp_path / "m.onnx", NODES, told=[("b", [2, 8]), ("c", [2, 8])])
    code, states = _states(capsys, path)
    assert code == 1
    assert states["pool"][0] == "refused" and "'kernel_shape' is [2]" in states["pool"][1]
    assert states["last"] == ("supported", "")


def test_a_problem_in_a_function_body_is_the_callers(tmp_path, capsys):
    path = tmp_path / "m.onnx"
    _model(path, [helper.make_node("F", ["x"], ["y"], name="call", domain="com.acme")])
    model = onnx.load(path)
    body = [helper.make_node("Nothing", ["p"], ["q"], name="inner", domain="com.acme")]
    opsets = list(model.opset_import)
    model.functions.append(helper.make_function("com.acme", "F", ["p"], ["q"], body, opsets))
    onnx.save(model, path)
    code, states = _states(capsys, str(path))
    assert code == 1
    assert states["call"][0] == "unsupported" and "'call/inner'" in states["call"][1]


def test_the_text_names_what_is_in_the_way_only(tmp_path, capsys):
    path = _model(tmp_path / "m.onnx", NODES)
    assert main(["check", path]) == 1
    captured = capsys.readouterr()
    assert "5 nodes: 2 unknown, 1 supported, 1 unsupported, 1 unused" in captured.out
    assert "com.acme.FancyNorm 1" in captured.out and "first" not in captured.out
    assert "3 nodes cannot be compiled" in captured.err


def test_a_clean_model_is_checked_against_the_target(tmp_path, capsys):
    path = _model(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"], name="only")])
    assert main(["check", path]) == 0
    assert "every node can be compiled for target 'llvm'" in capsys.readouterr().out


@pytest.mark.parametrize("target", ["lvm"])
def test_an_unknown_target_is_an_error(tmp_path, capsys, target):
    path = _model(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"], name="only")])
    assert main(["check", path, "--target", target]) == 1
    assert "llvm" in capsys.readouterr().err


def test_a_broken_graph_is_told_as_a_whole(tmp_path, capsys):
    nodes = [helper.make_node("Add", ["x", "b"], ["a"], name="one"), helper.make_node("Relu", ["a"], ["b"], name="two")]
    nodes.append(helper.make_node("Relu", ["b"], ["y"], name="three"))
    assert main(["check", _model(tmp_path / "m.onnx", nodes)]) == 1
    assert "has a cycle" in capsys.readouterr().err


def test_a_result_beyond_any_memory_is_a_problem_of_its_node(tmp_path, capsys):
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], name="wide", pads=[1 << 61] * 2)]
    nodes.append(helper.make_node("Relu", ["a"], ["y"], name="last"))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4, 2, 3], [1.0] * 24)
    graph = helper.make_graph(nodes, "g", [x], [y], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "m.onnx")
    assert main(["check", str(tmp_path / "m.onnx")]) == 1
    captured = capsys.readouterr()
    assert "beyond any memory" in captured.out and "internal error" not in captured.err


def test_info_refuses_weights_of_a_type_that_there_is_not(tmp_path, capsys):
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [], [])
    graph.initializer.add(name="w", data_type=0, dims=[4])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "m.onnx")
    assert main(["info", str(tmp_path / "m.onnx")]) == 1
    assert "]: tensor 'w' has the element type" in capsys.readouterr().err
