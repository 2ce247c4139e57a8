"""Random graphs: relax operators, each with its reference array.

Graphs of floats are evaluated in float64; values stay small and results continuous in their inputs, so that float32
code agrees to a few digits. Graphs of integers must agree exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

import numpy as np

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.core.dtypes import DType, dtype, dtype_of_numpy
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.records import dataclass, field

LIMIT = 50.0
"""A value with larger elements is passed through tanh before it is used again."""
SHAPES = [
    (2, 3, 8, 8),
    (1, 8, 6, 6),
    (1, 16, 5, 5),
    (4, 6, 16),
    (1, 12, 32),
    (12, 32),
    (7, 19),
    (33,),
    (2, 2, 4, 8),
    (1, 40, 64),
]


@dataclass(frozen=True)
class GraphNode:
    """A value of the graph, and its array."""

    value: Any
    array: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def rank(self) -> int:
        return self.array.ndim


@dataclass
class Graph:
    """A module with one function under construction."""

    random: np.random.Generator
    module: Any
    function: Any
    dtype: DType
    params: ParameterStore = field(default_factory=ParameterStore)
    inputs: list[np.ndarray] = field(default_factory=list)
    nodes: list[GraphNode] = field(default_factory=list)
    described: list[str] = field(default_factory=list)

    def reference(self, array: np.ndarray) -> np.ndarray:
        """Return the array as the reference computes with it."""
        return np.asarray(array, np.float64 if self.dtype.is_float else np.int32)

    def numbers(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return random numbers of the element type."""
        if not self.dtype.is_float:
            return self.random.integers(-9, 10, shape).astype(np.int32)
        return self.random.standard_normal(shape).astype(np.float32)

    def integer(self, low: int, high: int) -> int:
        """Return a number from low to high - 1."""
        return int(self.random.integers(low, high))

    def choice(self, options: Any) -> Any:
        return options[self.integer(0, len(options))]

    def flip(self, probability: float = 0.5) -> bool:
        return bool(self.random.random() < probability)

    @overload
    def pick(self) -> GraphNode: ...
    @overload
    def pick(self, wanted: Callable[[GraphNode], bool]) -> GraphNode | None: ...
    def pick(self, wanted: Callable[[GraphNode], bool] = lambda node: True) -> GraphNode | None:
        """Return a value that fits, preferably a recent one."""
        fitting = [node for node in self.nodes if wanted(node)]
        if not fitting:
            return None
        return fitting[-1 - min(int(self.random.exponential(2.0)), len(fitting) - 1)]

    def emit(self, name: str, operands: list[Any], array: np.ndarray, **attributes: Any) -> GraphNode:
        """Add an operator, and its result to the values."""
        values = [[n.value for n in o] if isinstance(o, list) else o.value if o is not None else None for o in operands]
        emitted = GraphNode(OPS[name].make(*values, **attributes), self.reference(array))
        assert tuple(emitted.value.type.shape) == emitted.shape, (name, emitted.value.type, emitted.shape)
        self.described.append(f"{name} {attributes} -> {emitted.shape}")
        if self.dtype.is_float and np.abs(emitted.array).max(initial=0) > LIMIT:
            return self.emit("tanh", [emitted], np.tanh(emitted.array))
        self.nodes.append(emitted)
        return emitted

    def constant(
        self, shape: tuple[int, ...], scale: float = 1.0, offset: float = 0.0, splat: bool = False
    ) -> GraphNode:
        """Return a parameter, or a small constant in the IR, or one number for all elements."""
        numbers = self.numbers(shape)
        if splat:
            numbers = np.full(shape, self.choice([0, 1, 2, -1]), numbers.dtype)
        if self.dtype.is_float:
            numbers = (numbers * scale + offset).astype(np.float32)
        return self.constant_of(numbers)

    def constant_of(self, array: np.ndarray) -> GraphNode:
        numpy_type = dtype_of_numpy(array.dtype)
        assert numpy_type is not None
        kind = TensorType(array.shape, numpy_type)
        if array.size <= 16 and self.flip():
            value = OPS["constant"].make(
                value=ir.DenseElementsAttr.get(array, type=kind.to_mlir()), result_types=[kind]
            )
        else:
            name = self.params.add_unique("weight", array)
            value = OPS["constant"].make(param=name, result_types=[kind])
        return GraphNode(value, self.reference(array) if numpy_type == self.dtype else array)

    def broadcast_operand(self, shape: tuple[int, ...]) -> GraphNode:
        """Return a constant that broadcasts to a shape."""
        cut = shape[self.integer(0, len(shape) + 1) :]
        kept = tuple(dim if self.flip(0.7) else 1 for dim in cut)
        return self.constant(kept, splat=self.flip(0.2))


def new_graph(seed: int, element: str = "f32") -> Graph:
    """Return a function with some inputs, in the current context."""
    module = ir.Module.create()
    random = np.random.default_rng(seed)
    with ir.InsertionPoint(module.body):
        function = func.FuncOp("main", ir.FunctionType.get([], []))
    graph = Graph(random, module, function, dtype(element))
    block = function.add_entry_block()
    for _ in range(graph.integer(1, 4)):
        shape = graph.choice(SHAPES)
        array = graph.numbers(shape)
        argument = block.add_argument(TensorType(shape, graph.dtype).to_mlir(), ir.Location.unknown())
        graph.inputs.append(array)
        graph.nodes.append(GraphNode(argument, graph.reference(array)))
    return graph


def finish(graph: Graph) -> list[np.ndarray]:
    """Return the last value and perhaps some others; gives their arrays."""
    returned = [graph.nodes[-1]]
    for _ in range(graph.integer(0, 3)):
        returned.append(graph.choice(graph.nodes))
    types = [argument.type for argument in graph.function.arguments]
    func.ReturnOp([node.value for node in returned])
    kind = ir.FunctionType.get(types, [node.value.type for node in returned])
    graph.function.operation.attributes["function_type"] = ir.TypeAttr.get(kind)
    return [node.array for node in returned]
