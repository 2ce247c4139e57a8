"""No operator whose operands are constants is computed in calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from imported_nodes import cases
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_models import F32, make_model, node

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.op import DialectOp, class_of, operand, result
from mirlo.dialects.core.surgery import blocks
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.base import OBJECT
from mirlo.extend.ops import register_dialect
from mirlo.frontends.onnx import import_model
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.runtime.errors import MirloError
from mirlo.targets.llvm.pipeline import compile_pipeline


def constant_model(case: Any) -> onnx.ModelProto | None:
    """Return a case of ONNX's suite with all of its inputs as constants; None if one is no tensor."""
    model = onnx.ModelProto.FromString(case.model.SerializeToString())
    for declared, value in zip(model.graph.input, case.data_sets[0][0], strict=False):
        if not isinstance(value, onnx.TensorProto):
            array = value if isinstance(value, np.ndarray | np.generic) else None
            if array is None or array.dtype.kind not in "biufc":
                return None
            value = numpy_helper.from_array(np.asarray(array))
        if value.data_type == onnx.TensorProto.STRING:
            return None
        tensor = onnx.TensorProto.FromString(value.SerializeToString())
        tensor.name = declared.name
        model.graph.initializer.append(tensor)
    del model.graph.input[:]
    return model


def graph_passes() -> str:
    """Return the passes of target `llvm` on the graph."""
    steps = [str(step) for step in Pipeline(compile_pipeline()).steps]
    return ",".join(steps[: steps.index("legalize{target=llvm}")])


def computed_operators(module: ir.Module) -> Iterator[ir.Operation]:
    """Yield the operators that only constants are operands of."""
    constant = {"relax.constant"}
    for function in module.body.operations:
        for block in blocks(function):
            for operation in (each.operation for each in block.operations):
                if operation.name.startswith("relax.") and operation.name not in constant:
                    operands = [value.owner for value in operation.operands]
                    if all(isinstance(each, ir.Operation) and each.name in constant for each in operands):
                        yield operation


@pytest.mark.sample(0)
def test_the_suite_of_onnx() -> None:
    """One case of each operator, or list of operators."""
    passes, found, folded = graph_passes(), set(), 0
    first = {tuple(each.op_type for each in case.model.graph.node): case for case in reversed(cases())}
    for case in first.values():
        model = constant_model(case)
        if model is None:
            continue
        with make_context(), ir.Location.unknown():
            try:
                module, params = import_model(model)
            except MirloError:  # of an operator set that ONNX does not convert
                continue
            if OBJECT in str(module):  # strings and sequences, which parts of a program pass on
                continue
            Pipeline(passes).run(module, Session(params), verify_each=False)
            computed = {operation.name for operation in computed_operators(module)}
            folded += not computed
            found |= computed
    assert not found
    assert folded > 200


class Kernelless(DialectOp, name="kernelless", dialect=register_dialect("constants")):
    """An operator of no target."""

    x, output = operand(), result()
    infer = staticmethod(lambda x: x)


def test_an_operator_without_a_kernel() -> None:
    """It stays, and the pass reports why."""
    text = """func.func @main() -> tensor<2xf32> {
      %0 = "relax.constant"() {value = dense<3.0> : tensor<2xf32>} : () -> tensor<2xf32>
      %1 = "constants.kernelless"(%0) : (tensor<2xf32>) -> tensor<2xf32>
      return %1 : tensor<2xf32>
    }"""
    remarks: list[str] = []
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        session = Session(report=lambda severity, message, location: remarks.append(message))
        Pipeline("fold-constant{explain=true}").run(module, session)
        assert "constants.kernelless" in str(module)
    assert len(remarks) == 1
    assert "constants.kernelless" in remarks[0]
    assert "its kernel does not compile" in remarks[0]


K, N = 96, 4224
"""Weights that are more than 1 MiB larger as f32."""


