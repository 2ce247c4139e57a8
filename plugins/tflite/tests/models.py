"""Write models of TensorFlow Lite: tables of its schema, by `flatbuffers`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import flatbuffers
import numpy as np

ADD, CUSTOM, FULLY_CONNECTED, MUL, LESS, NEG, IF, WHILE, DENSIFY = 0, 32, 9, 18, 58, 59, 118, 119, 124
IF_OPTIONS, WHILE_OPTIONS, FULLY_CONNECTED_OPTIONS, ADD_OPTIONS, MUL_OPTIONS = 92, 93, 8, 11, 21
DTYPES = {
    np.dtype(kind): number
    for kind, number in {"f4": 0, "f2": 1, "i4": 2, "u1": 3, "i8": 4, "?": 6, "i2": 7, "i1": 9}.items()
}
"""How the schema numbers element types."""


@dataclass
class Level:
    """A level of a sparse tensor: as many as `size`, or those of `indices` between two `segments`."""

    size: int = 0
    segments: np.ndarray | None = None
    indices: np.ndarray | None = None


@dataclass
class Sparsity:
    """How the elements of a sparse tensor are stored."""

    order: Sequence[int]
    blocks: Sequence[int]
    levels: Sequence[Level]


@dataclass
class TensorSpec:
    """A tensor of a graph; one with data is a constant."""

    shape: Sequence[int]
    data: np.ndarray | None = None
    dtype: str = "f4"
    sparsity: Sparsity | None = None


@dataclass
class Node:
    """An operator; `options` are the type of its options and their integers."""

    code: int
    inputs: Sequence[int]
    outputs: Sequence[int]
    options: tuple[int, Sequence[int]] | None = None
    custom: str = ""
    attributes: bytes = b""


@dataclass
class Graph:
    """A graph: the first of a model is the model."""

    tensors: Sequence[TensorSpec]
    inputs: Sequence[int]
    outputs: Sequence[int]
    nodes: Sequence[Node]
    name: str = "main"


@dataclass
class Writer:
    """The state of writing a model."""

    builder: flatbuffers.Builder = field(default_factory=flatbuffers.Builder)
    buffers: list[np.ndarray] = field(default_factory=lambda: [np.zeros(0, np.uint8)])
    codes: list[tuple[int, str]] = field(default_factory=list)

    def numbers(self, values: Sequence[int] | np.ndarray, dtype: str = "<i4") -> int:
        """Write a vector of numbers."""
        return int(self.builder.CreateNumpyVector(np.asarray(values, dtype)))

    def tables(self, offsets: Sequence[int]) -> int:
        """Write a vector of tables."""
        self.builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        return int(self.builder.EndVector())

    def table(self, **slots: tuple[str, int]) -> int:
        """Write a table: each argument is named `_SLOT` and is a kind, `int8` to `offset`, and a value."""
        builder = self.builder
        builder.StartObject(1 + max((int(name[1:]) for name in slots), default=0))
        write: dict[str, Callable[[int, int, int], None]] = {
            "int8": builder.PrependInt8Slot, "int32": builder.PrependInt32Slot,
            "offset": builder.PrependUOffsetTRelativeSlot, "bool": builder.PrependBoolSlot,
        }  # fmt: skip
        for name, (kind, value) in slots.items():
            write[kind](int(name[1:]), value, 0)
        return int(builder.EndObject())

    def index_vector(self, values: np.ndarray) -> tuple[int, int]:
        """Write indices in their type; return the type's number in the schema, and the table."""
        kind = {4: 1, 2: 2, 1: 3}[values.dtype.itemsize]
        return kind, self.table(_0=("offset", self.numbers(values, values.dtype.str)))

    def sparsity(self, sparsity: Sparsity) -> int:
        """Write how a sparse tensor is stored."""
        levels = []
        for level in sparsity.levels:
            if level.segments is None or level.indices is None:
                levels.append(self.table(_0=("int8", 0), _1=("int32", level.size)))
                continue
            segments, indices = self.index_vector(level.segments), self.index_vector(level.indices)
            levels.append(
                self.table(_0=("int8", 1), _2=("int8", segments[0]), _3=("offset", segments[1]),
                           _4=("int8", indices[0]), _5=("offset", indices[1]))
            )  # fmt: skip
        order, blocks, written = self.numbers(sparsity.order), self.numbers(sparsity.blocks), self.tables(levels)
        return self.table(_0=("offset", order), _1=("offset", blocks), _2=("offset", written))

    def tensor(self, tensor: TensorSpec, name: str) -> int:
        """Write a tensor."""
        dtype = np.dtype(tensor.dtype) if tensor.data is None else tensor.data.dtype
        if tensor.data is not None:
            self.buffers.append(tensor.data)
        slots = {
            "_0": ("offset", self.numbers(tensor.shape)),
            "_1": ("int8", DTYPES[dtype]),
            "_2": ("int32", 0 if tensor.data is None else len(self.buffers) - 1),
            "_3": ("offset", self.builder.CreateString(name)),
            "_8": ("bool", 1),
        }
        if tensor.sparsity is not None:
            slots["_6"] = ("offset", self.sparsity(tensor.sparsity))
        return self.table(**slots)

    def node(self, node: Node) -> int:
        """Write an operator."""
        code = (node.code, node.custom)
        if code not in self.codes:
            self.codes.append(code)
        slots = {
            "_0": ("int32", self.codes.index(code)),
            "_1": ("offset", self.numbers(node.inputs)),
            "_2": ("offset", self.numbers(node.outputs)),
        }
        if node.options is not None:
            kind, values = node.options
            slots["_3"] = ("int8", kind)
            slots["_4"] = ("offset", self.table(**{f"_{i}": ("int32", each) for i, each in enumerate(values)}))
        if node.attributes:
            slots["_5"] = ("offset", self.numbers(np.frombuffer(node.attributes, np.uint8), "u1"))
        return self.table(**slots)

    def graph(self, graph: Graph) -> int:
        """Write a graph."""
        tensors = self.tables([self.tensor(each, f"{graph.name}_{i}") for i, each in enumerate(graph.tensors)])
        nodes = self.tables([self.node(each) for each in graph.nodes])
        inputs, outputs = self.numbers(graph.inputs), self.numbers(graph.outputs)
        name = self.builder.CreateString(graph.name)
        slots = dict(zip(("_0", "_1", "_2", "_3", "_4"), (tensors, inputs, outputs, nodes, name), strict=True))
        return self.table(**{slot: ("offset", offset) for slot, offset in slots.items()})


def model(*graphs: Graph) -> bytes:
    """Return a file of TensorFlow Lite."""
    writer = Writer()
    subgraphs = writer.tables([writer.graph(graph) for graph in graphs])
    codes = []
    for code, custom in writer.codes:
        slots = {"_0": ("int8", min(code, 127)), "_2": ("int32", 1), "_3": ("int32", code)}
        if custom:
            slots["_1"] = ("offset", writer.builder.CreateString(custom))
        codes.append(writer.table(**slots))
    buffers = []
    for index, data in enumerate(writer.buffers):
        slots = {"_0": ("offset", writer.numbers(np.frombuffer(data.tobytes(), np.uint8), "u1"))} if index else {}
        buffers.append(writer.table(**slots))
    operator_codes, held = writer.tables(codes), writer.tables(buffers)
    root = writer.table(
        _0=("int32", 3), _1=("offset", operator_codes), _2=("offset", subgraphs), _4=("offset", held)
    )  # fmt: skip
    writer.builder.Finish(root, b"TFL3")
    return bytes(writer.builder.Output())
