"""Operation graphs of the library's backend: descriptors, heuristic choice of an engine, execution.

A graph is data (`Tensor`, `Operation`); virtual tensors stay in registers if an engine fuses the whole graph.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_float, c_void_p
from dataclasses import dataclass

from mirlo_cudnn.native import library as dnn
from mirlo_cudnn.native.library import CUDNN, CuDnnError, version

INT32, BOOLEAN = 4, 11
"""Element types in addition to those in `library`."""
ALIGNMENT = 16

# Kinds of descriptors.
POINTWISE, ENGINE_CONFIG, HEURISTICS, PLAN = 0, 3, 4, 5
POINTWISE_OPERATION, GRAPH, VARIANT_PACK, TENSOR = 13, 15, 16, 17
MATMUL, MATMUL_OPERATION, REDUCTION, REDUCTION_OPERATION = 18, 19, 21, 22
# Types of attributes.
HANDLE, DATA_TYPE, BOOL, INT64, POINTER, MODE = 0, 1, 2, 3, 6, 8
POINTWISE_MODE, DESCRIPTOR, REDUCTION_MODE = 14, 15, 18
# Attributes.
HEURISTICS_MODE, HEURISTICS_GRAPH, HEURISTICS_RESULTS = 200, 201, 202
PLAN_HANDLE, PLAN_CONFIG, PLAN_WORKSPACE = 400, 401, 402
GRAPH_HANDLE, GRAPH_OPERATIONS = 800, 801
PACK_IDS, PACK_POINTERS, PACK_WORKSPACE = 1000, 1001, 1003
BY_HEURISTICS, FALLBACK = 3, 2
"""How engines are chosen: by the library's performance model, or any that computes the graph."""

MODES = {
    "add": 0, "multiply": 1, "divide": 6, "subtract": 9, "exp": 13, "log": 15, "greater_equal": 303, "index": 501,
    "select": 601,
}  # fmt: skip
"""Pointwise operations by the library's number."""
REDUCTIONS = {"sum": 0, "max": 3}


@dataclass(frozen=True)
class BackendTensor:
    """A tensor of a graph, identified by number."""

    number: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    kind: int
    """The element type."""
    is_virtual: bool = False
    is_host: bool = False
    """Whether it is a scalar in CPU memory."""


@dataclass(frozen=True)
class Operation:
    """`matmul`, one of `MODES` or of `REDUCTIONS`, on tensors by number."""

    name: str
    inputs: tuple[int, ...]
    output: int
    compute: int = dnn.F32
    axis: int | None = None


@dataclass(frozen=True)
class OperationGraph:
    """The operations executed by one engine."""

    tensors: tuple[BackendTensor, ...]
    operations: tuple[Operation, ...]
    numbers: Mapping[int, c_float | ctypes.c_int32]
    """The values of the CPU scalars as ctypes objects."""


CtypesValue = (
    ctypes.c_void_p
    | ctypes.c_int
    | ctypes.c_int64
    | ctypes.c_bool
    | ctypes.Array[ctypes.c_int64]
    | ctypes.Array[ctypes.c_void_p]
)


class Descriptors:
    """A group of descriptors with one lifetime."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._library = CUDNN.load()
        self._made: list[c_void_p] = []

    def make(self, kind: int, *attributes: tuple[int, int, CtypesValue]) -> c_void_p:
        """Return a descriptor with attributes: number, type, and a ctypes value or array."""
        result = self.new(kind)
        for number, form, value in attributes:
            count = ctypes.c_int64(len(value) if isinstance(value, ctypes.Array) else 1)
            self._do("SetAttribute", result, number, form, count, ctypes.byref(value))
        self._do("Finalize", result)
        return result

    def new(self, kind: int) -> c_void_p:
        """Return an empty descriptor."""
        result = ctypes.c_void_p()
        self._do("CreateDescriptor", kind, ctypes.byref(result))
        self._made.append(result)
        return result

    def get(self, descriptor: c_void_p, number: int, form: int, value: CtypesValue) -> int:
        """Read an attribute into a ctypes value or array; returns its number of elements."""
        count, room = ctypes.c_int64(), len(value) if isinstance(value, ctypes.Array) else 1
        self._do(
            "GetAttribute", descriptor, number, form, ctypes.c_int64(room), ctypes.byref(count), ctypes.byref(value)
        )
        return count.value

    def count(self, descriptor: c_void_p, number: int, form: int) -> int:
        """Return the number of elements of an attribute."""
        count = ctypes.c_int64()
        self._do("GetAttribute", descriptor, number, form, ctypes.c_int64(0), ctypes.byref(count), None)
        return count.value

    def _do(self, name: str, *arguments: object) -> None:
        CUDNN.check(getattr(self._library, f"cudnnBackend{name}")(*arguments), self._what)

    def release(self) -> None:
        """Destroy the descriptors, the last one first."""
        for descriptor in reversed(self._made):
            self._library.cudnnBackendDestroyDescriptor(descriptor)
        self._made.clear()


def operations_of(graph: OperationGraph, descriptors: Descriptors) -> list[c_void_p]:
    """Return the descriptors of a graph's operations."""
    tensors = {tensor.number: _tensor(tensor, descriptors) for tensor in graph.tensors}
    return [_operation(operation, tensors, descriptors) for operation in graph.operations]


def _tensor(tensor: BackendTensor, descriptors: Descriptors) -> c_void_p:
    return descriptors.make(
        TENSOR, (900, INT64, ctypes.c_int64(ALIGNMENT)), (901, DATA_TYPE, ctypes.c_int(tensor.kind)),
        (902, INT64, _longs(tensor.dims)), (903, INT64, _longs(tensor.strides)),
        (906, INT64, ctypes.c_int64(tensor.number)), (907, BOOL, ctypes.c_bool(tensor.is_virtual)),
        (908, BOOL, ctypes.c_bool(tensor.is_host)),
    )  # fmt: skip


