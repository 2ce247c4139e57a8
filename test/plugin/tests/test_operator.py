"""An operator of one class takes part in everything: nothing else in this package names it."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.extend.ops import compute, elementwise
from mirlo.extend.rules import LEGALIZE
from mirlo.passes.byoc.graph import BlockGraph
from mirlo.passes.byoc.helpers import activations
from mirlo.passes.byoc.read_external import node_of
from mirlo.passes.byoc.work import flops_of
from mirlo.testing import after_passes, runs_as_numpy
from mirlo.tools.cli import main

MODEL = """
func.func @main(%x: tensor<4x9xf32> {relax.name = "x"}) -> (tensor<4x9xf32> {relax.name = "y"}) {
  %0 = "npu.tanh_shrink"(%x) {scale = 5.000000e-01 : f64} : (tensor<4x9xf32>) -> tensor<4x9xf32>
  return %0 : tensor<4x9xf32>
}"""


def model_of(opset=1):
    node = helper.make_node("TanhShrink", ["x"], ["h"], domain="com.npu", factor=0.25)
    nodes = [node, helper.make_node("Relu", ["h"], ["y"])]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [5, 7]) for name in "xy"]
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("com.npu", opset)]
    return helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:]), opset_imports=imports, ir_version=9)


def test_it_is_computed():
    runs_as_numpy(MODEL, lambda x: x - 0.5 * np.tanh(x))


def test_it_is_imported():
    x = np.random.default_rng(0).standard_normal((5, 7), np.float32)
    np.testing.assert_allclose(mirlo.compile(model_of())(x), np.maximum(x - 0.25 * np.tanh(x), 0), atol=1e-6)


def test_it_is_imported_from_pytorch():
    torch = pytest.importorskip("torch")
    if not hasattr(torch.ops.npu, "tanh_shrink"):
        torch.library.define("npu::tanh_shrink", "(Tensor x, float scale=1.0) -> Tensor")
        torch.library.register_fake("npu::tanh_shrink", lambda x, scale=1.0: torch.empty_like(x))

    class Shrink(torch.nn.Module):
        def forward(self, x):
            return torch.relu(torch.ops.npu.tanh_shrink(x, 0.25))

    x = np.random.default_rng(0).standard_normal((5, 7), np.float32)
    found = mirlo.compile(Shrink().eval(), args=(torch.from_numpy(x),), cache=False)(torch.from_numpy(x))
    np.testing.assert_allclose(found, np.maximum(x - 0.25 * np.tanh(x), 0), atol=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        'stablehlo.composite "npu.tanh_shrink" %x {composite_attributes = {scale = 0.25 : f64}, decomposition = @other}'
        " : (tensor<5x7xf32>) -> tensor<5x7xf32>",
        "stablehlo.custom_call @npu.tanh_shrink(%x) {backend_config = {scale = 0.25 : f64}, api_version = 4 : i32}"
        " : (tensor<5x7xf32>) -> tensor<5x7xf32>",
    ],
)
def test_it_is_imported_from_stablehlo(call, tmp_path):
    path = tmp_path / "model.mlir"
    path.write_text(
        f"func.func @main(%x: tensor<5x7xf32>) -> tensor<5x7xf32> {{\n%0 = {call}\nreturn %0 : tensor<5x7xf32>\n}}\n"
        "func.func private @other(%x: tensor<5x7xf32>) -> tensor<5x7xf32> { return %x : tensor<5x7xf32> }"
    )
    x = np.random.default_rng(0).standard_normal((5, 7), np.float32)
    np.testing.assert_allclose(mirlo.compile(path, cache=False)(x), x - 0.25 * np.tanh(x), atol=1e-6)
    path.write_text(path.read_text().replace("scale =", "slope ="))
    with pytest.raises(
        mirlo.MirloError, match="has the attribute 'slope', which is not one of 'npu.tanh_shrink'; those are: scale"
    ):
        mirlo.compile(path, cache=False)


def test_it_is_folded():
    text = MODEL.replace('(%x: tensor<4x9xf32> {relax.name = "x"})', "()").replace(
        "%0 =", '%x = "relax.constant"() {value = dense<2.0> : tensor<4x9xf32>} : () -> tensor<4x9xf32>\n  %0 ='
    )
    assert '"npu.' not in after_passes(text, "fold-constant")
    runs_as_numpy(text, lambda: np.full((4, 9), 2 - 0.5 * np.tanh(2), np.float32))


def test_a_layout_sinks_through_it():
    text = """
