"""The benchmark models as others compute them: their nodes as data, and ONNX files whose weights are made of seeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ..graphs import OPERATORS
from ..unit import KitError
from .folder import Folder


def write_graph(folder: Folder, name: str, file: Path, half: bool) -> dict[str, Any]:
    """Write the nodes of a model and its small constants; the facts of the unit's peer."""
    import onnx
    from onnx import numpy_helper

    from mirlo.tools.samples import GRAPHS, MARK

    files = {"file": f"models/{name}.json", "data": f"data/{name}-graph.npz", "onnx": f"models/{name}.onnx"}
    facts = {"name": "graph", "half": half, **files}
    if (folder.path / files["file"]).exists():
        return facts
    model = onnx.load(GRAPHS / f"{name}.onnx")
    weights: list[dict[str, Any]] = []
    arrays: dict[str, np.ndarray] = {}
    offset = 0
    for tensor in model.graph.initializer:
        if tensor.doc_string.startswith(MARK):
            shape = list(tensor.dims)
            weights.append({
                "name": tensor.name, "initializer": tensor.name, "seeded": json.loads(tensor.doc_string)["seeded"],
                "from": shape, "axes": list(range(len(shape))), "shape": shape,
            })  # fmt: skip
            offset = _outside(tensor, offset)
        else:
            arrays[f"w{len(weights)}"] = numpy_helper.to_array(tensor)
            weights.append({"name": tensor.name, "key": f"w{len(weights)}"})
    nodes = [_node(node) for node in model.graph.node]
    unknown = {node["op"] for node in nodes} - OPERATORS.keys()
    if unknown:
        raise KitError(f"{file}: no function for {', '.join(sorted(unknown))} (benchmarks/gpu/graphs.py)")
    held = {"nodes": nodes, "outputs": [output.name for output in model.graph.output], "weights": weights}
    (folder.path / files["file"]).write_text(json.dumps(held), encoding="utf-8")
    np.savez_compressed(folder.path / files["data"], **arrays)
    onnx.save(model, folder.path / files["onnx"])
    return facts


def _node(node: Any) -> dict[str, Any]:
    import onnx

    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    plain = {
        key: value.decode() if isinstance(value, bytes) else list(value) if isinstance(value, (list, tuple)) else value
        for key, value in attributes.items()
    }  # fmt: skip
    return {"op": node.op_type, "inputs": list(node.input), "outputs": list(node.output), "attributes": plain}


def _outside(tensor: Any, offset: int) -> int:
    """Mark a weight as external data; return the offset of the next one."""
    import onnx

    size = 4 * int(np.prod(tensor.dims))
    tensor.ClearField("raw_data")
    tensor.ClearField("doc_string")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "weights.bin"), ("offset", str(offset)), ("length", str(size))):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    return offset + size
