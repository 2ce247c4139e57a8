"""Scripts at every stage of the compiler: the printed script parses to the same module."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from c_compiler import with_c
from onnx import TensorProto, helper, numpy_helper
from reduced_models import reduced

import mirlo
from mirlo.frontends.script.errors import ScriptError
from mirlo.testing import stages_round_trip

PRODUCT = """
func.func @main(%x: tensor<4x9xf32> {relax.name = "x"}, %w: tensor<9x8xf32> {relax.name = "w"})
    -> (tensor<4x8xf32> {relax.name = "y"}) {
  %0 = "relax.matmul"(%x, %w) : (tensor<4x9xf32>, tensor<9x8xf32>) -> tensor<4x8xf32>
  %1 = "relax.relu"(%0) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %2 = "relax.softmax"(%1) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %2 : tensor<4x8xf32>
}
"""
FUNCTIONS = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @twice(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.exp"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}
func.func private @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.add"(%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


def network(dim: Any) -> Any:
    random = np.random.default_rng(0)
    weights = {"w": random.standard_normal((8, 3, 3, 3)).astype(np.float32), "f": np.ones((8, 5), np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["p"], ["g"]),
        helper.make_node("Flatten", ["g"], ["h"]),
        helper.make_node("MatMul", ["h", "f"], ["m"]),
        helper.make_node("TopK", ["m", "k"], ["y", "i"]),
    ]
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    held.append(numpy_helper.from_array(np.array([2]), "k"))
    shown = [helper.make_tensor_value_info("y", 1, [dim, 2]), helper.make_tensor_value_info("i", 7, [dim, 2])]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [dim, 3, 8, 8])], shown, held
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize(
    ("model", "target"),
    [
        (PRODUCT, "llvm"), (PRODUCT, "onednn,llvm"), with_c(PRODUCT, "c,llvm"), (PRODUCT, "spirv"), (FUNCTIONS, "llvm"),
        (network(2), "llvm"), (network("batch"), "llvm"), (network(2), "onednn,llvm"), (network(2), "nvvm"),
    ],
    ids=lambda value: value if isinstance(value, str) and "\n" not in value else "",
)  # fmt: skip
def test_all_stages(model: Any, target: str) -> None:
    stages = stages_round_trip(model, target)
    assert stages[0] == "import" and len(stages) > 10


def test_all_stages_of_a_loop() -> None:
    """The plan of a loop has constants in memory, which functions name and MLIR text defines."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["again"]), helper.make_node("Neg", ["v"], ["u"])],
        "body",
        [value("i", TensorProto.INT64, []), value("c", TensorProto.BOOL, []), value("v", 1, [4, 8])],
        [value("again", TensorProto.BOOL, []), value("u", 1, [4, 8])],
    )
    loop = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
    inputs = [value("n", TensorProto.INT64, []), value("x", 1, [4, 8])]
    graph = helper.make_graph([loop], "g", inputs, [value("y", 1, [4, 8])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    assert len(stages_round_trip(model)) > 20


@pytest.mark.sample(0)
def test_all_stages_of_a_transformer() -> None:
    """One layer of a benchmark model."""
    assert len(stages_round_trip(reduced("bert_base"))) > 20


def test_a_graph_may_call_what_is_defined_after_it() -> None:
    text = str(mirlo.parse_script(
        """
class Module:
    @R.function
    def main(x: R.Tensor[(4,), "f32"]):
        return after(x)

    @R.function(private=True)
    def after(x: R.Tensor[(4,), "f32"]) -> R.Tensor[(4,), "f32"]:
        return R.exp(x)
"""
    ))  # fmt: skip
    assert text.index("@main") < text.index("call @after") < text.index("func private @after")


def test_text_that_calls_nothing_of_the_module() -> None:
    with pytest.raises(ScriptError, match="not valid IR: 'func.call' op 'nowhere' does not reference a valid function"):
        mirlo.parse_script(
            'class Module:\n    main = T.mlir("func.func @main() { call @nowhere() : () -> () return }")\n'
        )
