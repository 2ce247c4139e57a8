"""Regions of target `onednn` by the library's graph interface: `python -m benchmarks.onednn_graph [MODEL...]`.

The plan of each region is said once more to the graph interface, operation by operation. The table compares what both
make of it: steps or partitions, seconds to build, and milliseconds of a call in turns. It is what decided that the
target uses primitives (docs/architecture.md, "Hand-written, and why").
"""

from __future__ import annotations

import ctypes
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mirlo_onednn.native.library import load_library, threads_set
from mirlo_onednn.native.program import OneDnnProgram
from mirlo_onednn.plan import OneDnnPlan, PostOp, PrimitiveNode, PrimitiveRegion, read

from mirlo.benchmarks.turns import relative_error
from mirlo.runtime.dlpack import DLTensor, tensor_of_array

from .models import path
from .turns import model_arguments, print_row, row_elsewhere, take_turns

MODELS = ("resnet50", "mobilenetv2", "bert_base", "vit_base")
COLUMNS = (
    ("model", "{}"),
    ("threads", "{}"),
    ("primitives", "{}"),
    ("partitions", "{}"),
    ("of one op", "{}"),
    ("copies", "{}"),
    ("build s", "{:.2f}"),
    ("graph build s", "{:.2f}"),
    ("primitives ms", "{:.2f}"),
    ("graph ms", "{:.2f}"),
    ("graph by primitives", "{:.2f}"),
    ("difference", "{:.1e}"),
)

# Numbers of oneDNN's dnnl_graph_types.h.
F32, CPU, FUSION, STREAM_IN_ORDER = 3, 1, 1, 1
VARIABLE, CONSTANT = 1, 2
ANY, STRIDED = 1, 2
OPS = {
    "add": 2, "avg_pool": 3, "clamp": 10, "concat": 12, "convolution": 13, "div": 20, "exp": 26, "gelu_erf": 27,
    "hardswish": 29, "layer_norm": 33, "matmul": 39, "max": 40, "max_pool": 41, "min": 43, "mul": 46, "mean": 54,
    "relu": 58, "logistic": 62, "softmax": 64, "sqrt": 68, "square": 70, "reshape": 72, "permute": 73, "sub": 74,
    "tanh": 75,
}  # fmt: skip
ATTRIBUTES = {
    "epsilon": 3, "max": 4, "min": 5, "axis": 0x30, "begin_norm_axis": 0x31, "groups": 0x32, "axes": 0x40,
    "dilations": 0x41, "kernel": 0x43, "order": 0x44, "pads_begin": 0x46, "pads_end": 0x47, "shape": 0x48,
    "strides": 0x4B, "exclude_pad": 0x60, "keep_dims": 0x61, "keep_stats": 0x62, "special_zero": 0x64,
    "transpose_b": 0x66, "use_affine": 0x67, "data_format": 0x83, "weights_format": 0x87,
}  # fmt: skip
Attribute = bool | int | float | str | Sequence[int]


class Layout(ctypes.Union):
    _fields_ = [("strides", ctypes.c_int64 * 12), ("layout_id", ctypes.c_size_t)]


class LogicalTensor(ctypes.Structure):
    """The library's `dnnl_graph_logical_tensor_t`."""

    _fields_ = [
        ("id", ctypes.c_size_t), ("ndims", ctypes.c_int), ("dims", ctypes.c_int64 * 12), ("data_type", ctypes.c_int),
        ("property", ctypes.c_int), ("layout_type", ctypes.c_int), ("layout", Layout),
    ]  # fmt: skip


def call(name: str, *arguments: Any) -> None:
    """Call a function of the library; raise an error if it fails."""
    status = getattr(load_library().handle, name)(*arguments)
    if status:
        raise RuntimeError(f"{name}: status {status}")


def created(name: str, *arguments: Any) -> ctypes.c_void_p:
    """Return the object that a function of the library makes."""
    handle = ctypes.c_void_p()
    call(name, ctypes.byref(handle), *arguments)
    return handle


