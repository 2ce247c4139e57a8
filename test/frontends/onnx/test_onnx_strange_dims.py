"""Names of dims that are not names, and sizes that nothing can hold: compiled, or refused with the input or node."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.driver.inference.session import InferenceSession
from mirlo.frontends.onnx.errors import OnnxImportError
from mirlo.frontends.onnx.importer import import_model

NAMES = [
    "None", "True", "if", "lambda", "a..b", ".", "..", "a.1", "a..b + 1", "1.a", "a.if", "min", "floordiv", "a[0]",
    "f(x)", "2**99999", "9223372036854775807*a", "a*99999999999999999999", "18446744073709551616",
    "a//0", "a b", "\n", "é",
    "(" * 2000 + "a" + ")" * 2000, "a" * 3000,
]  # fmt: skip


def model_of(node, shape, *constants):
    initializers = [numpy_helper.from_array(np.array(array), f"c{i}") for i, array in enumerate(constants)]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    names = ["x", *(tensor.name for tensor in initializers)]
    made = helper.make_node(node, names, ["y"], name="the_node")
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([made], "g", inputs, [output], initializer=initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name[:24]))
def test_any_text_names_a_dim(name):
    module, _ = import_model(model_of("Relu", [name, 2]))
    assert "relax.relu" in str(module)


@pytest.mark.parametrize("name", ["?", "-1", "None", "none", "unk", "UNKNOWN", "null", "", " ", "*"])
def test_what_exporters_write_for_no_name_is_no_name(name):
    """Two dims of one such text are two dims."""
    model = model_of("MatMul", [name, 4])
    model.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [4, name]))
    model.graph.node[0].input.append("z")
    f = mirlo.compile(model)
    x, z = np.ones((2, 4), np.float32), np.ones((4, 3), np.float32)
    np.testing.assert_array_equal(f(x, z), x @ z)


@pytest.mark.parametrize("size", [-1, -2, -(2**63)])
def test_a_negative_size_is_unknown(size):
    """Two dims of such a size are two dims, and a session shows them as dims without a name."""
    model = model_of("MatMul", [size, 4])
    model.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [4, size]))
    model.graph.node[0].input.append("z")
    x, z = np.ones((2, 4), np.float32), np.ones((4, 3), np.float32)
    session = InferenceSession(model.SerializeToString())
    assert [port.shape for port in session.get_inputs()] == [[None, 4], [4, None]]
    np.testing.assert_array_equal(session.run(None, {"x": x, "z": z})[0], x @ z)


def test_a_dim_named_for_a_keyword_runs():
    executable = mirlo.compile(model_of("Relu", ["None", 2]), cache=False, jobs=1)
    assert executable.run({"x": -np.ones((3, 2), np.float32)})["y"].shape == (3, 2)


def test_dims_named_like_symbols_of_the_import():
    model = model_of("NonZero", ["n"])
    model.graph.output[0].CopyFrom(helper.make_empty_tensor_value_info("y"))
    names = [f"y.s{i}" for i in range(1200)]
    model.graph.input.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, [name]) for name in names)
    module, _ = import_model(model)
    assert "y.s1200" in str(module)


@pytest.mark.parametrize("shape", [[2**32, 2**32], [2**21] * 3, [2**62], [2**40, "n", 2**40]])
def test_an_input_that_no_memory_holds_is_refused(shape):
    with pytest.raises(OnnxImportError, match=r"input 'x': .*beyond any memory"):
        import_model(model_of("Relu", shape))


@pytest.mark.parametrize(
    ("node", "shape", "constants"),
    [
        ("Reshape", [4], [[2**40, 2**40]]),
        ("Expand", [1], [[2**31, 2**31]]),
        ("Tile", [4, 4], [[2**31, 2**33]]),
    ],
)
def test_a_result_that_no_memory_holds_is_refused_by_node(node, shape, constants):
    with pytest.raises(OnnxImportError, match=r"node 'the_node' .*(beyond any memory|elements)"):
        import_model(model_of(node, shape, *constants))


@pytest.mark.parametrize("attributes", [{}, {"strides": [2]}, {"ceil_mode": 1, "strides": [2]}], ids=str)
@pytest.mark.parametrize("pool", ["MaxPool", "AveragePool", "LpPool"])
def test_a_window_wider_than_a_dim_of_1(pool, attributes):
    """ONNX Runtime's sizes of pools are divisions towards zero, so that one window remains."""
    onnxruntime = pytest.importorskip("onnxruntime")
    model = model_of(pool, [1, 2, 1])
    model.graph.node[0].attribute.extend(
        helper.make_attribute(name, value) for name, value in {"kernel_shape": [2], **attributes}.items()
    )
    x = np.array([[[3.0], [-4.0]]], np.float32)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    np.testing.assert_array_equal(mirlo.compile(model, cache=False)(x), expected)
