"""What models on GPUs cannot do is an error that says so."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

import mirlo
from mirlo import R

TARGETS = ["spirv", "nvvm{chip=sm_80}"]


@pytest.mark.parametrize("target", TARGETS)
def test_functions_of_the_run_time(target: str) -> None:
    @mirlo.script
    def model(x: R.Tensor[(4,), R.f32]):
        return R.call_dps_packed("test.gpu_double", x, out=R.Tensor[(4,), R.f32])

    with pytest.raises(mirlo.MirloError, match="is a function of the run time, which models on GPUs cannot call"):
        mirlo.compile(model, target=target, cache=False)


@pytest.mark.parametrize("target", TARGETS)
def test_decisions(target: str) -> None:
    def branch(name: str, factor: float) -> onnx.GraphProto:
        value = helper.make_node("Constant", [], [f"{name}_c"], value_float=factor)
        made = helper.make_node("Mul", ["x", f"{name}_c"], [f"{name}_y"])
        output = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, [4])
        return helper.make_graph([value, made], name, [], [output])

    node = helper.make_node("If", ["which"], ["y"], then_branch=branch("a", 2.0), else_branch=branch("b", 3.0))
    inputs = [
        helper.make_tensor_value_info("which", TensorProto.BOOL, []),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [4]),
    ]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])])
    with pytest.raises(mirlo.MirloError, match="models on GPUs cannot decide or compute on the host yet"):
        mirlo.compile(helper.make_model(graph), target=target, cache=False)
