"""Dictionaries: ZipMap and DictVectorizer of ai.onnx.ml, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import mirlo
from mirlo.frontends.onnx import OnnxImportError
from mirlo.runtime.errors import InputError, PackedFunctionError
from mirlo.runtime.host_functions.map import zip_labels
from mirlo.runtime.kinds import Kind, map_of, parse_kind, sequence_of

F32, I64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
LABELS: list[list[Any]] = [[5, -1, 1 << 40], ["no", "yes", "\u00e4"], [3, 3, 1]]


def model(nodes: list[Any], given: Any, outputs: list[Any]) -> Any:
    graph = helper.make_graph(nodes, "g", [given], outputs)
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def zipped(labels: list[Any], dims: Any, scores: list[Any] | None = None) -> Any:
    """Return a classifier's end: the scores doubled, and those as dictionaries."""
    is_text = isinstance(labels[0], str)
    name = "classlabels_strings" if is_text else "classlabels_int64s"
    nodes = [
        helper.make_node("Add", ["x", "x"], ["doubled"]),
        helper.make_node("ZipMap", ["doubled"], ["y"], domain="ai.onnx.ml", name="zip", **{name: labels}),
    ]
    kind = helper.make_map_type_proto(STRING if is_text else I64, helper.make_tensor_type_proto(F32, []))
    outputs = [
        helper.make_value_info("y", helper.make_sequence_type_proto(kind)),
        helper.make_tensor_value_info("doubled", F32, None),
    ]
    return model(nodes, helper.make_tensor_value_info("x", F32, dims), outputs)


