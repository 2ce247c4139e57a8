"""insightface: features of faces, and the points of one, by networks of its forms with random weights."""

import tempfile
from pathlib import Path

import numpy as np
import onnx
from inputs import scene, tell
from insightface.app.common import Face
from insightface.model_zoo import get_model
from onnx import TensorProto, helper, numpy_helper


def write_model(path: Path, size: int, results: int) -> None:
    """Write a network of two convolutions that computes `results` numbers of an image."""
    random = np.random.default_rng(size)
    weights = {
        "a": random.normal(size=(8, 3, 3, 3)) * 0.2,
        "b": random.normal(size=(16, 8, 3, 3)) * 0.1,
        "w": random.normal(size=(16, results)) * 0.5,
    }
    nodes = [
        helper.make_node("Conv", ["image", "a"], ["c"], strides=[2, 2], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Conv", ["d", "b"], ["e"], strides=[2, 2], pads=[1] * 4),
        helper.make_node("Sigmoid", ["e"], ["f"]),
        helper.make_node("GlobalAveragePool", ["f"], ["g"]),
        helper.make_node("Flatten", ["g"], ["h"]),
        helper.make_node("MatMul", ["h", "w"], ["result"]),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, size, size])
    result = helper.make_tensor_value_info("result", TensorProto.FLOAT, ["n", results])
    constants = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "face", [image], [result], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


image = scene()
eyes = np.array([[100, 90], [140, 92], [120, 110], [104, 130], [138, 131]], np.float32)
with tempfile.TemporaryDirectory() as folder:
    for name, size, results in (("recognition", 112, 64), ("landmark", 192, 212)):
        write_model(Path(folder) / f"{name}.onnx", size, results)
    recognition = get_model(f"{folder}/recognition.onnx", providers=["CPUExecutionProvider"])
    landmark = get_model(f"{folder}/landmark.onnx", providers=["CPUExecutionProvider"])
    for model in (recognition, landmark):
        model.prepare(ctx_id=-1)
    face = Face(bbox=np.array([80, 60, 160, 140], np.float32), kps=eyes, det_score=0.9)
    first = recognition.get(image, face)
    second = recognition.get(image[:, ::-1].copy(), face)
    points = landmark.get(image, face)
    batch = recognition.get_feat([image[:112, :112], image[60:172, 80:192]])
    tell(
        first=first, batch=batch, points=points, alike=float(recognition.compute_sim(first, second)),
        kinds=[recognition.taskname, landmark.taskname],
    )  # fmt: skip
