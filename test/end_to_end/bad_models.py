"""Files that no model should be: one of each kind of mistake, for the tests of errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def write_all(folder: Path) -> None:
    """Write good and bad files to a folder."""
    good = _matmul()
    onnx.save(good, folder / "good.onnx")
    _write_damaged(folder, good.SerializeToString())
    for name, make in _MODELS.items():
        onnx.save(make(), folder / f"{name}.onnx")
    external = folder / "external.onnx"
    onnx.save(_matmul(), external, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (folder / "weights.bin").unlink()
    for name, text in _IR.items():
        (folder / f"{name}.mlir").write_text(text)
    (folder / "broken_plugin.py").write_text("1 / 0")
    _write_arrays(folder)


def _write_damaged(folder: Path, good: bytes) -> None:
    (folder / "truncated.onnx").write_bytes(good[: len(good) // 2])
    (folder / "empty.onnx").write_bytes(b"")
    (folder / "text.onnx").write_text("not a model at all, this is a letter")
    (folder / "noise.onnx").write_bytes(np.random.default_rng(0).bytes(5000))
    (folder / "checkpoint.onnx").write_bytes(b"PK\x03\x04" + bytes(100))


def _write_arrays(folder: Path) -> None:
    np.save(folder / "right.npy", np.ones((4, 8), np.float32))
    np.save(folder / "doubles.npy", np.ones((4, 8)))
    np.save(folder / "wide.npy", np.ones((4, 9), np.float32))
    np.save(folder / "objects.npy", np.array([{}], object), allow_pickle=True)
    (folder / "truncated.npy").write_bytes((folder / "right.npy").read_bytes()[:140])
    (folder / "header.npy").write_bytes((folder / "right.npy").read_bytes().replace(b"), }", b", ( ("))


def _value(name: str, shape: list[int | str], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _model(nodes: list[onnx.NodeProto], x: onnx.ValueInfoProto, y: onnx.ValueInfoProto) -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.ones((8, 16), np.float32), "w")
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.example", 1)]
    return helper.make_model(helper.make_graph(nodes, "g", [x], [y], [weight]), opset_imports=opsets, ir_version=9)


def _matmul(rows: int | str = 4, width: int = 8, kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="fc")
    return _model([node], _value("x", [rows, width]), _value("y", [rows, 16], kind))


def _relu_of(kind: int) -> onnx.ModelProto:
    node = helper.make_node("Relu", ["x"], ["y"], name="act")
    return _model([node], _value("x", [4], kind), _value("y", [4], kind))


def _unknown_operators() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Mystery", ["x"], ["a"], name="first", domain="com.example"),
        helper.make_node("Reluu", ["a"], ["b"], name="second"),
        helper.make_node("Reluu", ["b"], ["y"], name="third"),
    ]
    return _model(nodes, _value("x", [4]), _value("y", [4]))


_MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "unknown": _unknown_operators,
    "shapes": lambda: _matmul(width=9),
    "declared": lambda: _matmul(kind=TensorProto.DOUBLE),
    "complex": lambda: _relu_of(TensorProto.COMPLEX64),
    "open": lambda: _matmul(rows="batch"),
}

_IR = {
    "syntax": """\
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.relu"(%y) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
""",
    "operator": """\
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.reluu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
""",
    "wrong": """\
func.func @main(%x: tensor<4xf32>) -> tensor<5xf32> {
  %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}
""",
    "facts": """\
func.func @main(%x: tensor<4xf32> {relax.name = 1}) -> (tensor<4xf32> {relax.nane = "y"}) {
  %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
""",
    "weights": """\
module attributes {relax.params = ["nowhere.params"]} {
}
""",
}