func.func @main(%x: tensor<1x2x3x4xf32>) -> tensor<1x3x4x2xf32> {
  %0 = "relax.permute"(%x) {axes = array<i64: 0, 2, 3, 1>, relax.layout} : (tensor<1x2x3x4xf32>) -> tensor<1x3x4x2xf32>
  %1 = "npu.tanh_shrink"(%0) {scale = 5.000000e-01 : f64} : (tensor<1x3x4x2xf32>) -> tensor<1x3x4x2xf32>
  return %1 : tensor<1x3x4x2xf32>
}"""
    made = after_passes(text, "convert-layout")
    assert made.index("npu.tanh_shrink") < made.index("relax.permute") and "scale = 5.0" in made


def test_it_follows_low_precision():
    text = """
func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = "relax.matmul"(%x, %x) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = "npu.tanh_shrink"(%0) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = "relax.matmul"(%1, %x) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %2 : tensor<8x8xf32>
}"""
    made = after_passes(text, "to-mixed-precision{dtype=bf16}")
    shrunk = made[made.index("npu.tanh_shrink") :]
    assert made.count("relax.matmul") == 2 and "xbf16>" in shrunk.split("relax.matmul")[0]


def test_a_view_sinks_through_it_and_it_is_an_activation():
    text = """
func.func @main(%x: tensor<6x4xf32>) -> tensor<1x6x4xf32> {
  %0 = "relax.exp"(%x) : (tensor<6x4xf32>) -> tensor<6x4xf32>
  %1 = "relax.reshape"(%0) {shape = [1, 6, 4]} : (tensor<6x4xf32>) -> tensor<1x6x4xf32>
  %2 = "npu.tanh_shrink"(%1) : (tensor<1x6x4xf32>) -> tensor<1x6x4xf32>
  return %2 : tensor<1x6x4xf32>
}"""
    made = after_passes(text, "simplify")
    assert made.index("npu.tanh_shrink") < made.index("relax.reshape")
    assert "npu.tanh_shrink" in activations()


def test_what_it_requires_of_dynamic_sizes_is_checked_in_the_call():
    text = """
func.func @main(%x: tensor<1x?x9x2xf32, #relax.dims<[1, "h", 9, 2]>>, %w: tensor<4x3x3x2xf32>)
    -> tensor<1x?x7x4xf32, #relax.dims<[1, "h - 2", 7, 4]>> {
  %0 = "npu.conv"(%x, %w) : (tensor<1x?x9x2xf32, #relax.dims<[1, "h", 9, 2]>>, tensor<4x3x3x2xf32>)
    -> tensor<1x?x7x4xf32, #relax.dims<[1, "h - 2", 7, 4]>>
  return %0 : tensor<1x?x7x4xf32, #relax.dims<[1, "h - 2", 7, 4]>>
}"""
    made = after_passes(text, "require-dims")
    assert made.count("relax.require_dims") == 1 and 'bounds = ["h"], dims = [3]' in made
    assert "npu.conv: the kernel f32[4, 3, 3, 2] does not fit the image f32[1, h, 9, 2]" in made


def test_it_has_a_cost():
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(MODEL)
        (node, _) = BlockGraph(module.body.operations[0].entry_block).nodes
        assert flops_of(node) == 6 * 4 * 9


def test_it_is_dead_where_nothing_reads_it():
    text = MODEL.replace("return %0", "return %x")
    assert "npu." not in after_passes(text, "remove-dead")


def test_it_is_exported():
    """The export writes the node; a provider that has no such operator declines it, and compiled code computes it."""
    export = pytest.importorskip("mirlo_onnxruntime.export.graph", reason="pip install mirlo-onnxruntime")
    export_node = pytest.importorskip("mirlo_onnxruntime.model").export_node
    graph = export.ExportGraph()
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(MODEL)
        operation = module.body.operations[0].entry_block.operations[0]
        assert export_node(graph, node_of(operation)) is None
    assert [(n.op_type, n.domain, n.attribute[0].name) for n in graph.nodes] == [("TanhShrink", "com.npu", "factor")]
    assert graph.domains == {"com.npu": 1}
    runs_as_numpy(MODEL, lambda x: x - 0.5 * np.tanh(x), target="onnx,llvm")


def wrong(op, b):
    return elementwise(op, b, [op.x], lambda x: x - 0.6 * compute.tanh(x))


@pytest.mark.parametrize("rules", [(), (wrong,)])
def test_check_target_compares_it_with_its_meaning(rules, capsys):
    for rule in rules:
        LEGALIZE.add("npu.tanh_shrink", "llvm", rule)
    try:
        assert main(["check-target", "llvm", "--operator", "npu.tanh_shrink"]) == len(rules)
        assert ("WRONG" if rules else "ok") in capsys.readouterr().out
    finally:
        LEGALIZE._rules.pop(("npu.tanh_shrink", "llvm"), None)


def test_it_is_fuzzed():
    from mirlo.tools.fuzz.differential import RIGHT, judge
    from mirlo.tools.fuzz.graphs import random_graph

    seeds = [seed for seed in range(200) if "TanhShrink" in random_graph(seed).operators][:3]
    assert len(seeds) == 3
    for seed in seeds:
        assert judge(seed).state == RIGHT
