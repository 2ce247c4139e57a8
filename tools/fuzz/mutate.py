"""Broken model files: a valid one, with bytes or fields of it changed; it may only raise an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import onnx

from mirlo.driver.compile import compile as compile_model
from mirlo.runtime.files import write_regular
from mirlo.tools.fuzz.graphs import random_graph
from mirlo.tools.fuzz.verdict import ACCEPTED, STATES_OF_READERS, SeedVerdict, verdict_of_error

STATES = STATES_OF_READERS
SMALL_GRAPH = 8


def broken_file(seed: int) -> tuple[bytes, str]:
    """Return the bytes of this seed and the name of the mutation that made them."""
    rng = np.random.default_rng([seed, 1])
    # Few graphs, many ways to break each: growing one takes longer than breaking it.
    model = random_graph(seed // 20, SMALL_GRAPH).model
    mutation = MUTATIONS[int(rng.integers(len(MUTATIONS)))]
    return mutation(model, rng), mutation.__name__.strip("_")


def judge(seed: int) -> SeedVerdict:
    """Import and compile the broken file of a seed."""
    content, mutation = broken_file(seed)
    try:
        compile_model(content, jobs=1, cache=False)
    except Exception as error:
        return verdict_of_error(error, used=(mutation,))
    return SeedVerdict(ACCEPTED, used=(mutation,))


# Mutations of bytes


def _flip_bits(model: onnx.ModelProto, rng: np.random.Generator) -> bytes:
    content = bytearray(model.SerializeToString())
    for _ in range(int(rng.integers(1, 9))):
        content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
    return bytes(content)


def _truncate(model: onnx.ModelProto, rng: np.random.Generator) -> bytes:
    content: bytes = model.SerializeToString()
    return content[: int(rng.integers(len(content)))]


def _overwrite(model: onnx.ModelProto, rng: np.random.Generator) -> bytes:
    content = bytearray(model.SerializeToString())
    at, count = int(rng.integers(len(content))), int(rng.integers(1, 33))
    content[at : at + count] = rng.integers(0, 256, count).astype(np.uint8).tobytes()
    return bytes(content)


def _remove_bytes(model: onnx.ModelProto, rng: np.random.Generator) -> bytes:
    content: bytes = model.SerializeToString()
    at = int(rng.integers(len(content)))
    return content[:at] + content[at + int(rng.integers(1, 33)) :]


def _repeat_bytes(model: onnx.ModelProto, rng: np.random.Generator) -> bytes:
    content: bytes = model.SerializeToString()
    at = int(rng.integers(len(content)))
    return content[:at] + content[at : at + int(rng.integers(1, 129))] * int(rng.integers(2, 9)) + content[at:]


def _noise(model: onnx.ModelProto, rng: np.random.Generator) -> bytes:
    return bytes(rng.integers(0, 256, int(rng.integers(1, 4000))).astype(np.uint8).tobytes())


# Mutations of fields

EDGE_VALUES = (-1, 0, 1, 2, 3, 7, 100, 2**31 - 1, 2**31, 2**62, -(2**31), -(2**63), 2**63 - 1)
ODD_FLOATS = (0.0, -1.0, float("nan"), float("inf"), -float("inf"), 1e300, 1e-300)
ODD_TEXT = ("", "x", "SAME_UPPER", "\x00", "a" * 10000, "é", "../../etc/passwd", "none")


def _attribute(model: onnx.ModelProto, rng: np.random.Generator) -> bytes:
    """Return another value for an attribute."""
    attributes = [attribute for node in model.graph.node for attribute in node.attribute]
    if not attributes:
        return _operator(model, rng)
    attribute = _pick(attributes, rng)
    if attribute.HasField("i"):
        attribute.i = _pick(EDGE_VALUES, rng)
    elif attribute.HasField("f"):
        attribute.f = _pick(ODD_FLOATS[:5], rng)
    elif attribute.HasField("s"):
        attribute.s = _pick(ODD_TEXT, rng).encode()
    elif attribute.ints:
        if rng.random() < 0.4:
            attribute.ints.append(_pick(EDGE_VALUES, rng))
        else:
            attribute.ints[int(rng.integers(len(attribute.ints)))] = _pick(EDGE_VALUES, rng)
    if rng.random() < 0.15:
        attribute.type = int(rng.integers(0, 15))
    if rng.random() < 0.1:
        attribute.name = _pick(("axis", "axes", "alpha", "mode", "to", "zzz"), rng)
    return _bytes(model)


def _operator(model: onnx.ModelProto, rng: np.random.Generator) -> bytes:
    """Set another operator for a node."""
    node = _pick(model.graph.node, rng) if model.graph.node else model.graph.node.add()
    node.op_type = _pick(
        ("Conv", "MatMul", "Reshape", "If", "Loop", "Scan", "Relu", "Gather", "Zzz", "", "Attention"), rng
    )
    if rng.random() < 0.2:
        node.domain = _pick(("com.microsoft", "ai.onnx.ml", "zzz"), rng)
    return _bytes(model)


def _edges(model: onnx.ModelProto, rng: np.random.Generator) -> bytes:
    """Change the inputs or outputs of a node: missing ones, duplicate names, cycles."""
    if not model.graph.node:
        return _noise(model, rng)
    node = _pick(model.graph.node, rng)
    names = ["", "nowhere"] + [name for other in model.graph.node for name in (*other.output, *other.input)]
    field = node.input if rng.random() < 0.7 else node.output
    action = int(rng.integers(3))
    if action == 0 or not field:
        field.append(_pick(names, rng))
    elif action == 1:
        field[int(rng.integers(len(field)))] = _pick(names, rng)
    else:
        del field[int(rng.integers(len(field)))]
    return _bytes(model)


def _shape(model: onnx.ModelProto, rng: np.random.Generator) -> bytes:
    """Change dims or element types of inputs and outputs."""
    values = [*model.graph.input, *model.graph.output]
    if not values:
        return _noise(model, rng)
    tensor = _pick(values, rng).type.tensor_type
    action = int(rng.integers(5))
    if action == 0:
        tensor.elem_type = int(rng.integers(0, 30))
    elif action == 1 and tensor.shape.dim:
        _pick(tensor.shape.dim, rng).dim_value = _pick(EDGE_VALUES, rng)
    elif action == 2 and tensor.shape.dim:
        _pick(tensor.shape.dim, rng).dim_param = _pick(("n", "2*n", "n+", "", "é", "-", "n" * 500), rng)
    elif action == 3:
        tensor.shape.dim.add().dim_value = _pick(EDGE_VALUES, rng)
    else:
        tensor.ClearField("shape")
    return _bytes(model)


def _constant(model: onnx.ModelProto, rng: np.random.Generator) -> bytes:
    """Set another shape, type or content of an initializer."""
    if not model.graph.initializer:
        return _shape(model, rng)
    tensor = _pick(model.graph.initializer, rng)
    action = int(rng.integers(6))
    if action == 0:
        tensor.data_type = int(rng.integers(0, 30))
    elif action == 1:
        tensor.dims.append(_pick(EDGE_VALUES, rng))
    elif action == 2 and tensor.dims:
        tensor.dims[0] = _pick(EDGE_VALUES, rng)
    elif action == 3:
        tensor.raw_data = tensor.raw_data[: int(rng.integers(0, len(tensor.raw_data) + 1))]
    elif action == 4:
        count = len(tensor.raw_data)
        tensor.raw_data = rng.integers(0, 256, count).astype(np.uint8).tobytes()
    else:
        tensor.data_location = 1
        for key, value in (("location", _pick(ODD_TEXT, rng)), ("offset", "99999999999"), ("length", "-4")):
            tensor.external_data.add(key=key, value=value)
    return _bytes(model)


def _versions(model: onnx.ModelProto, rng: np.random.Generator) -> bytes:
    """Change versions, and duplicate names."""
    action = int(rng.integers(4))
    if action == 0:
        model.opset_import[0].version = _pick(EDGE_VALUES, rng)
    elif action == 1:
        model.ir_version = _pick(EDGE_VALUES, rng)
    elif action == 2 and model.graph.input:
        model.graph.input.add().CopyFrom(_pick(model.graph.input, rng))
    elif model.graph.node:
        model.graph.node.add().CopyFrom(_pick(model.graph.node, rng))
    return _bytes(model)


def _nest(model: onnx.ModelProto, rng: np.random.Generator) -> bytes:
    """Nest the graph as a branch of itself many times."""
    for _ in range(int(rng.integers(1, 12))):
        inner = onnx.GraphProto()
        inner.CopyFrom(model.graph)
        node = model.graph.node.add(op_type=_pick(("If", "Loop", "Scan"), rng), output=["nested"])
        attribute = node.attribute.add(name=_pick(("then_branch", "body"), rng), type=5)
        attribute.g.CopyFrom(inner)
        model.graph.output.add().name = "nested"
        if model.ByteSize() > 2_000_000:
            break
    return _bytes(model)


def _bytes(model: onnx.ModelProto) -> bytes:
    content: bytes = model.SerializeToString()
    return content


T = TypeVar("T")


def _pick(items: Sequence[T], rng: np.random.Generator) -> T:
    return items[int(rng.integers(len(items)))]


MUTATIONS: tuple[Callable[[onnx.ModelProto, np.random.Generator], bytes], ...] = (
    _flip_bits, _truncate, _overwrite, _remove_bytes, _repeat_bytes, _noise, _attribute, _attribute, _operator, _edges,
    _edges, _shape, _shape, _constant, _constant, _versions, _nest,
)  # fmt: skip


def write(seed: int, folder: Path) -> None:
    """Write the file of a seed."""
    write_regular(folder / "model.onnx", broken_file(seed)[0])
