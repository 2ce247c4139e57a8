"""Dims that may be 1: run time decides whether they broadcast, as in ONNX Runtime, and no input is narrowed."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import mirlo

FAR = 2**62
SIZES = (0, 1, 2, 7)


def model_of(
    nodes: list[onnx.NodeProto], inputs: dict[str, list[Any]], constants: dict[str, Any] | None = None
) -> onnx.ModelProto:
    held = [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()]
    outputs = [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "broadcast", values, outputs, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def assert_like_onnxruntime(model: onnx.ModelProto, cases: list[dict[str, tuple[int, ...]]]) -> None:
    """Check that values are the same, and that the same sizes are errors."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    oracle = onnxruntime.InferenceSession(model.SerializeToString(), options)
    compiled = mirlo.compile(model)
    declared = {
        value.name: [d.dim_value or d.dim_param for d in value.type.tensor_type.shape.dim]
        for value in model.graph.input
    }
    assert {spec.name: list(spec.shape) for spec in compiled.inputs} == declared
    numbers = np.random.default_rng(0)
    refused = 0
    for case in cases:
        given = {name: numbers.standard_normal(shape).astype(np.float32) for name, shape in case.items()}
        try:
            (expected,) = oracle.run(None, given)
        except Exception:
            refused += 1
            try:
                assert compiled.run(given)["out"].size == 0, case
            except mirlo.MirloError as error:
                reasons = ("does not broadcast", "must broadcast", "looked at")
                assert any(reason in str(error) for reason in reasons), error
            continue
        np.testing.assert_allclose(compiled.run(given)["out"], expected, rtol=1e-5, atol=1e-6, err_msg=str(case))
    assert refused < len(cases)


def slices(rng: random.Random, of: str, name: str, rank: int) -> tuple[list[onnx.NodeProto], dict[str, Any]]:
    """Return a slice along some axes, of which most keep one element, all, or all but one."""
    axes = sorted(rng.sample(range(rank), rng.randint(1, rank)))
    bounds = [
        rng.choice([(0, 1, 1), (-1, FAR, 1), (0, FAR, 1), (1, FAR, 1), (0, -1, 1), (1, 2, 1), (-2, -1, 1), (0, 3, 2),
                    (-1, -FAR, -1), (FAR, 0, -1), (0, FAR, 5), (-1, -3, -2), (0, 2, 1)])
        for _ in axes
    ]  # fmt: skip
    starts, ends, steps = zip(*bounds, strict=True)
    held = {f"{name}_{i}": np.array(each) for i, each in enumerate((starts, ends, axes, steps))}
    return [helper.make_node("Slice", [of, *held], [name])], held


@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", range(24))
def test_slices_of_one_tensor(seed: int) -> None:
    rng = random.Random(seed)
    rank = rng.randint(1, 3)
    left, more = slices(rng, "x", "left", rank)
    right, held = slices(rng, "x", "right", rank) if rng.random() < 0.6 else ([], {})
    join = helper.make_node(rng.choice(["Add", "Sub", "Mul"]), ["left", "right" if right else "x"], ["out"])
    dims = [rng.choice("nm") for _ in range(rank)]
    sizes = [{"n": n, "m": m} for n in SIZES for m in SIZES]
    cases = [{"x": tuple(each[dim] for dim in dims)} for each in sizes]
    assert_like_onnxruntime(model_of([*left, *right, join], {"x": dims}, {**more, **held}), cases)


