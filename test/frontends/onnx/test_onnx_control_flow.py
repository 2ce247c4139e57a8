"""Branches and loops whose course is known at run time only, against ONNX's reference evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser
from onnx.reference import ReferenceEvaluator

import mirlo
from mirlo.frontends.onnx import OnnxImportError

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL

value = helper.make_tensor_value_info


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    names = [["" if name == "_" else name for name in text.split()] for text in (inputs, outputs)]
    return helper.make_node(operator, *names, name=outputs.split()[0], **attributes)


def scalar(name: str, number: Any, dtype: type = np.float32) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(np.array(number, dtype), name)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str],
    constants: Sequence[onnx.TensorProto] = (),
) -> onnx.ModelProto:
    wanted = [value(name, F32, None) for name in outputs]
    graph = helper.make_graph(nodes, "control", inputs, wanted, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def assert_like_reference(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> None:
    """Compare with the reference evaluator, which takes no loop without a condition: models have one."""
    expected = ReferenceEvaluator(model).run(None, inputs)
    found = mirlo.compile(model).run(inputs)
    for got, wanted in zip(found.values(), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


def newton(body_nodes: Sequence[onnx.NodeProto] = ()) -> onnx.ModelProto:
    """Square roots by Newton's rule, until they hardly change, with a captured input; and the number of rounds."""
    body = helper.make_graph(
        [
            node("Div", "x r", "q"),
            node("Add", "r q", "s"),
            node("Mul", "s half", "next"),
            node("Sub", "next r", "d"),
            node("Abs", "d", "a"),
            node("ReduceMax", "a", "change", keepdims=0),
            node("Greater", "change small", "go"),
            node("Add", "rounds one", "more"),
            *body_nodes,
        ],
        "body",
        [value("i", I64, []), value("c", BOOL, []), value("r", F32, [4]), value("rounds", F32, [])],
        [value("go", BOOL, []), value("next", F32, [4]), value("more", F32, [])],
    )
    numbers = {"half": 0.5, "small": 1e-3, "one": 1, "zero": 0}
    constants = [*(scalar(*item) for item in numbers.items()), scalar("yes", True, np.bool_)]
    loop = node("Loop", "M yes x zero", "root count", body=body)
    return model_of([loop], [value("x", F32, [4]), value("M", I64, [])], ["root", "count"], constants)


@pytest.mark.parametrize("rounds", [0, 1, 3, 100])
def test_loop_until_a_condition(rounds: int) -> None:
    model = newton()
    x = np.array([1, 2, 9, 100], np.float32)
    assert_like_reference(model, {"x": x, "M": np.array(rounds)})


def test_loop_stops_early() -> None:
    executable = mirlo.compile(newton())
    x = np.array([1, 2, 9, 100], np.float32)
    results = executable.run({"x": x, "M": np.array(1000)})
    np.testing.assert_allclose(results["root"], np.sqrt(x), rtol=1e-4)
    assert 5 < results["count"] < 15


@pytest.mark.parametrize("go", [True, False])
def test_loop_with_a_condition_alone(go: bool) -> None:
    body = helper.make_graph(
        [node("Mul", "v two", "w"), node("ReduceSum", "w", "t", keepdims=0), node("Less", "t limit", "more")],
        "body",
        [value("i", I64, []), value("c", BOOL, []), value("v", F32, [2])],
        [value("more", BOOL, []), value("w", F32, [2])],
    )
    model = model_of(
        [node("Loop", "_ go x", "y", body=body)],
        [value("x", F32, [2]), value("go", BOOL, [1])],
        ["y"],
        [scalar("two", 2), scalar("limit", 50)],
    )
    executable = mirlo.compile(model)
    found = executable.run({"x": np.array([1, 2], np.float32), "go": np.array([go])})["y"]
    np.testing.assert_array_equal(found, [32, 64] if go else [1, 2])


def test_many_rounds_are_not_unrolled() -> None:
    """The rounds can be counted, but there are too many to write them down; the body uses the number of the round."""
    body = helper.make_graph(
        [node("Cast", "i", "f", to=F32), node("Add", "v f", "w"), node("Identity", "c", "more")],
        "body",
        [value("i", I64, []), value("c", BOOL, []), value("v", F32, [2])],
        [value("more", BOOL, []), value("w", F32, [2])],
    )
    model = model_of(
        [node("Loop", "M _ x", "y", body=body)], [value("x", F32, [2])], ["y"], [scalar("M", 3000, np.int64)]
    )
    executable = mirlo.compile(model)
    found = executable(np.zeros(2, np.float32))
    np.testing.assert_array_equal(found, np.full(2, 3000 * 2999 / 2))


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("rounds", [0, 1, 4])
def test_branch_in_loop_in_branch(flag: bool, rounds: int) -> None:
    then = helper.make_graph([node("Mul", "v x", "p")], "then", [], [value("p", F32, None)])
    other = helper.make_graph([node("Sub", "v x", "m")], "else", [], [value("m", F32, None)])
    body = helper.make_graph(
        [
            node("Mod", "i two", "odd"),
            node("Cast", "odd", "is_odd", to=BOOL),
            node("If", "is_odd", "w", then_branch=then, else_branch=other),
            node("Identity", "v", "before"),
        ],
        "body",
        [value("i", I64, []), value("c", BOOL, []), value("v", F32, [3]), value("u", F32, [3])],
        [value("c", BOOL, []), value("w", F32, [3]), value("before", F32, [3])],
    )
    looped = helper.make_graph(
        [node("Loop", "M yes x x", "a b", body=body), node("Add", "a b", "t")], "looped", [], [value("t", F32, None)]
    )
    plain = helper.make_graph([node("Neg", "x", "n")], "plain", [], [value("n", F32, None)])
    model = model_of(
        [node("If", "flag", "y", then_branch=looped, else_branch=plain)],
        [value("x", F32, [3]), value("M", I64, []), value("flag", BOOL, [])],
        ["y"],
        [scalar("two", 2, np.int64), scalar("yes", True, np.bool_)],
    )
    x = np.array([1.5, -2, 3], np.float32)
    assert_like_reference(model, {"x": x, "M": np.array(rounds), "flag": np.array(flag)})


