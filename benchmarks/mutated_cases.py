"""ONNX's own cases with changed structure, sizes that data determine, and dims that are symbols; one for each seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

ROUNDS = 3
"""Most mutations of a model."""


def mutated_cases(count: int) -> Iterator[tuple[str, Any]]:
    """Yield names and models of the seeds from 0 on."""
    import onnx
    from onnx.backend.test.case.node import collect_testcases

    cases = [case for case in collect_testcases(None) if case.model is not None]
    cases.sort(key=lambda case: case.name)
    for seed in range(count):
        rng = np.random.default_rng([seed, 36])
        case = cases[int(rng.integers(len(cases)))]
        model = onnx.ModelProto.FromString(case.model.SerializeToString())
        names = []
        for _ in range(1 + int(rng.integers(ROUNDS))):
            mutation = MUTATIONS[int(rng.integers(len(MUTATIONS)))]
            mutation(model, rng)
            names.append(mutation.__name__)
        del model.graph.value_info[:]
        yield f"{seed}:{case.name}:{'+'.join(names)}", model


def _tensors(model: Any) -> list[Any]:
    """Return the inputs that are tensors with a shape."""
    kinds = [each for each in model.graph.input if each.type.HasField("tensor_type")]
    return [each for each in kinds if each.type.tensor_type.HasField("shape")]


def _forget_outputs(model: Any) -> None:
    """Remove the dims of outputs, which mutations change."""
    for output in model.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")


def _chosen(rng: np.random.Generator, items: Any) -> Any:
    return items[int(rng.integers(len(items)))] if len(items) else None


def equal_symbols(model: Any, rng: np.random.Generator) -> None:
    """Make dims symbols, one for each size."""
    for each in _tensors(model):
        for dim in each.type.tensor_type.shape.dim:
            if dim.HasField("dim_value") and dim.dim_value > 1 and rng.random() < 0.8:
                dim.dim_param = f"d{dim.dim_value}"
    _forget_outputs(model)


def own_symbols(model: Any, rng: np.random.Generator) -> None:
    """Make dims symbols that differ."""
    for index, each in enumerate(_tensors(model)):
        for axis, dim in enumerate(each.type.tensor_type.shape.dim):
            if rng.random() < 0.5:
                dim.dim_param = f"s{index}_{axis}"
    _forget_outputs(model)


def declared_outputs(model: Any, rng: np.random.Generator) -> None:
    """Make the dims of inputs symbols, and keep those of outputs."""
    for each in _tensors(model):
        for axis, dim in enumerate(each.type.tensor_type.shape.dim):
            if rng.random() < 0.5:
                dim.dim_param = f"{each.name}_{axis}"


def size_from_data(model: Any, rng: np.random.Generator) -> None:
    """Take rows of an input that data choose."""
    from onnx import TensorProto, helper

    each = _chosen(rng, [each for each in _tensors(model) if len(each.type.tensor_type.shape.dim)])
    if each is None:
        return
    flags, part = f"{each.name}_flags", f"{each.name}_part"
    axis = int(rng.integers(len(each.type.tensor_type.shape.dim)))
    dim = each.type.tensor_type.shape.dim[axis]
    size = dim.dim_param if dim.HasField("dim_param") else dim.dim_value
    _replace(model, each.name, part)
    model.graph.node.insert(0, helper.make_node("Compress", [each.name, flags], [part], axis=axis))
    model.graph.input.append(helper.make_tensor_value_info(flags, TensorProto.BOOL, [size]))
    _forget_outputs(model)


def shape_from_data(model: Any, rng: np.random.Generator) -> None:
    """Give an input the shape that another input holds, or its own as a computed one."""
    from onnx import TensorProto, helper

    each = _chosen(rng, _tensors(model))
    if each is None:
        return
    shape, part = f"{each.name}_shape", f"{each.name}_shaped"
    _replace(model, each.name, part)
    operator = "Expand" if rng.random() < 0.3 else "Reshape"
    model.graph.node.insert(0, helper.make_node(operator, [each.name, shape], [part]))
    if rng.random() < 0.5:
        rank = len(each.type.tensor_type.shape.dim)
        model.graph.input.append(helper.make_tensor_value_info(shape, TensorProto.INT64, [rank]))
    else:
        model.graph.node.insert(0, helper.make_node("Shape", [each.name], [shape]))
    _forget_outputs(model)


def _replace(model: Any, name: str, other: str) -> None:
    """Replace the value that the nodes read."""
    for node in model.graph.node:
        node.input[:] = [other if each == name else each for each in node.input]


def chained(model: Any, rng: np.random.Generator) -> None:
    """Feed the first result to the same node once more."""
    import onnx

    node = model.graph.node[-1]
    first = node.output[0]
    at = [index for index, name in enumerate(node.input) if name]
    if not at or not first:
        return
    again = onnx.NodeProto.FromString(node.SerializeToString())
    again.input[int(rng.choice(at))] = first
    again.output[:] = [f"{name}_again" if name else "" for name in again.output]
    model.graph.node.append(again)
    for output in model.graph.output:
        if output.name in node.output:
            output.name = f"{output.name}_again"
    _forget_outputs(model)


def in_branch(model: Any, rng: np.random.Generator) -> None:
    """Move the nodes into a branch, with a copy in the other branch."""
    from onnx import TensorProto, helper

    if len({each.name for each in model.graph.output}) != len(model.graph.output):
        return
    nodes, outputs = list(model.graph.node), list(model.graph.output)
    graphs = []
    for suffix in ("then", "else"):
        node_outputs = {name for node in nodes for name in node.output if name}
        graph = helper.make_graph(nodes, suffix, [], outputs)
        for node in graph.node:
            node.input[:] = [f"{name}_{suffix}" if name in node_outputs else name for name in node.input]
            node.output[:] = [f"{name}_{suffix}" if name else "" for name in node.output]
        for output in graph.output:
            output.name = f"{output.name}_{suffix}" if output.name in node_outputs else output.name
        graphs.append(graph)
    names = [each.name for each in outputs]
    del model.graph.node[:]
    model.graph.input.append(helper.make_tensor_value_info("chosen_branch", TensorProto.BOOL, []))
    made_if = helper.make_node("If", ["chosen_branch"], names, then_branch=graphs[0], else_branch=graphs[1])
    model.graph.node.append(made_if)
    _forget_outputs(model)


def in_loop(model: Any, rng: np.random.Generator) -> None:
    """Move the nodes into a loop that carries nothing and collects the results."""
    from onnx import TensorProto, helper

    outputs = list(model.graph.output)
    body = helper.make_graph(
        [helper.make_node("Identity", ["going"], ["goes_on"]), *model.graph.node],
        "body",
        [
            helper.make_tensor_value_info("step", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []), *outputs],
    )
    for node in body.node:
        node.output[:] = [f"{name}_step" if name and name != "goes_on" else name for name in node.output]
    node_outputs = {name.removesuffix("_step") for node in body.node for name in node.output}
    for node in body.node:
        node.input[:] = [f"{name}_step" if name in node_outputs else name for name in node.input]
    for output in body.output:
        output.name = f"{output.name}_step" if output.name in node_outputs and output.name != "goes_on" else output.name
    names = [each.name for each in outputs]
    del model.graph.node[:]
    model.graph.input.append(helper.make_tensor_value_info("loop_steps", TensorProto.INT64, []))
    model.graph.node.append(helper.make_node("Loop", ["loop_steps", ""], names, body=body))
    _forget_outputs(model)


def without_input(model: Any, rng: np.random.Generator) -> None:
    """Leave an input of a node out."""
    node = _chosen(rng, [node for node in model.graph.node if len(node.input)])
    if node is not None:
        node.input[int(rng.integers(len(node.input)))] = ""
        _forget_outputs(model)


def same_inputs(model: Any, rng: np.random.Generator) -> None:
    """Replace an input of a node by another one of its inputs."""
    node = _chosen(rng, [node for node in model.graph.node if len(node.input) > 1])
    if node is not None:
        names = [name for name in node.input if name]
        node.input[int(rng.integers(len(node.input)))] = _chosen(rng, names)
        _forget_outputs(model)


def other_attribute(model: Any, rng: np.random.Generator) -> None:
    """Change a number of an attribute, or leave it out."""
    node = _chosen(rng, [node for node in model.graph.node if len(node.attribute)])
    if node is None:
        return
    attribute = _chosen(rng, node.attribute)
    change = int(rng.choice([-2, -1, 1, 2]))
    if rng.random() < 0.3:
        node.attribute.remove(attribute)
    elif attribute.HasField("i"):
        attribute.i += change
    elif attribute.ints:
        attribute.ints[int(rng.integers(len(attribute.ints)))] += change
    elif attribute.HasField("f"):
        attribute.f *= change
    _forget_outputs(model)


def other_opset(model: Any, rng: np.random.Generator) -> None:
    """Declare an older opset."""
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx"):
            opset.version = int(rng.integers(7, opset.version + 1)) if opset.version > 7 else opset.version


MUTATIONS: tuple[Callable[[Any, np.random.Generator], None], ...] = (
    equal_symbols, own_symbols, declared_outputs, size_from_data, shape_from_data, chained, in_branch, in_loop,
    without_input, same_inputs, other_attribute, other_opset,
)  # fmt: skip