@dataclass
class Value:
    """A value of the graph, and where its elements are."""

    tensor: LogicalTensor
    array: np.ndarray | None = None


@dataclass(frozen=True)
class View:
    """A value that is another one in other dims."""

    node: PrimitiveNode
    source: str
    result: str
    number: int | None
    """Of the operation, which the library may still take into a partition with others."""


@dataclass
class GraphRegion:
    """A region as a graph of the library."""

    region: PrimitiveRegion
    params: Mapping[str, np.ndarray]
    values: dict[str, Value] = field(default_factory=dict)
    ops: int = 0
    views: list[View] = field(default_factory=list)
    """Values in the memory of others: the library does not take these operations alone."""

    def __post_init__(self) -> None:
        self.graph = created("dnnl_graph_graph_create", CPU)
        allocator = created("dnnl_graph_allocator_create", None, None)
        self.engine = created("dnnl_graph_make_engine_with_allocator", CPU, ctypes.c_size_t(0), allocator)
        self.stream = created("dnnl_stream_create", self.engine, STREAM_IN_ORDER)
        call("dnnl_graph_set_constant_tensor_cache", 1)
        for name in self.region.inputs:
            self.values[name] = Value(self._tensor(self.region.tensors[name].shape, VARIABLE, STRIDED))
        for name, param in self.region.params.items():
            self.constant(name, self.params[param])
        for name, literal in self.region.literals.items():
            self.constant(name, literal)
        for node in self.region.nodes:
            self._add_node(node)
        call("dnnl_graph_graph_finalize", self.graph)

    def constant(self, name: str, array: np.ndarray) -> str:
        """Add a constant, and return its name."""
        array = np.ascontiguousarray(array, np.float32)
        self.values[name] = Value(self._tensor(array.shape or (1,), CONSTANT, STRIDED), array)
        return name

    def _tensor(self, shape: Sequence[int], kind: int, layout: int) -> LogicalTensor:
        tensor = LogicalTensor()
        dims = (ctypes.c_int64 * 12)(*shape)
        call(
            "dnnl_graph_logical_tensor_init_with_dims", ctypes.byref(tensor), ctypes.c_size_t(len(self.values)), F32,
            len(shape), dims, layout, kind,
        )  # fmt: skip
        return tensor

    def op(self, kind: str, operands: Sequence[str], result: str, dims: Sequence[int], **attributes: Attribute) -> str:
        """Add an operation, and return the name of its result."""
        op = created("dnnl_graph_op_create", ctypes.c_size_t(self.ops), OPS[kind], f"{kind}{self.ops}".encode())
        self.ops += 1
        for operand in operands:
            call("dnnl_graph_op_add_input", op, ctypes.byref(self.values[operand].tensor))
        self.values[result] = Value(self._tensor(dims, VARIABLE, ANY))
        call("dnnl_graph_op_add_output", op, ctypes.byref(self.values[result].tensor))
        for name, value in attributes.items():
            self._set(op, ATTRIBUTES[name], value)
        call("dnnl_graph_add_op", self.graph, op)
        return result

    def _set(self, op: ctypes.c_void_p, number: int, value: Attribute) -> None:
        one = ctypes.c_size_t(1)
        if isinstance(value, bool):
            call("dnnl_graph_op_set_attr_bool", op, number, (ctypes.c_uint8 * 1)(value), one)
        elif isinstance(value, float):
            call("dnnl_graph_op_set_attr_f32", op, number, (ctypes.c_float * 1)(value), one)
        elif isinstance(value, int):
            call("dnnl_graph_op_set_attr_s64", op, number, (ctypes.c_int64 * 1)(value), one)
        elif isinstance(value, str):
            call("dnnl_graph_op_set_attr_str", op, number, value.encode(), ctypes.c_size_t(len(value)))
        else:
            numbers = (ctypes.c_int64 * len(value))(*value)
            call("dnnl_graph_op_set_attr_s64", op, number, numbers, ctypes.c_size_t(len(value)))

    def _add_node(self, node: PrimitiveNode) -> None:
        """Add a step of the plan: its operation, then one for each post-op."""
        shape = self.region.tensors[node.result].shape
        x = next(iter(node.operands.values()))
        known = self.values[x].array
        if known is not None and node.op in ("permute", "reshape"):
            moved = known.transpose(node.attributes["axes"]) if node.op == "permute" else known.reshape(shape)
            self.constant(node.result, moved)
            return
        posts = [single for post in node.post_ops for single in self._singles(post)]
        names = [f"{node.result}.{number}" for number in range(len(posts))] + [node.result]
        self._first(node, names[0], shape)
        for number, (kind, operand, attributes) in enumerate(posts):
            self.op(kind, [names[number], *operand], names[number + 1], shape, **attributes)

    def _first(self, node: PrimitiveNode, result: str, shape: Sequence[int]) -> None:
        """Add the operation of a step without its post-ops."""
        a, operands = node.attributes, list(node.operands.values())
        if node.op == "convolution":
            self._convolution(node, result, shape)
        elif node.op in ("pooling", "global_average"):
            self._pooling(node, result, shape)
        elif node.op == "slice":
            self.views.append(View(node, operands[0], result, None))
            self.values[result] = Value(self._tensor(shape, VARIABLE, STRIDED))
        elif node.op in ("permute", "reshape"):
            self.views.append(View(node, operands[0], result, self.ops))
            self.op(node.op, operands, result, shape, **self._attributes(node, shape))
        elif node.op == "eltwise":
            singles = list(self._singles(PostOp("eltwise", a["algorithm"], a["alpha"], a["beta"])))
            names = [operands[0], *(f"{result}.part{i}" for i in range(len(singles) - 1)), result]
            for number, (kind, more_operands, attributes) in enumerate(singles):
                self.op(kind, [names[number], *more_operands], names[number + 1], shape, **attributes)
        elif node.op in ("binary", "reduction"):
            self.op(a["algorithm"], operands, result, shape, **self._attributes(node, shape))
        else:
            self.op(node.op, operands, result, shape, **self._attributes(node, shape))

    def _attributes(self, node: PrimitiveNode, shape: Sequence[int]) -> dict[str, Attribute]:
        a = node.attributes
        source = self.values[next(iter(node.operands.values()))].tensor
        return {
            "layer_norm": lambda: {
                "begin_norm_axis": a["axis"],
                "epsilon": a["epsilon"],
                "keep_stats": False,
                "use_affine": len(node.operands) == 3,
            },
            "permute": lambda: {"order": a["axes"]},
            "reshape": lambda: {"shape": shape, "special_zero": False},
            "softmax": lambda: {"axis": a["axis"]},
            "concat": lambda: {"axis": a["axis"]},
            "reduction": lambda: {
                "axes": [i for i in range(source.ndims) if source.dims[i] != shape[i]],
                "keep_dims": True,
            },
        }.get(node.op, dict)()

    def _convolution(self, node: PrimitiveNode, result: str, shape: Sequence[int]) -> None:
        a, operands, groups = node.attributes, list(node.operands.values()), 1
        weight = self.values[node.operands["weight"]].array
        if weight is None:
            raise RuntimeError("a convolution with a computed weight is not said to the graph interface")
        if weight.ndim == len(shape) + 1:
            groups = weight.shape[0]
            operands[1] = self.constant(f"{result}.weight", weight.reshape(-1, *weight.shape[2:]))
        dilations = tuple(step + 1 for step in a["dilations"])
        self.op(
            "convolution", operands, result, shape, strides=a["strides"], pads_begin=a["padding_begin"],
            pads_end=a["padding_end"], dilations=dilations, groups=groups, data_format="NCX", weights_format="OIX",
        )  # fmt: skip

    def _pooling(self, node: PrimitiveNode, result: str, shape: Sequence[int]) -> None:
        a, operands = node.attributes, list(node.operands.values())
        source = self.values[operands[0]].tensor
        image = tuple(source.dims[2 : source.ndims])
        none = (0,) * len(image)
        kind = "max_pool" if a.get("algorithm") == "max" else "avg_pool"
        more: dict[str, Attribute] = {}
        if kind == "avg_pool":
            more["exclude_pad"] = a.get("algorithm") == "avg_exclude_padding"
        self.op(
            kind, operands, result, shape, strides=a.get("strides", (1,) * len(image)), kernel=a.get("kernel", image),
            pads_begin=a.get("padding_begin", none), pads_end=a.get("padding_end", none), data_format="NCX", **more,
        )  # fmt: skip

    def _singles(self, post: PostOp) -> Iterator[tuple[str, list[str], dict[str, Attribute]]]:
        """Yield operations of the graph for a post-op: kind, operands besides, attributes."""
        if post.kind == "binary":
            yield post.algorithm, [post.operand], {}
        elif post.algorithm == "linear":
            for kind, number, neutral in (("mul", post.alpha, 1.0), ("add", post.beta, 0.0)):
                if number != neutral:
                    name = f"scalar{len(self.values)}"
                    yield kind, [self.constant(name, np.array([number], np.float32))], {}
        elif post.algorithm == "clip":
            yield "clamp", [], {"min": max(post.alpha, -3e38), "max": min(post.beta, 3e38)}
        else:
            yield post.algorithm, [], {}


