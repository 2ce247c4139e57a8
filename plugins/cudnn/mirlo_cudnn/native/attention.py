"""Attention as a graph of the library's operations, which its engines fuse into one flash-attention kernel.

The graph has the form that engines recognize: a product, a scale, a mask, a bound on positions, the steps of a
softmax, a product. Everything between the products is computed in f32; the weights are rounded to the type of the
values.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_float

from mirlo.extend.nvidia import DeviceState
from mirlo_cudnn.native import library as dnn
from mirlo_cudnn.native.backend import BOOLEAN, INT32, BackendTensor, Execution, Operation, OperationGraph
from mirlo_cudnn.native.library import CUDNN, CuDnnError, version
from mirlo_cudnn.plan import AttentionStep, contiguous

WORKSPACE = 256 << 20
"""The most bytes of scratch memory for an engine."""
OLDEST = (9, 0, 0)
BROKEN = ((9, 10, 0), (9, 10, 1))
"""Versions whose 16-bit attention is wrong, according to NVIDIA's own front end."""


class AttentionCall:
    """One attention: `mirlo.targets.nvvm.library_program.LibraryCall`."""

    def __init__(self, step: AttentionStep) -> None:
        require_version()
        self.step = step
        self._library = CUDNN.load()
        self._graph = graph_of(step)
        self._plans: dict[int, Execution] = {}

    def start(self, place: DeviceState, address: Callable[[int], int], stream: int) -> None:
        """Enqueue the attention on a stream."""
        step = self.step
        CUDNN.check(self._library.cudnnSetStream(place.handle, ctypes.c_void_p(stream)), "choosing a stream")
        plan = self._plans.get(place.gpu.number)
        if plan is None:
            what = f"attention of {step.q_shape} over {step.k_shape} in {step.dtype}"
            plan = self._plans[place.gpu.number] = Execution(self._graph, place.handle, WORKSPACE, what)
        numbers = {Q: step.q, K: step.k, V: step.v, Y: step.y, MASK: step.mask}
        memory = place.memory(("workspace", plan.memory), plan.memory) if plan.memory else 0
        plan.start(lambda number: address(_is_static(numbers[number])), memory)

    def release(self) -> None:
        """Release the plans."""
        for plan in self._plans.values():
            plan.release()
        self._plans.clear()


def require_version() -> None:
    """Raise an error if this version of the library has no attention, or a wrong one."""
    installed = version()
    if installed < OLDEST:
        raise CuDnnError(f"attention needs cuDNN 9, found {dotted(installed)}: pip install -U nvidia-cudnn-cu13")
    if installed in BROKEN:
        raise CuDnnError(f"attention is wrong in cuDNN {dotted(installed)}: pip install -U nvidia-cudnn-cu13")


Q, K, V, Y, MASK, SCALE, HIDDEN, LENGTH, QUERIES = range(1, 10)
"""Ids of the graph's inputs; the last four are scalars in CPU memory."""


def graph_of(step: AttentionStep) -> OperationGraph:
    """Return the operation graph of an attention."""
    result = _Graph(step)
    scores = result.score("matmul", (Q, K))
    scores = result.score("multiply", (scores, SCALE))
    if step.mask is not None:
        scores = result.score("add", (scores, MASK))
    if step.bound is not None:
        scores = _bounded(result, scores, step)
    largest = result.add("max", (scores,), result.row)
    weights = result.score("exp", (result.score("subtract", (scores, largest)),))
    total = result.add("sum", (weights,), result.row)
    # The row statistics that training would keep. They are unused, but engines recognize the graph by them.
    result.add("add", (largest, result.add("log", (total,), result.row)), result.row)
    # The operands of the second product have the type of the values.
    shares = result.add("divide", (weights, total), result.scores, kind=result.kind)
    result.operations.append(Operation("matmul", (shares, V), Y))
    return OperationGraph(tuple(result.tensors), tuple(result.operations), result.numbers)


def _bounded(graph: _Graph, scores: int, step: AttentionStep) -> int:
    """Mask scores beyond the bound, key <= query + bound, in the form that engines recognize.

    With a cache the bound is the difference of the lengths, which are passed separately.
    """
    row = graph.add("index", (scores,), graph.scores, kind=INT32, axis=2)
    column = graph.add("index", (scores,), graph.scores, kind=INT32, axis=3)
    if step.bound:
        graph.number(LENGTH, INT32, ctypes.c_int32(step.bound + step.q_shape[2]))
        graph.number(QUERIES, INT32, ctypes.c_int32(step.q_shape[2]))
        row = graph.add("add", (row, LENGTH), graph.scores, kind=INT32, compute=INT32)
        row = graph.add("subtract", (row, QUERIES), graph.scores, kind=INT32, compute=INT32)
    graph.number(HIDDEN, dnn.F32, ctypes.c_float(hidden()))
    seen = graph.add("greater_equal", (row, column), graph.scores, kind=BOOLEAN, compute=BOOLEAN)
    return graph.score("select", (scores, HIDDEN, seen))


def hidden() -> float:
    """Return the value of masked scores: the smallest finite value for old versions, else minus infinity."""
    return -3.4028234663852886e38 if version() < (9, 10, 0) else float("-inf")


class _Graph:
    """A graph under construction, which numbers the tensors between operations."""

    def __init__(self, step: AttentionStep) -> None:
        self.kind = dnn.TYPES[step.dtype][0]
        batch, heads, queries, size = step.q_shape
        keys = step.k_shape[2]
        self.scores, self.row = (batch, heads, queries, keys), (batch, heads, queries, 1)
        k_shape, k_strides = (tuple(x[i] for i in (0, 1, 3, 2)) for x in (step.k_shape, step.k_strides))
        self.tensors = [
            BackendTensor(Q, tuple(step.q_shape), tuple(step.q_strides), self.kind),
            BackendTensor(K, k_shape, k_strides, self.kind),
            BackendTensor(V, tuple(step.v_shape), tuple(step.v_strides), self.kind),
            BackendTensor(Y, (batch, heads, queries, step.v_shape[3]), tuple(step.y_strides), self.kind),
        ]
        self.operations: list[Operation] = []
        self.numbers: dict[int, c_float | ctypes.c_int32] = {}
        if step.mask is not None and step.mask_shape is not None:
            self.tensors.append(BackendTensor(MASK, tuple(step.mask_shape), contiguous(step.mask_shape), self.kind))
        self.number(SCALE, dnn.F32, ctypes.c_float(step.scale))
        self._next = QUERIES

    def number(self, which: int, kind: int, value: c_float | ctypes.c_int32) -> None:
        """Add a scalar in CPU memory."""
        self.tensors.append(BackendTensor(which, (1,) * 4, (1,) * 4, kind, is_host=True))
        self.numbers[which] = value

    def score(self, name: str, inputs: tuple[int, ...]) -> int:
        """Add an operation that computes scores in f32."""
        return self.add(name, inputs, self.scores)

    def add(
        self, name: str, inputs: tuple[int, ...], dims: Sequence[int], kind: int = dnn.F32, compute: int = dnn.F32,
        axis: int | None = None,
    ) -> int:  # fmt: skip
        """Add an operation; returns the id of its result."""
        self._next += 1
        self.tensors.append(BackendTensor(self._next, tuple(dims), contiguous(dims), kind, is_virtual=True))
        self.operations.append(Operation(name, inputs, self._next, compute, axis))
        return self._next


def dotted(numbers: tuple[int, ...]) -> str:
    """Return a version as text."""
    return ".".join(map(str, numbers))


def _is_static(number: int | None) -> int:
    assert number is not None
    return number
