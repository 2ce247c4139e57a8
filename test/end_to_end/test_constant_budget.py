"""Small models that ask for gigabytes while they are compiled: refused by node, or computed at run time."""

import numpy as np
import pytest
from c_compiler import needs_c_compiler
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.dialects.core import budget
from mirlo.dialects.core.budget import TABLE_BYTES
from mirlo.dialects.relax.slice import Concat
from mirlo.passes.legalize.rules import image
from mirlo.runtime.errors import MirloError


def model_of(nodes, shape, constants, opset=21):
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", inputs, [output], initializer=initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def resized(mode, factor):
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], name="the_node", mode=mode)
    return model_of([node], [1, 1, 4, 4], {"s": np.array([1, 1, 1, factor], np.float32)})


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_resize_beyond_the_budget_is_computed_at_run_time(mode, monkeypatch):
    x = np.random.default_rng(0).random((1, 1, 4, 4), np.float32)
    expected = mirlo.compile(resized(mode, 8), cache=False, jobs=1).run({"x": x})["y"]
    monkeypatch.setattr(budget, "TABLE_BYTES", 64)
    found = mirlo.compile(resized(mode, 8), cache=False, jobs=1).run({"x": x})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("mode", "factor"), [("linear", 2**31), ("nearest", 2**31), ("cubic", 2**20)])
def test_resize_to_gigabytes_makes_no_tables(mode, factor, monkeypatch):
    monkeypatch.setattr(image, "axis_table", lambda *_: pytest.fail("a table was made"))
    mirlo.compile(resized(mode, factor), cache=False, jobs=1)


def test_affine_grid_beyond_the_budget_names_the_node():
    node = helper.make_node("AffineGrid", ["x", "s"], ["y"], name="the_node")
    model = model_of([node], [1, 2, 3], {"s": np.array([1, 1, 2**31, 4])})
    with pytest.raises(MirloError, match=f"node 'the_node'.*the limit is {TABLE_BYTES >> 20} MiB"):
        mirlo.compile(model, cache=False, jobs=1)


def test_an_antialiased_resize_to_gigabytes_makes_no_tables(monkeypatch):
    monkeypatch.setattr(image, "axis_table", lambda *_: pytest.fail("a table was made"))
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], name="the_node", mode="linear", antialias=1)
    model = model_of([node], [1, 1, 1, 2**30], {"s": np.array([1, 1, 1, 0.5], np.float32)})
    mirlo.compile(model, cache=False, jobs=1)


HUGE = 2**40


@pytest.mark.parametrize(
    ("node", "constants", "declared"),
    [
        (helper.make_node("Range", ["zero", "i", "one"], ["y"], name="the_node"), {"zero": 0, "one": 1}, [HUGE]),
        (helper.make_node("Pad", ["x", "p"], ["y"], name="the_node"), {}, [HUGE]),
        (
            helper.make_node("Range", ["a", "b"], ["y"], name="the_node", domain="com.microsoft"),
            {"a": np.float32(0), "b": np.float32(HUGE)},
            [HUGE],
        ),
        (
            helper.make_node(
                "TfIdfVectorizer",
                ["ids"],
                ["y"],
                name="the_node",
                mode="TF",
                min_gram_length=1,
                max_gram_length=1,
                max_skip_count=0,
                ngram_counts=[0],
                ngram_indexes=[HUGE],
                pool_int64s=[1],
            ),
            {},
            [HUGE + 1],
        ),
    ],
    ids=lambda value: f"{value.domain}{value.op_type}" if hasattr(value, "op_type") else "",
)
def test_tables_of_declared_sizes_beyond_the_budget_name_the_node(node, constants, declared):
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [4]),
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
        helper.make_tensor_value_info("p", TensorProto.INT64, [2]),
        helper.make_tensor_value_info("ids", TensorProto.INT64, [3]),
    ]
    kind = TensorProto.INT64 if node.op_type == "Range" and not node.domain else TensorProto.FLOAT
    output = helper.make_tensor_value_info("y", kind, declared)
    graph = helper.make_graph([node], "g", inputs, [output], initializer=initializers)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    with pytest.raises(MirloError, match=f"node 'the_node'.*the limit is {TABLE_BYTES >> 20} MiB"):
        mirlo.compile(helper.make_model(graph, opset_imports=opsets, ir_version=8), cache=False, jobs=1)


@needs_c_compiler
def test_c_leaves_a_resize_beyond_the_budget_to_others(monkeypatch):
    x = np.random.default_rng(0).random((1, 1, 4, 4), np.float32)
    expected = mirlo.compile(resized("linear", 8), cache=False, jobs=1).run({"x": x})["y"]
    monkeypatch.setattr(budget, "TABLE_BYTES", 64)
    found = mirlo.compile(resized("linear", 8), cache=False, jobs=1, target="c,llvm").run({"x": x})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_constant_that_is_doubled_is_not_folded_for_ever(monkeypatch):
    names = ["c", *(f"v{i}" for i in range(26))]
    nodes = [helper.make_node("Concat", [a, a], [b], axis=0) for a, b in zip(names, names[1:], strict=False)]
    nodes += [helper.make_node("ReduceMax", [names[-1]], ["m"], keepdims=0), helper.make_node("Add", ["x", "m"], ["y"])]
    sizes = []
    concat = Concat.meaning

    def record(xs, *, axis):
        made = concat(xs, axis=axis)
        sizes.append(made.nbytes)
        return made

    monkeypatch.setattr(Concat, "meaning", staticmethod(record))
    mirlo.compile(model_of(nodes, [1], {"c": np.ones(4, np.float32)}), cache=False, jobs=1)
    assert max(sizes) <= 1 << 21
