"""What models become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx_models import BOOL, F32, I64, check, make_model, node

from mirlo.frontends.onnx import import_model


def test_names_constants_and_weights(imported: Any) -> None:
    model = make_model(
        [node("Gemm", "x w b", "h", transB=1), node("Mul", "h k", "y")],
        {"x": (F32, [2, 8])},
        ["y"],
        {"w": np.ones((5, 8), np.float32), "b": np.zeros(5, np.float32), "k": np.float32(2)},
    )
    check(
        imported(model),
        'func.func @main(%arg0: tensor<2x8xf32> {relax.name = "x"}) -> (tensor<2x5xf32> {relax.name = "y"})',
        '"relax.constant"() {param = "w"} : () -> tensor<5x8xf32>',
        '"relax.matmul"(%arg0, %0) {transpose_rhs = true}',
        '"relax.constant"() {value = dense<0.000000e+00> : tensor<5xf32>}',
        '"relax.add"',
        "dense<2.000000e+00> : tensor<f32>",
        '"relax.multiply"',
        "return",
    )


def test_location_is_the_node_in_the_file(context: Any, tmp_path: Path) -> None:
    model = make_model(
        [helper.make_node("Relu", ["x"], ["h"], name="first"), node("Tanh", "h", "y")], {"x": (F32, [3])}, ["y"]
    )
    path = tmp_path / "net.onnx"
    onnx.save(model, path)
    module, _ = import_model(path, context=context)
    text = module.operation.get_asm(enable_debug_info=True)
    check(text, f'loc("{path}":1:0)', 'loc("first"(', 'loc("Tanh_1"(')


def test_symbols(imported: Any) -> None:
    """Any text may name a dim; unnamed dims get a name."""
    model = make_model(
        [node("Add", "a b", "y"), node("Relu", "c", "z")],
        {"a": (F32, ["n m", 4]), "b": (F32, ["n m", 4]), "c": (F32, ["2*n + 1", None])},
        ["y", "z"],
    )
    check(
        imported(model),
        '%arg0: tensor<?x4xf32, #relax.dims<["n_m", 4]>>',
        '%arg1: tensor<?x4xf32, #relax.dims<["n_m", 4]>>',
        '%arg2: tensor<?x?xf32, #relax.dims<["2*n + 1", "c_dim1"]>>',
    )


def test_shapes_fix_symbols_everywhere(imported: Any) -> None:
    model = make_model([node("Add", "a b", "y")], {"a": (F32, ["n", "m"]), "b": (F32, ["n", "m"])}, ["y"])
    text = imported(model, shapes={"a": [2, "seq"]})
    check(text, '%arg0: tensor<2x?xf32, #relax.dims<[2, "seq"]>>', '%arg1: tensor<2x?xf32, #relax.dims<[2, "seq"]>>')


def test_shape_arithmetic_becomes_dims(imported: Any) -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n"),
        node("Unsqueeze", "n axis", "n1"),
        node("Concat", "n1 rest", "target", axis=0),
        node("Reshape", "x target", "y"),
    ]
    constants = {"zero": np.int64(0), "axis": np.array([0]), "rest": np.array([-1, 4, 3])}
    model = make_model(nodes, {"x": (F32, ["batch", "seq", 12])}, ["y"], constants)
    text = imported(model)
    check(text, '"relax.reshape"(%arg0) {shape = ["batch", "seq", 4, 3]}')
    assert "shape_of" not in text and "constant" not in text


def test_symbolic_shape_as_data_is_computed(imported: Any) -> None:
    nodes = [node("Shape", "x", "s"), node("Gather", "s one", "n"), node("Mul", "n n", "y")]
    model = make_model(nodes, {"x": (F32, [2, "n"])}, ["y"], {"one": np.int64(1)})
    check(imported(model), '"relax.shape_of"', '"relax.gather"', '"relax.multiply"')


def test_expand_with_minus_one_pattern(imported: Any) -> None:
    """Exporters write `where(shape == -1, ones, shape)` for a target with dims to keep."""
    nodes = [
        node("Shape", "x", "s"),
        node("Equal", "s minus", "is_minus"),
        node("Where", "is_minus ones s", "target"),
        node("Expand", "y0 target", "y"),
    ]
    constants = {"minus": np.array([-1, -1]), "ones": np.array([1, 1])}
    model = make_model(nodes, {"x": (F32, ["n", 4]), "y0": (F32, [1, 4])}, ["y"], constants)
    check(imported(model), '"relax.expand"(%arg1) {shape = ["n", 4]}')


def test_constant_if_takes_the_branch(imported: Any) -> None:
    then = helper.make_graph([node("Relu", "x", "t")], "then", [], [helper.make_tensor_value_info("t", F32, None)])
    other = helper.make_graph([node("Tanh", "x", "e")], "else", [], [helper.make_tensor_value_info("e", F32, None)])
    model = make_model(
        [node("If", "c", "y", then_branch=then, else_branch=other)], {"x": (F32, [2])}, ["y"], {"c": np.array(False)}
    )
    text = imported(model)
    check(text, '"relax.tanh"')
    assert "relu" not in text and "scf.if" not in text


def test_if_at_run_time(imported: Any) -> None:
    """Both branches use one weight, which is made once, where both see it."""
    then = helper.make_graph([node("Add", "x w", "t")], "then", [], [helper.make_tensor_value_info("t", F32, None)])
    other = helper.make_graph([node("Mul", "x w", "e")], "else", [], [helper.make_tensor_value_info("e", F32, None)])
    model = make_model(
        [node("If", "c", "y", then_branch=then, else_branch=other), node("Sub", "y w", "z")],
        {"x": (F32, [20]), "c": (BOOL, [])},
        ["z"],
        {"w": np.ones(20, np.float32)},
    )
    text = imported(model)
    check(text, '{param = "w"}', "scf.if", '"relax.add"', "} else {", '"relax.multiply"', '"relax.subtract"')
    assert text.count("relax.constant") == 1


def test_functions_are_expanded(imported: Any) -> None:
    body = helper.make_function(
        "my", "Twice", ["a"], ["c"], [node("Add", "a a", "b"), node("LeakyRelu", "b", "c")],
        [helper.make_opsetid("", 18)], ["alpha"],
    )  # fmt: skip
    body.node[1].attribute.append(onnx.AttributeProto(name="alpha", type=1, ref_attr_name="alpha"))
    call = helper.make_node("Twice", ["x"], ["y"], domain="my", alpha=0.5)
    model = make_model([call], {"x": (F32, [2])}, ["y"], functions=[body])
    check(imported(model), '"relax.add"(%arg0, %arg0)', '"relax.leaky_relu"(%0) {alpha = 5.000000e-01 : f64}')


def test_schema_function_without_converter(imported: Any) -> None:
    model = make_model([node("AffineGrid", "theta size", "y")], {"theta": (F32, [2, 2, 3])}, ["y"],
                       {"size": np.array([2, 1, 2, 2])}, opset=20)  # fmt: skip
    check(imported(model), '"relax.matmul"')


def test_layer_norm_with_statistics_uses_the_function_body(imported: Any) -> None:
    model = make_model(
        [node("LayerNormalization", "x s", "y mean")], {"x": (F32, [2, 4]), "s": (F32, [4])}, ["y", "mean"]
    )
    text = imported(model)
    check(text, '"relax.reduce_mean"')
    assert "layer_norm" not in text


def test_unsorted_nodes_and_dead_nodes(imported: Any) -> None:
    model = make_model(
        [node("Tanh", "h", "y"), node("Relu", "x", "h"), node("Exp", "x", "unused")], {"x": (F32, [2])}, ["y"]
    )
    text = imported(model)
    check(text, '"relax.relu"', '"relax.tanh"')
    assert "exp" not in text


def test_output_may_be_an_input_or_a_constant(imported: Any) -> None:
    model = make_model([node("Identity", "x", "y")], {"x": (F32, [2])}, ["y", "k"], {"k": np.array([1, 2])})
    check(imported(model), 'relax.name = "y"', "return %arg0")


def test_old_and_new_forms_give_the_same_ir(imported: Any) -> None:
    x = {"x": (F32, [2, 3, 4])}
    old = make_model([node("ReduceSum", "x", "y", axes=[1])], x, ["y"], opset=11)
    new = make_model([node("ReduceSum", "x a", "y")], x, ["y"], {"a": np.array([1])}, opset=13)
    assert imported(old) == imported(new)
    old = make_model([node("Slice", "x", "y", starts=[1], ends=[9], axes=[2])], x, ["y"], opset=9)
    bounds = {"s": np.array([1]), "e": np.array([9]), "a": np.array([2])}
    new = make_model([node("Slice", "x s e a", "y")], x, ["y"], bounds)
    assert imported(old) == imported(new)


def test_softmax_before_opset_13_flattens(imported: Any) -> None:
    model = make_model([node("Softmax", "x", "y")], {"x": (F32, [2, 3, 4])}, ["y"], opset=11)
    check(imported(model), '"relax.reshape"(%arg0) {shape = [2, 12]}', '"relax.softmax"', "{shape = [2, 3, 4]}")


def test_auto_pad(imported: Any) -> None:
    model = make_model(
        [node("Conv", "x w", "y", auto_pad="SAME_LOWER", strides=[2, 2])],
        {"x": (F32, [1, 3, 7, 8])}, ["y"], {"w": np.ones((4, 3, 3, 3), np.float32)},
    )  # fmt: skip
    check(imported(model), "padding = array<i64: 1, 1, 1, 0>", "tensor<1x4x4x4xf32>")


def test_input_named_like_an_initializer_is_a_constant(imported: Any) -> None:
    model = make_model(
        [node("Add", "x w", "y")], {"x": (F32, [2]), "w": (F32, [2])}, ["y"], {"w": np.ones(2, np.float32)}
    )
    text = imported(model)
    assert "%arg1" not in text


def test_unused_int_input_stays(imported: Any) -> None:
    model = make_model([node("Relu", "x", "y")], {"x": (F32, [2]), "ids": (I64, [3])}, ["y"])
    check(imported(model), '%arg1: tensor<3xi64> {relax.name = "ids"}')
