"""Models of operator sets that are older than all converters: ONNX's version converter brings them up."""

from __future__ import annotations

from typing import Any

from mirlo.frontends.onnx.errors import OnnxImportError


def modernized(proto: Any, opset: int, what: str) -> Any:
    """The model in a newer operator set."""
    from onnx import checker, shape_inference, version_converter

    try:
        checker.check_model(proto)
        made = version_converter.convert_version(proto, opset)
        if any(node.op_type == "PRelu" for node in made.graph.node):
            made = shape_inference.infer_shapes(made)
            _spread_slopes(made.graph)
        return made
    except Exception as error:  # the converter fails in many ways
        version = next(entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx"))
        raise OnnxImportError(
            f"{what}: the model uses operator set {version}, and ONNX's version converter cannot bring it to {opset}, "
            f"the oldest that is supported: {error}"
        ) from None


def _spread_slopes(graph: Any) -> None:
    """Up to operator set 6 a slope of PRelu was per channel, which the converter does not know: give it its axes."""
    from onnx import helper

    ranks = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info):
        if value.type.tensor_type.HasField("shape"):
            ranks[value.name] = len(value.type.tensor_type.shape.dim)
    nodes: list[Any] = []
    for node in graph.node:
        if node.op_type == "PRelu":
            data, slope = node.input
            if data not in ranks or slope not in ranks:
                raise ValueError(f"the rank of an input of PRelu '{node.name}' is not known")
            if ranks[slope] == 1 and ranks[data] > 2:
                spread = f"{slope}/spread/{len(nodes)}"
                axes = list(range(1, ranks[data] - 1))
                nodes.append(helper.make_node("Unsqueeze", [slope], [spread], name=spread, axes=axes))
                node.input[1] = spread
        nodes.append(node)
    made = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(made)
