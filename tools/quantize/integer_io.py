"""Inputs and outputs of a quantized model as the integers that its first and last nodes compute with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import onnx


def with_integer_io(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without the nodes that quantize its inputs and dequantize its outputs.

    The metadata have the scale and the zero point of each, `x.scale` and `x.zero_point`. Others are unchanged.
    """
    import onnx

    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    numbers = {tensor.name: tensor for tensor in graph.initializer}
    for value in graph.input:
        readers = [node for node in graph.node if value.name in node.input]
        if len(readers) == 1 and _is_of_one_scale(readers[0], "QuantizeLinear", numbers):
            (node,) = readers
            _describe(result, value, node, numbers)
            _rename(graph, node.output[0], value.name)
            graph.node.remove(node)
    for value in graph.output:
        writers = [node for node in graph.node if value.name in node.output]
        is_read = any(value.name in node.input for node in graph.node)
        inputs = {each.name for each in graph.input}
        if len(writers) == 1 and not is_read and _is_of_one_scale(writers[0], "DequantizeLinear", numbers):
            (node,) = writers
            if node.input[0] in inputs or node.input[0] in numbers:
                continue
            _describe(result, value, node, numbers)
            graph.node.remove(node)
            _rename(graph, node.input[0], value.name)
    used = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
    for tensor in [tensor for tensor in graph.initializer if tensor.name not in used]:
        graph.initializer.remove(tensor)
    return result


def _is_of_one_scale(node: onnx.NodeProto, operator: str, numbers: dict[str, onnx.TensorProto]) -> bool:
    """Return whether a node converts by one scale and zero point, which are constants."""
    constants = [numbers.get(name) for name in node.input[1:]]
    return node.op_type == operator and len(constants) == 2 and all(c is not None and not c.dims for c in constants)


def _describe(
    model: onnx.ModelProto, value: onnx.ValueInfoProto, node: onnx.NodeProto, numbers: dict[str, onnx.TensorProto]
) -> None:
    from onnx import numpy_helper

    scale, zero = (numbers[name] for name in node.input[1:])
    value.type.tensor_type.elem_type = zero.data_type
    for what, tensor in (("scale", scale), ("zero_point", zero)):
        entry = model.metadata_props.add()
        entry.key, entry.value = f"{value.name}.{what}", str(np.asarray(numpy_helper.to_array(tensor)).item())


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    """Rename a value wherever it is written and read."""
    for node in graph.node:
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                if name == old:
                    names[index] = new