@pytest.mark.sample(3)
@pytest.mark.parametrize("operator", ["Add", "Where", "Max", "MatMul", "Expand", "PRelu", "Equal"])
def test_inputs_of_dims_that_are_named_differently(operator: str) -> None:
    inputs: dict[str, list[Any]] = {"x": ["a", "b"], "y": ["c", "d"]}
    nodes = [helper.make_node(operator, ["x", "y"], ["out"])]
    if operator == "Where":
        nodes = [
            helper.make_node("Cast", ["z"], ["w"], to=TensorProto.BOOL),
            helper.make_node("Where", ["w", "x", "y"], ["out"]),
        ]
        inputs["z"] = ["e", 1, 7]
    elif operator == "MatMul":
        inputs = {"x": ["a", "b", 3, 2], "y": ["c", "d", 2, 5]}
    elif operator == "Expand":
        nodes = [helper.make_node("Shape", ["y"], ["shape"]), helper.make_node("Expand", ["x", "shape"], ["out"])]
    elif operator == "Equal":
        nodes = [helper.make_node("Equal", ["x", "y"], ["same"]), helper.make_node("Cast", ["same"], ["out"], to=1)]
    elif operator == "PRelu":
        inputs["y"] = [1, "d"]
    rng = random.Random(3)
    cases = [
        {
            name: tuple({"a": 1, "b": 7, "c": 7, "d": 1, "e": 1}.get(str(dim), dim) for dim in dims)
            for name, dims in inputs.items()
        }
    ]
    for _ in range(30):
        sizes = {name: rng.choice((0, 1, 7, 7)) for name in "abcde"}
        cases.append({name: tuple(sizes.get(str(dim), dim) for dim in dims) for name, dims in inputs.items()})
    if operator == "PRelu":  # ONNX Runtime broadcasts x to the slope as well
        cases = [case for case in cases if case["y"][1] in (1, case["x"][1])]
    assert_like_onnxruntime(model_of(nodes, inputs), cases)