def _operation(operation: Operation, tensors: Mapping[int, c_void_p], descriptors: Descriptors) -> c_void_p:
    inputs, output = [tensors[number] for number in operation.inputs], tensors[operation.output]
    compute = ctypes.c_int(operation.compute)
    if operation.name == "matmul":
        how = descriptors.make(MATMUL, (1500, DATA_TYPE, compute))
        ends = zip((1520, 1521, 1522, 1523), (*inputs, output, how), strict=True)
        return descriptors.make(MATMUL_OPERATION, *((number, DESCRIPTOR, value) for number, value in ends))
    if operation.name in REDUCTIONS:
        mode = ctypes.c_int(REDUCTIONS[operation.name])
        how = descriptors.make(REDUCTION, (1600, REDUCTION_MODE, mode), (1601, DATA_TYPE, compute))
        ends = zip((1610, 1611, 1612), (*inputs, output, how), strict=True)
        return descriptors.make(REDUCTION_OPERATION, *((number, DESCRIPTOR, value) for number, value in ends))
    axis = [] if operation.axis is None else [(9, INT64, ctypes.c_int64(operation.axis))]
    mode = ctypes.c_int(MODES[operation.name])
    how = descriptors.make(POINTWISE, (0, POINTWISE_MODE, mode), (1, DATA_TYPE, compute), *axis)
    # x, b and t: the third selects one of the others.
    operands = zip((751, 752, 758), inputs, strict=False)
    return descriptors.make(
        POINTWISE_OPERATION, (750, DESCRIPTOR, how), *((number, DESCRIPTOR, value) for number, value in operands),
        (753, DESCRIPTOR, output),
    )  # fmt: skip


def engine_configs(rules: c_void_p, descriptors: Descriptors) -> list[c_void_p]:
    """Return the engine configurations that the heuristics propose; empty if no engine computes the graph."""
    count = descriptors.count(rules, HEURISTICS_RESULTS, DESCRIPTOR)
    if not count:
        return []
    configs = [descriptors.new(ENGINE_CONFIG) for _ in range(count)]
    known = descriptors.get(rules, HEURISTICS_RESULTS, DESCRIPTOR, _pointers(configs))
    return configs[:known]


class Execution:
    """The plan of a graph on one GPU: the first engine of the heuristics that accepts it."""

    def __init__(self, graph: OperationGraph, handle: c_void_p, most_memory: int, what: str) -> None:
        self._graph, self._handle, self._what = graph, handle, what
        self._library = CUDNN.load()
        self._made = Descriptors(what)
        self.memory = 0
        """Bytes of scratch memory."""
        try:
            self._plan = self._find(operations_of(graph, self._made), most_memory)
        except BaseException:
            self._made.release()
            raise

    def _find(self, operations: Sequence[c_void_p], most: int) -> c_void_p:
        descriptors, handle = self._made, ctypes.c_void_p(_value(self._handle))
        graph = descriptors.make(
            GRAPH, (GRAPH_HANDLE, HANDLE, handle), (GRAPH_OPERATIONS, DESCRIPTOR, _pointers(operations))
        )
        refused: list[str] = []
        for mode in (BY_HEURISTICS, FALLBACK):
            try:
                engines = self._engines(graph, mode)
            except CuDnnError as problem:
                refused.append(str(problem))
                continue
            for config in engines:
                try:
                    plan = descriptors.make(PLAN, (PLAN_HANDLE, HANDLE, handle), (PLAN_CONFIG, DESCRIPTOR, config))
                except CuDnnError as problem:
                    refused.append(str(problem))
                    continue
                size = ctypes.c_int64()
                descriptors.get(plan, PLAN_WORKSPACE, INT64, size)
                if size.value <= most:
                    self.memory = size.value
                    return plan
                refused.append(f"{self._what}: an engine wants {size.value >> 20} MiB of scratch memory")
        why = f" ({refused[-1]})" if refused else ""
        raise CuDnnError(f"cuDNN {version()} has no engine for {self._what}{why}")

    def _engines(self, graph: c_void_p, mode: int) -> list[c_void_p]:
        descriptors = self._made
        rules = descriptors.make(
            HEURISTICS, (HEURISTICS_MODE, MODE, ctypes.c_int(mode)), (HEURISTICS_GRAPH, DESCRIPTOR, graph)
        )
        return engine_configs(rules, descriptors)

    def start(self, address: Callable[[int], int], memory: int) -> None:
        """Enqueue the plan on the stream of the handle, with the addresses of tensors by number."""
        tensor_numbers = [tensor.number for tensor in self._graph.tensors if not tensor.is_virtual]
        numbers = self._graph.numbers
        places = [ctypes.addressof(numbers[n]) if n in numbers else address(n) for n in tensor_numbers]
        pack = Descriptors(self._what)
        try:
            described = pack.make(
                VARIANT_PACK, (PACK_IDS, INT64, _longs(tensor_numbers)),
                (PACK_POINTERS, POINTER, (ctypes.c_void_p * len(places))(*places)),
                (PACK_WORKSPACE, POINTER, ctypes.c_void_p(memory or None)),
            )  # fmt: skip
            CUDNN.check(self._library.cudnnBackendExecute(self._handle, self._plan, described), self._what)
        finally:
            pack.release()

    def release(self) -> None:
        """Destroy the descriptors."""
        self._made.release()


def _value(handle: c_void_p | int | None) -> int | None:
    return handle.value if isinstance(handle, ctypes.c_void_p) else handle


def _longs(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * len(values))(*values)


def _pointers(descriptors: Sequence[c_void_p]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(descriptors))(*(descriptor.value for descriptor in descriptors))