@dataclass
class Partition:
    """A compiled partition with its tensors."""

    compiled: ctypes.c_void_p
    inputs: Any
    outputs: Any
    ops: int


def _ports(partition: ctypes.c_void_p, which: str) -> list[LogicalTensor]:
    count = ctypes.c_size_t()
    call(f"dnnl_graph_partition_get_{which}_ports_num", partition, ctypes.byref(count))
    tensors = (LogicalTensor * count.value)()
    call(f"dnnl_graph_partition_get_{which}_ports", partition, count, tensors)
    return list(tensors)


def _operations(partition: ctypes.c_void_p) -> list[int]:
    count = ctypes.c_size_t()
    call("dnnl_graph_partition_get_op_num", partition, ctypes.byref(count))
    numbers = (ctypes.c_size_t * count.value)()
    call("dnnl_graph_partition_get_ops", partition, count, numbers)
    return list(numbers)


class CompiledGraph:
    """All partitions of a region, ready to run."""

    def __init__(self, graph: GraphRegion, arrays: Mapping[str, np.ndarray]) -> None:
        self.graph = graph
        call("dnnl_graph_graph_filter", graph.graph, FUSION)
        count = ctypes.c_size_t()
        call("dnnl_graph_graph_get_partition_num", graph.graph, ctypes.byref(count))
        handles = (ctypes.c_void_p * count.value)()
        call("dnnl_graph_graph_get_partitions", graph.graph, count, handles)
        self.buffers: dict[int, np.ndarray] = {}
        self.tensors: dict[int, LogicalTensor] = {}
        boundary = {graph.values[name].tensor.id: arrays[name] for name in graph.region.boundary}
        for value in graph.values.values():
            if value.array is not None:
                self.tensors[value.tensor.id], self.buffers[value.tensor.id] = value.tensor, value.array
        for name in graph.region.inputs:
            number = graph.values[name].tensor.id
            self.tensors[number], self.buffers[number] = graph.values[name].tensor, arrays[name]
        waiting: list[ctypes.c_void_p] = []
        views = [view for view in graph.views if view.number is None]
        for partition in map(ctypes.c_void_p, handles):
            supported = ctypes.c_uint8()
            call("dnnl_graph_partition_is_supported", partition, ctypes.byref(supported))
            if supported.value:
                waiting.append(partition)
            else:
                (number,) = _operations(partition)
                views.append(next(view for view in graph.views if view.number == number))
        self.strided = {graph.values[view.source].tensor.id for view in views}
        self.partitions: list[Partition] = []
        self.copies: list[tuple[np.ndarray, np.ndarray]] = []
        self.steps: list[Partition | tuple[np.ndarray, np.ndarray]] = []
        while waiting or views:
            ready = [p for p in waiting if all(port.id in self.tensors for port in _ports(p, "input"))]
            seen = [view for view in views if graph.values[view.source].tensor.id in self.tensors]
            if not ready and not seen:
                raise RuntimeError("partitions that wait for each other, or for an operation that none has")
            for view in seen:
                self._view(view, boundary)
            for partition in ready:
                self.partitions.append(self._compile(partition, boundary))
                self.steps.append(self.partitions[-1])
            waiting = [p for p in waiting if p not in ready]
            views = [view for view in views if view not in seen]

    def _view(self, view: View, boundary: Mapping[int, np.ndarray]) -> None:
        """Make a tensor of another one's memory; copy where its elements are not in that order."""
        source, result = self.graph.values[view.source].tensor.id, self.graph.values[view.result].tensor
        tensor, shape = self.tensors[source], tuple(result.dims[: result.ndims])
        if tensor.layout_type != STRIDED:
            raise RuntimeError("a view of a value in a layout of the library")
        strides = [4 * step for step in tensor.layout.strides[: tensor.ndims]]
        whole = np.lib.stride_tricks.as_strided(
            self.buffers[source].view(np.float32).reshape(-1), tuple(tensor.dims[: tensor.ndims]), strides
        )
        a = view.node.attributes
        if view.node.op == "permute":
            moved = whole.transpose(a["axes"])
        elif view.node.op == "slice":
            ends = (b + size * step for b, size, step in zip(a["begin"], shape, a["steps"], strict=True))
            moved = whole[tuple(slice(b, e, s) for b, e, s in zip(a["begin"], ends, a["steps"], strict=True))]
        else:
            moved = whole.reshape(shape)
        target = boundary.get(result.id)
        if target is not None or not np.shares_memory(moved, whole):
            target = _aligned(4 * math.prod(shape)).view(np.float32).reshape(shape) if target is None else target
            origin = whole if view.node.op == "reshape" else moved
            into = target.reshape(origin.shape)
            self.copies.append((into, origin))
            self.steps.append((into, origin))
            moved = target
        logical = LogicalTensor()
        dims, steps = (ctypes.c_int64 * 12)(*shape), (ctypes.c_int64 * 12)(*(step // 4 for step in moved.strides))
        call(
            "dnnl_graph_logical_tensor_init_with_strides", ctypes.byref(logical), ctypes.c_size_t(result.id), F32,
            result.ndims, dims, steps, VARIABLE,
        )  # fmt: skip
        self.tensors[result.id], self.buffers[result.id] = logical, moved

    def _compile(self, partition: ctypes.c_void_p, boundary: Mapping[int, np.ndarray]) -> Partition:
        compiled = created("dnnl_graph_compiled_partition_create", partition)
        inputs = [self.tensors[port.id] for port in _ports(partition, "input")]
        outputs = _ports(partition, "output")
        for port in outputs:
            fixed = port.id in boundary or port.id in self.strided
            port.layout_type = STRIDED if fixed else ANY
            if fixed:
                strides = [math.prod(port.dims[i + 1 : port.ndims]) for i in range(port.ndims)]
                port.layout.strides = (ctypes.c_int64 * 12)(*strides)
        call(
            "dnnl_graph_partition_compile", partition, compiled, ctypes.c_size_t(len(inputs)), _pointers(inputs),
            ctypes.c_size_t(len(outputs)), _pointers(outputs), self.graph.engine,
        )  # fmt: skip
        for port in outputs:
            chosen, size = LogicalTensor(), ctypes.c_size_t()
            call(
                "dnnl_graph_compiled_partition_query_logical_tensor",
                compiled,
                ctypes.c_size_t(port.id),
                ctypes.byref(chosen),
            )
            call("dnnl_graph_logical_tensor_get_mem_size", ctypes.byref(chosen), ctypes.byref(size))
            self.tensors[port.id] = chosen
            self.buffers[port.id] = boundary.get(port.id, _aligned(size.value))
        return Partition(
            compiled,
            self._handles(port.id for port in inputs),
            self._handles(port.id for port in outputs),
            len(_operations(partition)),
        )

    def _handles(self, numbers: Iterator[int]) -> Any:
        handles = [
            created(
                "dnnl_graph_tensor_create", ctypes.byref(self.tensors[number]), self.graph.engine,
                ctypes.c_void_p(self.buffers[number].ctypes.data),
            ).value
            for number in numbers
        ]  # fmt: skip
        return (ctypes.c_void_p * len(handles))(*handles)

    def runner(self) -> Callable[[], None]:
        """Return a function that runs all partitions."""
        execute = load_library().handle.dnnl_graph_compiled_partition_execute
        wait, stream = load_library().handle.dnnl_stream_wait, self.graph.stream
        calls = [
            step
            if isinstance(step, tuple)
            else (
                step.compiled, stream, ctypes.c_size_t(len(step.inputs)), step.inputs,
                ctypes.c_size_t(len(step.outputs)), step.outputs,
            )
            for step in self.steps
        ]  # fmt: skip

        def run() -> None:
            for arguments in calls:
                if len(arguments) == 2:
                    np.copyto(*arguments)
                elif execute(*arguments):
                    raise RuntimeError("a partition failed")
            wait(stream)

        return run


def _pointers(tensors: Sequence[LogicalTensor]) -> Any:
    return (ctypes.POINTER(LogicalTensor) * len(tensors))(*(ctypes.pointer(tensor) for tensor in tensors))


def _aligned(size: int) -> np.ndarray:
    memory = np.zeros(size + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    return memory[begin : begin + size]


def measure(model: str, threads: int, repeat: int) -> list[Any]:
    """Return the figures of a row: of the model's largest region."""
    import mirlo

    exe = mirlo.compile(model, "onednn,llvm", threads=threads)
    plans = [(read(a.data), {n: exe._store.get(n) for n in a.params}) for a in exe.artifact.externals]
    plan, params = max(plans, key=lambda pair: sum(len(f.nodes) for f in pair[0].functions))
    region = max(plan.functions, key=lambda function: len(function.nodes))
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(region.tensors[name].shape, dtype=np.float32) for name in region.boundary}
    other = {name: arrays[name] if name in region.inputs else np.zeros_like(arrays[name]) for name in region.boundary}
    start = time.perf_counter()
    program = OneDnnProgram(OneDnnPlan((region,)), params, threads)
    built = time.perf_counter() - start
    with threads_set(threads):
        start = time.perf_counter()
        graph = CompiledGraph(GraphRegion(region, params), other)
        run_graph = graph.runner()
        run_graph()
        graph_built = time.perf_counter() - start
        tensors = [tensor_of_array(arrays[name]) for name in region.boundary]
        pointers = (ctypes.POINTER(DLTensor) * len(tensors))(*(ctypes.pointer(tensor) for tensor in tensors))
        function = program.functions[region.name]

        def run_primitives() -> None:
            if function(pointers, len(tensors)):
                raise RuntimeError("the region failed")

        run_primitives()
        difference = max(relative_error(other[name], arrays[name]) for name in region.outputs)
        turns = take_turns((run_primitives, run_graph), repeat)
    steps = len(program.reports[region.name].steps)
    alone = sum(partition.ops == 1 for partition in graph.partitions)
    counts = [steps, len(graph.partitions), alone, len(graph.copies)]
    return [*counts, built, graph_built, *turns.milliseconds, turns.ratio(1, 0), difference]


def main() -> int:
    arguments = model_arguments("python -m benchmarks.onednn_graph", __doc__, MODELS, repeat=20).parse_args()
    if arguments.here:
        model = str(path(arguments.models[0], arguments.cache))
        print(json.dumps(measure(model, arguments.threads[0], arguments.repeat)))
        return 0
    print("  ".join(title for title, _ in COLUMNS))
    failed = 0
    for name in arguments.models or MODELS:
        for threads in arguments.threads:
            words = [name, "--threads", threads, "--repeat", arguments.repeat]
            words += ["--cache", arguments.cache] if arguments.cache else []
            try:
                print_row(COLUMNS, [name, threads, *row_elsewhere("benchmarks.onednn_graph", words)])
            except RuntimeError as error:
                print(error, file=sys.stderr)
                failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