def expected(made: Any, **given: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(made.SerializeToString(), options).run(None, given)


@pytest.mark.sample(2)
@pytest.mark.parametrize("dims", [[4, 3], ["n", 3], ["n", "c"], [3], ["c"]])
@pytest.mark.parametrize("labels", LABELS)
def test_zip_map(labels: list[Any], dims: list[Any], tmp_path: Path) -> None:
    made = zipped(labels, dims)
    f = mirlo.compile(made)
    f.save(tmp_path / "f.mirlo")
    for rows in (4,) if dims[0] == 4 or len(dims) == 1 else (4, 1, 0):
        x = np.random.default_rng(rows).normal(size=(rows, 3)[-len(dims) :]).astype(np.float32)
        wanted = expected(made, x=x)
        for found in (f(x), mirlo.load(tmp_path / "f.mirlo")(x)):
            assert isinstance(found[0], list) and found[0] == wanted[0]
            assert [list(row) for row in found[0]] == [list(row) for row in wanted[0]]
            np.testing.assert_array_equal(found[1], wanted[1])


@pytest.mark.parametrize("count", [1, 2, 8, 9, 30])
@pytest.mark.parametrize("rows", [0, 1, 2, 50])
def test_zip_map_of_any_size(count: int, rows: int) -> None:
    rng = np.random.default_rng(count * 100 + rows)
    labels, scores = rng.permutation(count).tolist(), rng.random((rows, count), np.float32)
    wanted = [dict(zip(labels, row, strict=True)) for row in scores.tolist()]
    assert list(zip_labels(labels=labels)(scores)) == wanted


def test_results_belong_to_the_caller() -> None:
    f = mirlo.compile(zipped(["a", "b", "c"], ["n", 3]))
    x = np.ones((2, 3), np.float32)
    first, kept = f(x), f(x)
    first[0][0]["a"], first[0][1:], first[1][:] = 9.0, [], 7.0
    assert kept[0] == f(x)[0] == [dict.fromkeys("abc", 2.0)] * 2 and (kept[1] == 2).all() and (x == 1).all()


def test_arrays_are_checked_unless_the_call_before_had_their_like() -> None:
    f = mirlo.compile(zipped(["a", "b", "c"], ["n", 3]))
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    for _ in range(2):
        f(x)
        for other in (x[:2], x[::2], x[:, ::-1], x.T[:3, :3], x.astype(">f4"), np.asfortranarray(x), x[:0]):
            for _ in range(2):
                found = f(other)
                assert found[0] == [dict(zip("abc", row, strict=True)) for row in (other * 2).tolist()]
                np.testing.assert_array_equal(found[1], other * 2)
        bytes_ = np.zeros(52, np.uint8)
        bytes_[1:49] = x.view(np.uint8).reshape(-1)
        unaligned = bytes_[1:49].view(np.float32).reshape(4, 3)
        assert not unaligned.flags.aligned
        np.testing.assert_array_equal(f(unaligned)[1], x * 2)
        for wrong in (x.astype(np.float64), x.astype(np.int32), x[:, :2], x[0], "x", None, x.astype(object)):
            f(x)
            with pytest.raises(InputError):
                f(wrong)


def test_zip_map_of_other_counts() -> None:
    with pytest.raises(OnnxImportError, match="'zip'.*there are 3 labels for 2 scores"):
        mirlo.compile(zipped([1, 2, 3], ["n", 2]))
    with pytest.raises(PackedFunctionError, match="node 'zip'.*there are 3 labels for 2 scores"):
        mirlo.compile(zipped([1, 2, 3], ["n", "c"]))(np.ones((1, 2), np.float32))
    both = zipped([1, 2, 3], ["n", 3])
    both.graph.node[1].attribute.append(helper.make_attribute("classlabels_strings", ["a"]))
    with pytest.raises(OnnxImportError, match="exactly one of the attributes"):
        mirlo.compile(both)


@pytest.mark.parametrize(
    ("vocabulary", "code", "given"),
    [
        (["b", "a", "zz"], F32, [{"a": 1.5, "b": -2.0}, {}, {"c": 1.0, "zz": 3.0}]),
        (["b", "a"], I64, [{"a": 1 << 40}, {"b": -1}]),
        (["b", "a"], TensorProto.DOUBLE, [{"a": 0.1}]),
        ([7, 1], F32, [{1: 1.5, 8: 2.0}, {7: 1.0}]),
        ([7, 1], STRING, [{1: "one"}, {}]),
    ],
)
def test_dict_vectorizer(vocabulary: list[Any], code: int, given: list[dict[Any, Any]]) -> None:
    is_text = isinstance(vocabulary[0], str)
    name = "string_vocabulary" if is_text else "int64_vocabulary"
    node = helper.make_node("DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml", **{name: vocabulary})
    kind = helper.make_map_type_proto(STRING if is_text else I64, helper.make_tensor_type_proto(code, [1]))
    made = model([node], helper.make_value_info("x", kind), [helper.make_tensor_value_info("y", code, None)])
    f = mirlo.compile(made)
    for value in given:
        found = f(value)
        assert found.tolist() == [[value.get(key, "" if code == STRING else 0) for key in vocabulary]]
        if code == F32 and value:  # others, and empty ones, cannot be given to ONNX Runtime from Python
            np.testing.assert_array_equal(found, expected(made, x=value)[0])
    for wrong, said in (
        ([1], "expected a dictionary"),
        ({None: 1}, "found the key None"),
        ({vocabulary[0]: []}, "found the value"),
    ):
        with pytest.raises(InputError, match=f"input 'x'.*{said}"):
            f(wrong)


CASTS = {"TO_FLOAT": F32, "TO_INT64": I64, "TO_STRING": STRING}


def cast_map(code: int, **attributes: Any) -> Any:
    node = helper.make_node("CastMap", ["x"], ["y"], domain="ai.onnx.ml", name="cast", **attributes)
    kind = helper.make_map_type_proto(I64, helper.make_tensor_type_proto(code, []))
    result = helper.make_tensor_value_info("y", CASTS[attributes.get("cast_to", "TO_FLOAT")], None)
    return model([node], helper.make_value_info("x", kind), [result])


@pytest.mark.parametrize("form", [{"map_form": "DENSE"}, {"map_form": "SPARSE", "max_map": 6}, {}])
@pytest.mark.parametrize("target", CASTS)
@pytest.mark.parametrize("code", [F32, STRING])
def test_cast_map(code: int, target: str, form: dict[str, Any]) -> None:
    f = mirlo.compile(cast_map(code, cast_to=target, **form))
    numbers: list[dict[int, Any]] = [{3: 1.5, 0: -2.75}, {5: 0.1, 2: 1e6, 4: -0.0}, {7: 1.0, 1: 2.0}]
    for row in numbers:
        # Maps to strings cannot be given to ONNX Runtime from Python: compare with the map of the same numbers.
        value = row if code == F32 else {key: str(number) for key, number in row.items()}
        wanted = np.asarray(expected(cast_map(F32, cast_to=target, **form), x=row)[0])
        if code == STRING and target == "TO_STRING":
            ordered = [value[key] for key in sorted(value)]
            wanted = np.array([[value.get(key, "0.f") for key in range(6)] if "max_map" in form else ordered])
        found = f(value)
        assert found.shape == wanted.shape and found.tolist() == wanted.tolist()
    empty = f({})  # which ONNX Runtime does not take from Python
    assert empty.shape == ((1, 6) if form.get("max_map") else (1, 0))


def test_cast_map_refuses() -> None:
    with pytest.raises(PackedFunctionError, match="node 'cast'.*must not be negative, found -1"):
        mirlo.compile(cast_map(F32, map_form="SPARSE", max_map=4))({-1: 1.0})
    with pytest.raises(PackedFunctionError, match="node 'cast'.*a string is not a number of type f32"):
        mirlo.compile(cast_map(STRING))({1: "one"})
    for value in (float("nan"), 1e30):
        with pytest.raises(PackedFunctionError, match="node 'cast'.*not an integer of 64 bits"):
            mirlo.compile(cast_map(F32, cast_to="TO_INT64"))({1: value})
    with pytest.raises(OnnxImportError, match="'max_map' must be 0 to"):
        mirlo.compile(cast_map(F32, map_form="SPARSE", max_map=1 << 60))
    with pytest.raises(OnnxImportError, match="'cast_to'"):
        mirlo.compile(_with_cast("TO_DOUBLE"))


def _with_cast(name: str) -> Any:
    made = cast_map(F32)
    made.graph.node[0].attribute.append(helper.make_attribute("cast_to", name))
    return made


def test_kinds_of_maps() -> None:
    for kind in (map_of("string", "f32"), sequence_of(map_of("i64", "string"))):
        assert parse_kind(str(kind)) == kind
    for text in ("map(f32, f32)", "map(string)", "map(string, f32[2])", "map(string, map(string, f32))"):
        with pytest.raises(ValueError, match="is not a kind of a value"):
            parse_kind(text)
    assert str(map_of("string", "f32")) == "map(string, f32)" and Kind("f32").key is None