CHOSEN = [
    helper.make_node("Cast", ["z"], ["w"], to=TensorProto.BOOL), helper.make_node("Where", ["w", "x", "y"], ["out"]),
]  # fmt: skip
THREE: dict[str, tuple[list[onnx.NodeProto], dict[str, list[Any]]]] = {
    "Where": (CHOSEN, {"x": ["a"], "y": ["b"], "z": ["c"]}),
    "Where of a number": (CHOSEN, {"x": ["a"], "y": [3, 5], "z": ["c"]}),
    "Max": ([helper.make_node("Max", ["x", "y", "z"], ["out"])], {"x": ["a"], "y": ["b"], "z": ["c"]}),
    "MatMul of a sum": (
        [helper.make_node("Sum", ["x", "y", "z"], ["sum"]), helper.make_node("MatMul", ["sum", "v"], ["out"])],
        {"x": [2, "a"], "y": [2, "b"], "z": [2, "c"], "v": ["d", 3]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", THREE)
def test_three_dims_that_are_named_differently(name: str) -> None:
    """Each may be 1 or 0; another node may need one size of all three, which three dims of 1 do not broadcast to."""
    nodes, inputs = THREE[name]
    names = sorted({dim for dims in inputs.values() for dim in dims if isinstance(dim, str)})
    cases = []
    for numbers in itertools.product((0, 1, 5), repeat=len(names)):
        sizes = dict(zip(names, numbers, strict=True))
        cases.append({name: tuple(sizes.get(str(dim), dim) for dim in dims) for name, dims in inputs.items()})
    assert_like_onnxruntime(model_of(nodes, inputs), cases)


JOINED = {
    "MatMul": [helper.make_node("Transpose", ["q"], ["r"], perm=[1, 0]), helper.make_node("MatMul", ["p", "r"], ["s"])],
    "Gemm": [helper.make_node("Gemm", ["p", "q"], ["s"], transB=1)],
    "Einsum": [helper.make_node("Einsum", ["p", "q"], ["s"], equation="ij,kj->ik")],
    "Concat": [helper.make_node("Concat", ["p", "q"], ["s"], axis=0)],
}
"""Nodes that need the last dims of two matrices to be equal, or to broadcast."""


@pytest.mark.parametrize("operator", JOINED)
def test_products_of_dims_that_must_be_equal(operator: str) -> None:
    """No symbol can be solved for: the call checks the dims, also of a tensor that is empty for another dim of 0."""
    flattened = [helper.make_node("Flatten", ["x"], ["p"]), helper.make_node("Flatten", ["y"], ["q"])]
    total = helper.make_node("ReduceSum", ["s"], ["out"], keepdims=0)
    compiled = mirlo.compile(
        model_of([*flattened, *JOINED[operator], total], {"x": ["n", "a", "b"], "y": ["m", "c", "d"]})
    )
    for n, m in itertools.product((0, 3), repeat=2):
        x = np.ones((n, 2, 2), np.float32)
        rows = n * m if operator != "Concat" else n + m
        assert compiled.run({"x": x, "y": np.ones((m, 4, 1), np.float32)})["out"] == 4 * rows
        with pytest.raises(mirlo.MirloError, match=rf"{operator}.*, where a = 2, b = 2, c = 5, d = 1"):
            compiled.run({"x": x, "y": np.ones((m, 5, 1), np.float32)})


@pytest.mark.parametrize("size", [1, 5])
def test_numbers_and_symbols(size: int) -> None:
    model = model_of([helper.make_node("Add", ["x", "y"], ["out"])], {"x": ["n", size], "y": ["m"]})
    cases = [{"x": (n, size), "y": (m,)} for n in (0, 1, 3) for m in (0, 1, 5)]
    assert_like_onnxruntime(model, cases)


@pytest.mark.sample(0)
def test_attention_under_a_mask_of_another_name() -> None:
    """The product with the values needs the scores' dim: only the mask is expanded, in as many layers as there are."""
    nodes, last = [], "x"
    for i in range(3):
        nodes += [
            helper.make_node("MatMul", [last, "k"], [f"raw{i}"]),
            helper.make_node("Add", [f"raw{i}", "mask"], [f"scores{i}"]),
            helper.make_node("Softmax", [f"scores{i}"], [f"weights{i}"]),
            helper.make_node("MatMul", [f"weights{i}", "v"], [f"context{i}"]),
            helper.make_node("Add", [last, f"context{i}"], ["out" if i == 2 else f"x{i}"]),
        ]
        last = f"x{i}"
    inputs = {"x": ["b", 2, "q", 4], "k": ["b", 2, 4, "t"], "v": ["b", 2, "t", 4], "mask": ["mb", 1, 1, "mt"]}
    cases = [
        {"x": (b, 2, 3, 4), "k": (b, 2, 4, t), "v": (b, 2, t, 4), "mask": (mb, 1, 1, mt)}
        for b, mb in ((2, 2), (2, 1), (1, 3)) for t, mt in ((5, 5), (5, 1), (1, 5), (4, 5))
    ]  # fmt: skip
    assert_like_onnxruntime(model_of(nodes, inputs), cases)


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(8))
def test_indices_of_equations_that_have_two_names(seed: int) -> None:
    """Each of two dims may be 1, or equal to the other: of an index that sums run over, or that stays."""
    rng = random.Random(seed)
    equation = ["bij,bjk->bik", "bhqd,bhkd->bhqk", "bclhn,bcshn->bhcls", "...ij,...jk->...ik"][seed % 4]
    left, right = equation.split("->")[0].split(",")
    names = {label: f"s{i}" for i, label in enumerate(sorted(set(equation) & set("abcdefghijklmnopqrstuvwxyz")))}
    shapes: list[list[Any]] = [[names[c] for c in term.replace("...", "")] for term in (left, right)]
    at = rng.randrange(len(shapes[1]))
    shapes[1][at] = f"other_{shapes[1][at]}"
    model = model_of(
        [helper.make_node("Einsum", ["x", "y"], ["out"], equation=equation)], {"x": shapes[0], "y": shapes[1]}
    )
    compiled = mirlo.compile(model)
    oracle = onnxruntime.InferenceSession(model.SerializeToString())
    for one in ("", "x", "y"):
        sizes = {name: rng.randint(2, 5) for name in names.values()}
        for dims in shapes:
            sizes.update({dim: sizes[dim.removeprefix("other_")] for dim in dims})
        if one:  # whose index is 1
            dim = shapes[1][at]
            sizes[dim if one == "y" else dim.removeprefix("other_")] = 1
        given = {
            name: np.random.default_rng(seed).standard_normal([sizes[dim] for dim in dims]).astype(np.float32)
            for name, dims in (("x", shapes[0]), ("y", shapes[1]))
        }
        np.testing.assert_allclose(compiled.run(given)["out"], oracle.run(None, given)[0], rtol=1e-4, atol=1e-5)


def test_a_slice_and_what_is_as_long_have_one_size() -> None:
    """A dim n - 1 of an array is not negative, and so the dim max(n - 1, 0) of a slice; the heads of rows are 4."""
    make = helper.make_node
    nodes = [
        make("Slice", ["x", "zero", "last", "one"], ["part"]),
        make("Shape", ["x"], ["batch"], start=0, end=1), make("Shape", ["x"], ["length"], start=1, end=2),
        make("Sub", ["length", "one"], ["less"]), make("Concat", ["less", "width"], ["sizes"], axis=0),
        make("Expand", ["scale", "sizes"], ["scales"]), make("Mul", ["part", "scales"], ["scaled"]),
        make("Concat", ["batch", "less", "heads"], ["shape"], axis=0), make("Reshape", ["scaled", "shape"], ["out"]),
    ]  # fmt: skip
    constants = {"zero": [0], "one": [1], "last": [-1], "width": [32], "scale": np.float32([2]), "heads": [-1, 8]}
    model = model_of(nodes, {"x": ["b", "n", 32]}, constants)
    assert mirlo.compile(model).outputs[0].shape == ("b", "n - 1", 4, 8)
    assert_like_onnxruntime(model, [{"x": (2, size, 32)} for size in (2, 3, 9)])


@pytest.mark.sample(0)
def test_sizes_of_data_broadcast() -> None:
    """A dim that the values of an input determine may be 1 as well, or that of the other operand."""
    rng = random.Random(5)
    for operator in ("Add", "MatMul", "Expand", "Where"):
        nodes = [helper.make_node("Reshape", ["w", "shape"], ["r"])]
        inputs: dict[str, list[Any]] = {"x": ["a", "b"], "w": [12]}
        shapes = [(12, 1), (1, 12), (3, 4), (4, 3), (6, 2)]
        if operator == "MatMul":
            inputs["x"], shapes = ["a", "b", 2], [(1, 2, 6), (3, 2, 2), (2, 2, 3)]
        if operator == "Expand":
            nodes.append(helper.make_node("Shape", ["r"], ["sizes"]))
        if operator == "Where":
            nodes.append(helper.make_node("Cast", ["r"], ["c"], to=TensorProto.BOOL))
        operands = {"Expand": ["x", "sizes"], "Where": ["c", "x", "x"]}.get(operator, ["x", "r"])
        model = model_of([*nodes, helper.make_node(operator, operands, ["out"])], inputs)
        rank = len(shapes[0])
        model.graph.input.append(helper.make_tensor_value_info("shape", TensorProto.INT64, [rank]))
        cases = []
        for shape in shapes:
            for _ in range(4):
                sizes = {"a": rng.choice((1, shape[0])), "b": rng.choice((1, shape[1], 5))}
                cases.append({"x": [sizes.get(str(dim), dim) for dim in inputs["x"]], "w": [12], "shape": shape})
        assert_like_onnxruntime_at(model, cases)


def assert_like_onnxruntime_at(model: onnx.ModelProto, cases: list[dict[str, Any]]) -> None:
    """Check values, and that the same sizes are errors, where the elements of `shape` are given."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    oracle, compiled = onnxruntime.InferenceSession(model.SerializeToString(), options), mirlo.compile(model)
    numbers, taken = np.random.default_rng(1), 0
    for case in cases:
        given = {name: numbers.standard_normal(shape).astype(np.float32) for name, shape in case.items()}
        given["shape"] = np.array(case["shape"])
        try:
            (expected,) = oracle.run(None, given)
        except Exception:
            with pytest.raises(mirlo.MirloError, match="does not broadcast"):
                compiled.run(given)
            continue
        taken += 1
        np.testing.assert_allclose(compiled.run(given)["out"], expected, rtol=1e-5, atol=1e-6, err_msg=str(case))
    assert taken >= len(cases) // 3


@pytest.mark.sample(0)
def test_two_numbers_of_elements_found() -> None:
    """One NonZero may select a single row while another selects more, as the experts of a mixture do."""
    make = helper.make_node
    nodes = [
        node
        for name in "cd"
        for node in (
            make("NonZero", [name], [f"{name}_found"]),
            make("Squeeze", [f"{name}_found", "axis"], [f"{name}_rows"]),
            make("Gather", ["x", f"{name}_rows"], [f"{name}_taken"]),
        )
    ]
    nodes.append(make("Mul", ["c_taken", "d_taken"], ["out"]))
    model = model_of(nodes, {"x": ["n", 4], "c": ["n"], "d": ["n"]}, {"axis": [0]})
    oracle, compiled = onnxruntime.InferenceSession(model.SerializeToString()), mirlo.compile(model)
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    for one, other in (([0, 0, 1], [1, 1, 1]), ([1, 1, 0], [0, 1, 1]), ([1, 1, 1], [0, 1, 0]), ([0] * 3, [0, 0, 1])):
        given = {"x": x, "c": np.float32(one), "d": np.float32(other)}
        np.testing.assert_allclose(compiled.run(given)["out"], oracle.run(None, given)[0], rtol=1e-6)


@pytest.mark.sample(0)
def test_sizes_that_are_truncated_quotients() -> None:
    """As exporters write the size of a strided convolution: 1 + (h - 1) / 2, which ONNX rounds towards zero."""
    make = helper.make_node
    nodes = [
        make("Conv", ["x", "k"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1]), make("Reshape", ["y", "flat"], ["rows"]),
        make("Shape", ["x"], ["h"], start=2, end=3), make("Shape", ["x"], ["w"], start=3, end=4),
        *(node for name in "hw" for node in (
            make("Sub", [name, "one"], [f"{name}1"]), make("Div", [f"{name}1", "two"], [f"{name}2"]),
            make("Add", [f"{name}2", "one"], [f"{name}3"]),
        )),
        make("Mul", ["h3", "w3"], ["all"]), make("Concat", ["one", "all"], ["sizes"], axis=0),
        make("Expand", ["eight", "sizes"], ["strides"]), make("Mul", ["rows", "strides"], ["out"]),
    ]  # fmt: skip
    kernel = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    constants = {"k": kernel, "flat": [0, 4, -1], "one": [1], "two": [2], "eight": np.float32([[8]])}
    model = model_of(nodes, {"x": [1, 3, "h", "w"]}, constants)
    assert mirlo.compile(model).outputs[0].shape == (1, 4, "floordiv(h + 1, 2)*floordiv(w + 1, 2)")
    assert_like_onnxruntime(model, [{"x": (1, 3, h, w)} for h, w in ((1, 1), (1, 7), (8, 5), (2, 2))])


def test_sizes_of_broadcasts_of_broadcasts() -> None:
    constants = {"zero": [0], "end": [FAR], "two": [2]}
    nodes = [
        helper.make_node("Add", ["x", "y"], ["sum"]),
        helper.make_node("Slice", ["sum", "zero", "end", "zero", "two"], ["half"]),
        helper.make_node("Add", ["half", "z"], ["out"]),
    ]
    model = model_of(
        nodes, {"x": ["n"], "y": ["m"], "z": ["k"]}, {k: np.array(v, np.int64) for k, v in constants.items()}
    )
    sizes = [(6, 6, 3), (1, 6, 3), (6, 1, 1), (1, 1, 4), (5, 5, 1), (6, 6, 2)]
    assert_like_onnxruntime(model, [{"x": (n,), "y": (m,), "z": (k,)} for n, m, k in sizes])
