"""Models of older opsets than the converters support: upgraded by ONNX's version converter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mirlo.frontends.onnx.errors import OnnxImportError

if TYPE_CHECKING:
    import onnx


def modernized(proto: onnx.ModelProto, opset: int, what: str) -> onnx.ModelProto:
    """Return the model in a newer opset."""
    from onnx import checker, shape_inference

    try:
        checker.check_model(proto)
        result = _converted(proto, opset)
        if any(node.op_type == "PRelu" for node in result.graph.node):
            result = shape_inference.infer_shapes(result)
            _spread_slopes(result.graph)
        return result
    except Exception as error:  # the version converter raises many kinds of exceptions
        version = next(entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx"))
        raise OnnxImportError(
            f"{what}: the model uses operator set {version}, and ONNX's version converter cannot bring it to {opset}, "
            f"the oldest that is supported: {error}"
        ) from None


SIZES = (1009, 2003)
"""First numbers that stand for symbols; two runs must not differ in anything else."""


def _converted(proto: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Convert the model with numbers for symbols, which the version converter needs, and restore the symbols."""
    from onnx import version_converter

    dims = list(_dynamic_dims(proto))
    symbols = sorted({dim.dim_param for dim in dims if dim.dim_param})
    if not dims:
        return version_converter.convert_version(proto, opset)
    tried = []
    for first in SIZES:
        draft = type(proto).FromString(proto.SerializeToString())
        sizes = {name: first + i for i, name in enumerate(symbols)}
        for i, dim in enumerate(_dynamic_dims(draft), start=first + len(symbols)):
            dim.dim_value = sizes.get(dim.dim_param, i)
        tried.append(version_converter.convert_version(draft, opset))
    for converted in tried:
        declared = {value.name: value for value in (*proto.graph.input, *proto.graph.output)}
        for value in (*converted.graph.input, *converted.graph.output):
            if value.name in declared:
                value.CopyFrom(declared[value.name])
        del converted.graph.value_info[:]
    if tried[0].SerializeToString(deterministic=True) != tried[1].SerializeToString(deterministic=True):
        raise ValueError("what it makes depends on sizes of the inputs that are not numbers; fix their shapes")
    return tried[0]


def _dynamic_dims(proto: onnx.ModelProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    """Yield the dynamic dims of the inputs."""
    for value in proto.graph.input:
        if value.type.tensor_type.HasField("shape"):
            yield from (dim for dim in value.type.tensor_type.shape.dim if not dim.HasField("dim_value"))


def _spread_slopes(graph: onnx.GraphProto) -> None:
    """Add axes to PRelu's slope, which was per channel up to opset 6; the version converter does not know that."""
    from onnx import helper

    ranks = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info):
        if value.type.tensor_type.HasField("shape"):
            ranks[value.name] = len(value.type.tensor_type.shape.dim)
    nodes: list[onnx.NodeProto] = []
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
    slopes = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(slopes)
