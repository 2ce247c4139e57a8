"""onnxruntime's subpackages in Python: a model is optimized for transformers, quantized, and its shapes inferred."""

import importlib
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from inputs import tell
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic, quantize_static
from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference
from onnxruntime.transformers.optimizer import optimize_model

SUBPACKAGES = ("quantization", "tools", "transformers")
random = np.random.default_rng(0)


class Samples(CalibrationDataReader):
    """Rows that quantization measures."""

    def __init__(self) -> None:
        self.rows = iter([{"x": random.normal(size=(4, 16)).astype(np.float32)} for _ in range(4)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next rows."""
        return next(self.rows, None)


def results(path: object) -> np.ndarray:
    """Return what a model computes."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.linspace(-1, 1, 64, dtype=np.float32).reshape(4, 16)})[0]


def write_model(path: Path) -> None:
    """Write two products with the error function between them."""
    weights = {
        "a": random.normal(size=(16, 32)),
        "b": random.normal(size=(32, 8)),
        "root": 2**0.5,
        "one": 1.0,
        "half": 0.5,
    }
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"]), helper.make_node("Div", ["p", "root"], ["q"]),
        helper.make_node("Erf", ["q"], ["r"]), helper.make_node("Add", ["r", "one"], ["s"]),
        helper.make_node("Mul", ["p", "s"], ["t"]), helper.make_node("Mul", ["t", "half"], ["u"]),
        helper.make_node("MatMul", ["u", "b"], ["y"]),
    ]  # fmt: skip
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", size]) for n, size in (("x", 16), ("y", 8)))
    constants = [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


with tempfile.TemporaryDirectory() as folder:
    model, dynamic, static, fused = (Path(folder) / f"{name}.onnx" for name in ("model", "dynamic", "static", "fused"))
    write_model(model)
    quantize_dynamic(model, dynamic, weight_type=QuantType.QInt8)
    quantize_static(model, static, Samples())
    optimized = optimize_model(str(model), model_type="bert", num_heads=2, hidden_size=16, opt_level=0)
    optimized.save_model_to_file(str(fused))
    quantized = onnx.load(static)
    shapes = SymbolicShapeInference.infer_shapes(onnx.load(model), auto_merge=True)
    tell(
        plain=results(model), dynamic=results(dynamic), fused=results(fused),
        quantized=[node.op_type for node in quantized.graph.node],
        scales=[
            numpy_helper.to_array(each).tolist() for each in quantized.graph.initializer if each.name.endswith("_scale")
        ],
        operators=sorted({node.op_type for node in optimized.model.graph.node}),
        shapes=[value.name for value in shapes.graph.value_info],
        modules=[importlib.import_module(f"onnxruntime.{name}").__name__ for name in SUBPACKAGES],
    )  # fmt: skip