def test_branches_and_loops_have_rows_in_profiles() -> None:
    executable = mirlo.compile(newton())
    profile = executable.profile(x=np.ones(4, np.float32), M=np.array(3))
    assert "scf.while" in str(profile) and "root" in str(profile)


def collecting(inputs: str) -> onnx.ModelProto:
    """Squares, of which each is collected, until they are more than 100."""
    body = helper.make_graph(
        [
            node("Mul", "v v", "w"),
            node("ReduceMax", "w", "m", keepdims=0),
            node("Less", "m most", "c2"),
            node("Sum", "w w", "double"),
        ],
        "body",
        [value("i", I64, []), value("c", BOOL, []), value("v", F32, [2])],
        [value("c2", BOOL, []), value("w", F32, [2]), value("double", F32, [2])],
    )
    given = [value("x", F32, [2]), value("M", I64, []), value("go", BOOL, [])]
    return model_of([node("Loop", inputs, "y z", body=body)], given, ["y", "z"], [scalar("most", 100)])


def test_collecting_as_many_rounds_as_there_are() -> None:
    model = collecting("M go x")
    f, reference = mirlo.compile(model), ReferenceEvaluator(model)
    x = np.array([2, 3], np.float32)
    for rounds in (1, 2, 3, 9):
        inputs = {"x": x, "M": np.array(rounds), "go": np.array(True)}
        for got, wanted in zip(f.run(inputs).values(), reference.run(None, inputs), strict=True):
            np.testing.assert_allclose(got, wanted)
    assert f(x, np.array(0), np.array(True))[1].shape == f(x, np.array(4), np.array(False))[1].shape == (0, 2)


def test_collecting_without_a_most_number_of_rounds() -> None:
    model = collecting("_ go x")
    inputs = {"x": np.array([2, 3], np.float32), "go": np.array(True)}
    given = {**inputs, "M": np.array(0)}
    found, wanted = mirlo.compile(model).run(given), ReferenceEvaluator(model).run(None, given)
    for got, expected in zip(found.values(), wanted, strict=True):
        np.testing.assert_allclose(got, expected)


@pytest.mark.parametrize("doubled", [True, False])
def test_branches_of_different_shapes(doubled: bool) -> None:
    """What follows works on a tensor whose shape is known when the branch has run."""
    model = parser.parse_model("""
      <ir_version: 10, opset_import: ["": 18]>
      g (bool c, float[n, 3] x) => (float[k, 3] y, float[m] s) {
        z = If (c) <then_branch = a () => (float[i, 3] t) { p = Concat<axis=0>(x, x)  t = Relu(p) },
                    else_branch = b () => (float[j, 3] e) { e = Neg(x) }>
        y = Add(z, z)
        one = Constant<value_ints = [1]>()
        s = ReduceSum<keepdims = 0>(y, one)
      }""")
    x = np.arange(6, dtype=np.float32).reshape(2, 3) - 1
    y, s = mirlo.compile(model)(np.array(doubled), x)
    expected = 2 * np.maximum(np.concatenate([x, x]), 0) if doubled else -2 * x
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_allclose(s, expected.sum(1))


def test_names_of_a_branch_hide_those_around_it() -> None:
    """A name that a branch defines again hides that of the outer graph."""
    hidden = helper.make_graph([node("Neg", "x", "h"), node("Exp", "h", "t")], "then", [], [value("t", F32, None)])
    other = helper.make_graph([node("Identity", "h", "e")], "else", [], [value("e", F32, None)])
    nodes = [node("Abs", "x", "h"), node("If", "c", "y", then_branch=hidden, else_branch=other)]
    model = model_of(nodes, [value("x", F32, [3]), value("c", BOOL, [])], ["y"])
    x = np.array([1, -2, 3], np.float32)
    compiled = mirlo.compile(model, cache=False)
    np.testing.assert_allclose(compiled(x, np.array(True)), np.exp(-x), rtol=1e-6)
    np.testing.assert_array_equal(compiled(x, np.array(False)), np.abs(x))


def test_a_condition_of_a_loop_that_is_no_scalar() -> None:
    body = helper.make_graph(
        [node("Identity", "v", "o"), node("Identity", "flags", "g")],
        "body",
        [value("i", I64, []), value("a", BOOL, []), value("v", F32, [3])],
        [value("g", BOOL, None), value("o", F32, [3])],
    )
    constants = [scalar("trips", 3, np.int64), onnx.numpy_helper.from_array(np.array([True, True]), "flags")]
    model = model_of([node("Loop", "trips _ x", "y", body=body)], [value("x", F32, [3])], ["y"], constants)
    with pytest.raises(OnnxImportError, match="condition 'flags' must be one bool"):
        mirlo.compile(model)
