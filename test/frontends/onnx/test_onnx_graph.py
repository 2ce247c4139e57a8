"""The typed graph: what the messages of a model say, without the messages; it is read once and does not change."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from commands import ROOT
from onnx import TensorProto, helper, numpy_helper
from onnx_models import F32, make_model, node

from mirlo.benchmarks import import_outcomes, import_path
from mirlo.frontends.onnx import OnnxImportError, import_model
from mirlo.frontends.onnx.graph import AttributeDef, GraphDef, TensorDef, TypeDef
from mirlo.frontends.onnx.model import LoadedModel, load
from mirlo.frontends.onnx.reading import read_model
from mirlo.frontends.onnx.writing import model_message
from mirlo.testing import oracle
from mirlo.tools.samples import seeded

MESSAGES = {"model.py", "old.py", "reading.py", "writing.py"}
"""The files of the front end that know the messages of protobuf."""
MOST_RETURNS = 5
"""Returns of a model of one operator to files that it had left."""


def branch(name: str, *nodes: Any) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), name, [], [helper.make_tensor_value_info("r", F32, None)])


def with_everything() -> onnx.ModelProto:
    """Return a model with all kinds of attributes, tensors, types, subgraphs and functions."""
    big = np.arange(4096, dtype=np.float32).reshape(64, 64)
    words = helper.make_tensor("words", TensorProto.STRING, [2], [b"a", "é".encode()])
    scale = helper.make_node("Mul", ["x", "f"], ["y"])
    constant = helper.make_node("Constant", [], ["f"])
    constant.attribute.add(name="value_float", type=onnx.AttributeProto.FLOAT, ref_attr_name="factor")
    nodes = [
        helper.make_node("Scaled", ["x"], ["a"], domain="local", factor=2.0),
        helper.make_node("If", ["c"], ["b"], then_branch=branch("then", node("Neg", "a", "r")),
                         else_branch=branch("else", node("Identity", "big", "r"))),
        helper.make_node("Odd", ["b"], ["d"], domain="com.example", f=1.5, i=-3, s="text", floats=[0.0, -0.0],
                         ints=[1, 2**62], strings=["a", "b"], t=numpy_helper.from_array(big)),
        helper.make_node("Optional", [], ["o"], type=helper.make_sequence_type_proto(
            helper.make_tensor_type_proto(F32, [None, "n", 3]))),
    ]  # fmt: skip
    kinds = [
        helper.make_tensor_value_info("x", F32, ["batch", 64]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        helper.make_tensor_value_info("u", TensorProto.INT8, None),
        helper.make_value_info(
            "m", helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(F32, []))
        ),
        helper.make_value_info("q", helper.make_optional_type_proto(helper.make_tensor_type_proto(F32, [1]))),
    ]
    graph = helper.make_graph(nodes, "everything", kinds, [helper.make_tensor_value_info("d", F32, None)])
    tensors = [
        numpy_helper.from_array(big, "big"), words,
        helper.make_tensor("half", TensorProto.BFLOAT16, [2], [1.0, -2.0]),
        numpy_helper.from_array(np.array([1, -2, 3], ml_dtypes.int4), "nibbles"),
        TensorProto(name="doubles", data_type=TensorProto.DOUBLE, dims=[2], double_data=[0.5, 1e300]),
    ]  # fmt: skip
    graph.initializer.extend(tensors)
    graph.value_info.append(helper.make_tensor_value_info("a", F32, [None, 64]))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("local", 1)])
    opsets = [helper.make_opsetid("", 18)]
    model.functions.append(helper.make_function("local", "Scaled", ["x"], ["y"], [constant, scale], opsets, ["factor"]))
    return model


def described(model: LoadedModel, part: Any) -> Any:
    """Return what a part of the graph says, tensors by their elements."""
    if isinstance(part, TensorDef):
        is_text = part.code == TensorProto.STRING
        array = model.weights.strings(part) if is_text else model.weights.array(part)
        return part.name, part.code, part.dims, array.tolist()
    if dataclasses.is_dataclass(part):
        fields = dataclasses.fields(part)
        return type(part).__name__, {field.name: described(model, getattr(part, field.name)) for field in fields}
    if isinstance(part, tuple):
        return tuple(described(model, each) for each in part)
    if isinstance(part, dict):
        return {key: described(model, each) for key, each in part.items()}
    return repr(part) if isinstance(part, float) else part


@oracle.needs_onnx(1, 19)
def test_graph_says_what_the_messages_say() -> None:
    content = load(with_everything()).content
    graph = content.graph
    assert content.opsets == {"": 18, "local": 1} and list(content.functions) == [("local", "Scaled", "")]
    assert [each.name for each in graph.nodes] == ["Scaled_0", "If_1", "Odd_2", "Optional_3"]
    assert [value.type.dims for value in graph.inputs[:3]] == [("batch", 64), (), None]
    assert graph.inputs[3].type == TypeDef("map", key=TensorProto.INT64, element=TypeDef("tensor", F32, ()))
    odd = {each.name: each.value for each in graph.nodes[2].attributes}
    tensor = odd.pop("t")
    assert isinstance(tensor, TensorDef) and tensor.dims == (64, 64)
    assert {name: repr(value) for name, value in odd.items()} == {
        "f": "1.5", "i": "-3", "s": "b'text'", "floats": "(0.0, -0.0)", "ints": f"(1, {2**62})",
        "strings": "(b'a', b'b')",
    }  # fmt: skip
    (otherwise, then) = graph.nodes[1].graphs
    assert then.nodes[0].inputs == ("a",) and otherwise.nodes[0].inputs == ("big",)
    sequence = graph.nodes[3].attributes[0].value
    assert sequence == TypeDef("sequence", element=TypeDef("tensor", F32, (None, "n", 3)))
    assert content.functions["local", "Scaled", ""].nodes[0].attributes[0].reference == "factor"


@oracle.needs_onnx(1, 19)
@pytest.mark.parametrize("form", ["message", "bytes"])
def test_graph_that_is_written_and_read_again_is_the_same(form: str) -> None:
    model = with_everything()
    first = load(model if form == "message" else model.SerializeToString())
    written = model_message(first.content, first.weights.array)
    again = load(written)
    assert described(again, again.content) == described(first, first.content)


def test_sample_that_is_written_computes_the_same() -> None:
    model = seeded.complete("mobilenetv2")
    loaded = load(model)
    written = model_message(loaded.content, loaded.weights.array)
    sessions = [
        onnxruntime.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"])
        for each in (model, written)
    ]
    feeds = {}
    for value in sessions[0].get_inputs():
        shape = [dim if isinstance(dim, int) else 2 for dim in value.shape]
        feeds[value.name] = np.ones(shape, np.int64 if "int64" in value.type else np.float32)
    expected, found = (session.run(None, feeds) for session in sessions)
    for left, right in zip(expected, found, strict=True):
        np.testing.assert_array_equal(left, right)


@oracle.needs_onnx(1, 19)
def test_graph_does_not_change() -> None:
    content = load(with_everything()).content

    def visit(part: Any) -> None:
        assert not isinstance(part, (list, set)) and "google" not in type(part).__module__, part
        if dataclasses.is_dataclass(part) and not isinstance(part, type):
            for field in dataclasses.fields(part):
                with pytest.raises(dataclasses.FrozenInstanceError):
                    setattr(part, field.name, None)
                visit(getattr(part, field.name))
        elif isinstance(part, (tuple, frozenset)):
            for each in part:
                visit(each)
        elif isinstance(part, dict):
            visit(tuple(part.values()))
        elif isinstance(part, np.ndarray):
            assert not part.flags.writeable

    visit(content)


def test_messages_that_change_later_do_not_change_the_graph() -> None:
    model = make_model([node("Relu", "x", "y")], {"x": (F32, [2])}, ["y"])
    loaded = load(model)
    model.graph.node[0].op_type = "Neg"
    module, _ = import_model(loaded)
    assert "relax.relu" in str(module)


@pytest.mark.parametrize("depth", [60, 70, 2000])
def test_graphs_without_end_are_refused(depth: int) -> None:
    """In memory there is no limit of protobuf."""
    model = make_model([node("Relu", "x", "y")], {"x": (F32, [2])}, ["y"])
    graph = model.graph
    for _ in range(depth - 1):
        inner = graph.node.add(op_type="If", input=["c"], output=["r"])
        graph = inner.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
        graph.name = "inner"
    if depth < 64:
        assert len(load(model).content.graph.nodes) == 2
        return
    with pytest.raises(OnnxImportError, match="graphs are nested more than 64 deep"):
        import_model(model)


def test_types_without_end_are_refused() -> None:
    model = make_model([node("Relu", "x", "y")], {"x": (F32, [2])}, ["y"])
    kind = model.graph.input.add(name="s").type
    for _ in range(2000):
        kind = kind.sequence_type.elem_type
    kind.tensor_type.elem_type = F32
    with pytest.raises(OnnxImportError, match="types are nested more than 64 deep"):
        import_model(model)


def test_attribute_without_a_type_has_no_value(context: Any) -> None:
    model = make_model([node("LeakyRelu", "x", "y", alpha=0.5)], {"x": (F32, [2])}, ["y"])
    model.graph.node[0].attribute[0].ClearField("type")
    (attribute,) = load(model).content.graph.nodes[0].attributes
    assert isinstance(attribute, AttributeDef) and attribute.value is None
    with pytest.raises(OnnxImportError, match="attribute 'alpha' must be a number, got nothing"):
        import_model(model, context=context)


def test_attributes_are_checked_when_a_model_is_read() -> None:
    """Every attribute of every operator of ONNX: as a kind that it is not, and left out where it is required."""
    other = {
        kind: 1.5 if kind != onnx.AttributeProto.FLOAT else 1 for kind in onnx.AttributeProto.AttributeType.values()
    }
    for schema in onnx.defs.get_all_schemas():
        if schema.deprecated or schema.domain:
            continue
        inputs, outputs = ["x"] * schema.min_input, ["y"] * schema.min_output
        required = [name for name, declared in schema.attributes.items() if declared.required]
        for name, declared in schema.attributes.items():
            made = helper.make_node(schema.name, inputs, outputs, **{name: other[declared.type.value]})
            assert _problem(made).startswith(f"attribute '{name}' must be ")
        if required:
            assert _problem(helper.make_node(schema.name, inputs, outputs)) == (
                f"{schema.name} needs the attribute '{min(required)}'"
            )
        unknown = helper.make_node(schema.name, inputs, outputs, nothing=1)
        assert f"{schema.name} has no attribute 'nothing'" in _problem(unknown)


def _problem(made: onnx.NodeProto) -> str:
    """Return what reading finds wrong with a node."""
    graph = helper.make_graph([made], "g", [], [])
    opsets = [helper.make_opsetid("", onnx.defs.onnx_opset_version())]
    (found,) = read_model(helper.make_model(graph, opset_imports=opsets), {}, "m").graph.nodes
    return found.problem


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"along": 1.5}, "attribute 'axis' must be an integer, got a number"),
        ({}, "Concat needs the attribute 'axis'"),
        ({"along": 1}, ""),
    ],
)
def test_attributes_that_a_function_passes_on(context: Any, given: dict[str, Any], text: str) -> None:
    inner = node("Concat", "a a", "b")
    inner.attribute.add(name="axis", type=onnx.AttributeProto.INT, ref_attr_name="along")
    body = helper.make_function("my", "F", ["a"], ["b"], [inner], [helper.make_opsetid("", 18)], ["along"])
    call = helper.make_node("F", ["x"], ["y"], domain="my", name="call", **given)
    model = make_model([call], {"x": (F32, [2, 3])}, ["y"], functions=[body])
    if not text:
        import_model(model, context=context)
        return
    with pytest.raises(OnnxImportError, match=rf"node 'call/Concat_0' \(Concat\): {text}"):
        import_model(model, context=context)


def test_only_the_reader_knows_messages() -> None:
    found = set()
    for path in sorted((ROOT / "frontends" / "onnx").rglob("*.py")):
        code = re.sub(r'"""[^"]*"""', "", path.read_text(encoding="utf-8").replace("`onnx.ModelProto`", ""))
        if re.search(r"\bonnx\.\w*Proto\b(?!\.FLOAT)|\bHasField\b|\bWhichOneof\b|ParseFromString", code):
            found.add(path.name)
    assert found == MESSAGES


def test_model_seldom_returns_to_a_file_that_it_left() -> None:
    import_path.trace(import_path.softmax())  # fills caches
    found = import_path.trace(import_path.softmax())
    assert {"frontends/onnx/reading.py", "frontends/onnx/node.py"} <= found.files.keys()
    assert found.files["frontends/onnx/reading.py"] == 1, "a graph is read and checked"
    assert found.returns <= MOST_RETURNS


@oracle.needs_onnx(1, 19)
def test_graph_keeps_views_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "everything.onnx"
    onnx.save(with_everything(), path)
    graph: GraphDef = load(path).content.graph
    raw = graph.initializers[0].raw
    assert isinstance(raw, memoryview) and raw.nbytes == 4 * 4096


def test_outcomes_of_an_import() -> None:
    """The outcome of a model is the types of its function, or its error."""
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3, 4]) for name in "xy"]
    model = helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:]), ir_version=9)
    assert "%arg0: tensor<3x4xf32>" in import_outcomes.outcome(model)
    dynamic = import_outcomes.with_dynamic_dims(model)
    assert "%arg0: tensor<?x4xf32" in import_outcomes.outcome(dynamic)
    nodes[0].op_type = "Missing"
    model = helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:]), ir_version=9)
    assert "Missing" in import_outcomes.outcome(model)
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3]) for name in "xy"]
    model = helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:]), ir_version=9)
    assert import_outcomes.with_dynamic_dims(model) is None