def weights() -> dict[str, tuple[list[Any], dict[str, Any]]]:
    """Return forms of weights [K, N] named `w`: nodes and constants."""
    rng = np.random.default_rng(0)
    codes = rng.integers(-127, 128, (K, N)).astype(np.int8)
    columns = rng.uniform(0.005, 0.02, N).astype(np.float32)
    scale, point = np.float32(0.01), np.int8(3)
    real = (codes * scale).astype(np.float32)
    return {
        "tensor": ([node("DequantizeLinear", "q s", "w")], {"q": codes, "s": scale}),
        "tensor and zero point": ([node("DequantizeLinear", "q s z", "w")], {"q": codes, "s": scale, "z": point}),
        "columns": ([node("DequantizeLinear", "q s", "w", axis=1)], {"q": codes, "s": columns}),
        "columns and zero points": (
            [node("DequantizeLinear", "q s z", "w", axis=1)],
            {"q": codes, "s": columns, "z": rng.integers(-9, 9, N).astype(np.int8)},
        ),
        "unsigned": (
            [node("DequantizeLinear", "q s z", "w")], {"q": codes.view(np.uint8), "s": scale, "z": np.uint8(9)}
        ),
        "transposed": (
            [node("DequantizeLinear", "q s", "t", axis=0), node("Transpose", "t", "w", perm=[1, 0])],
            {"q": np.ascontiguousarray(codes.T), "s": columns},
        ),
        "rows": ([node("DequantizeLinear", "q s", "w", axis=0)], {"q": codes, "s": columns[:K]}),
        "quantized": (
            [node("QuantizeLinear", "f s z", "q"), node("DequantizeLinear", "q s z", "w")],
            {"f": real, "s": scale, "z": np.int8(0)},
        ),
        "cast and scaled": (
            [node("Cast", "q", "c", to=F32), node("Mul", "c s", "w")], {"q": codes, "s": columns}
        ),
        "cast, centred and scaled": (
            [node("Cast", "q", "c", to=F32), node("Sub", "c z", "d"), node("Mul", "s d", "w")],
            {"q": codes, "z": np.float32(3), "s": columns},
        ),
        "cast, centred by columns and scaled": (
            [node("Cast", "q", "c", to=F32), node("Sub", "c z", "d"), node("Mul", "d s", "w")],
            {"q": codes, "z": rng.integers(-9, 9, (1, N)).astype(np.float32), "s": scale},
        ),
        "expanded": (
            [node("Expand", "e n", "b"), node("Mul", "b s", "w")],
            {"e": real[:, :1], "n": np.array([K, N]), "s": columns},
        ),
    }  # fmt: skip


@pytest.mark.parametrize("target", ("llvm", "c"))
@pytest.mark.parametrize("rows", (1, 40))
@pytest.mark.parametrize("form", weights())
def test_weights_of_products(form: str, rows: int, target: str) -> None:
    """Products read constants, packed or folded, and give what ONNX's reference does."""
    nodes, constants = weights()[form]
    model = make_model([*nodes, node("MatMul", "x w", "y")], {"x": (F32, [rows, K])}, ["y"], constants, opset=21)
    x = np.random.default_rng(1).standard_normal((rows, K)).astype(np.float32)
    expected = ReferenceEvaluator(model).run(None, {"x": x})[0]
    executable = mirlo.compile(model, target=target, cache=False, jobs=1)
    np.testing.assert_allclose(executable(x), expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("form", [form for form in weights() if "cast" in form or form in ("tensor", "columns")])
def test_weights_that_stay_packed(form: str) -> None:
    """A product of one row reads bytes, however the model dequantizes them."""
    nodes, constants = weights()[form]
    model = make_model([*nodes, node("MatMul", "x w", "y")], {"x": (F32, [1, K])}, ["y"], constants, opset=21)
    executable = mirlo.compile(model, cache=False, jobs=1)
    assert executable.stored_weights.nbytes < 2 * K * N


def test_weights_of_convolutions() -> None:
    rng = np.random.default_rng(0)
    constants = {"q": rng.integers(-9, 9, (256, 160, 3, 3)).astype(np.int8), "s": np.float32(0.1)}
    nodes = [node("DequantizeLinear", "q s", "w"), node("Conv", "x w", "y", pads=[1] * 4)]
    model = make_model(nodes, {"x": (F32, [1, 160, 4, 4])}, ["y"], constants, opset=21)
    with make_context(), ir.Location.unknown():
        module, params = import_model(model)
        Pipeline(graph_passes()).run(module, Session(params))
        assert {class_of(op) for op in computed_operators(module)} <= {OPS["full"]}
        assert "relax.dequantize" not in str(module)


@pytest.mark.parametrize("operator", ("Conv", "RandomNormal", "Resize"))
def test_large_results_that_take_long(operator: str) -> None:
    """They are constants although only an elementwise operator reads them; repeated ones are not."""
    rng = np.random.default_rng(0)
    shape = [1, 48, 128, 128]  # more than 1 MiB larger than the operands
    constants = {
        "c": rng.standard_normal((1, 2, 128, 128)).astype(np.float32),
        "k": rng.standard_normal((48, 2, 3, 3)).astype(np.float32),
        "i": rng.standard_normal((1, 48, 32, 32)).astype(np.float32),
        "n": np.array(shape),
    }
    made = {
        "Conv": node("Conv", "c k", "b", pads=[1] * 4),
        "RandomNormal": node("RandomNormal", "", "b", shape=shape, seed=3.0),
        "Resize": node("Resize", "i _ _ n", "b", mode="linear"),
    }[operator]
    nodes = [made, node("Expand", "k1 n", "e"), node("Add", "x b", "a"), node("Add", "a e", "y")]
    constants["k1"] = rng.standard_normal((1, 48, 1, 1)).astype(np.float32)
    model = make_model(nodes, {"x": (F32, shape)}, ["y"], constants, opset=21)
    with make_context(), ir.Location.unknown():
        module, params = import_model(model)
        Pipeline(graph_passes()).run(module, Session(params))
        assert {each.name for each in computed_operators(module)} <= {"relax.expand"}
