"""Everything but products: `python -m benchmarks.kernels.memory_bound [NAME...] [--seconds S] [--core N]`.

Each case is an ONNX model of one operator, compiled by Mirlo and run by ONNX Runtime with one thread. Both, and a copy
of as many bytes as the case reads and writes, take turns on one core; the table shows medians. Mirlo's time is that of
its kernels, ONNX Runtime's that of the whole call, some microseconds of which are no kernel. All arrays begin on a line
of the cache, as those between the kernels of a model do.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import mirlo
from benchmarks.turns import bound_runner
from mirlo.runtime.container import empty_aligned

F32, I64, BOOL = np.dtype(np.float32), np.dtype(np.int64), np.dtype(np.bool_)


@dataclass(frozen=True)
class Case:
    """One operator."""

    operator: str
    attributes: dict[str, Any]
    inputs: Sequence[tuple[tuple[int, ...], np.dtype]]
    constants: Sequence[np.ndarray] = ()
    """What it takes after its inputs."""
    below: int = 2
    """Integer inputs are smaller than this."""

    @property
    def name(self) -> str:
        shapes = " ".join("x".join(map(str, shape)) for shape, _ in self.inputs)
        return f"{self.operator} {shapes}"


def f32(*shape: int) -> tuple[tuple[int, ...], np.dtype]:
    return shape, F32


def one(operator: str, *inputs: Any, **attributes: Any) -> Case:
    return Case(operator, attributes, inputs)


CASES = (
    one("Softmax", f32(1536, 128), axis=-1), one("Softmax", f32(64, 4096), axis=-1),
    one("Softmax", f32(2364, 197), axis=-1), one("Softmax", f32(1, 1000), axis=-1),
    one("Softmax", f32(1, 21, 128, 128), axis=1),
    one("LayerNormalization", f32(128, 768), f32(768), f32(768)),
    one("LayerNormalization", f32(197, 1024), f32(1024), f32(1024)),
    one("ReduceMean", f32(512, 3072), axes=[1]), one("ReduceMean", f32(512, 3072), axes=[0]),
    one("ReduceMax", f32(64, 112, 112), axes=[1, 2]), one("ArgMax", f32(64, 1000), axis=1),
    one("GlobalAveragePool", f32(1, 2048, 7, 7)),
    one("Exp", f32(393216)), one("Tanh", f32(393216)), one("Sigmoid", f32(393216)), one("Erf", f32(393216)),
    one("Gelu", f32(393216)), one("Relu", f32(4194304)), one("Add", f32(393216), f32(393216)),
    one("Add", f32(128, 3072), f32(3072)), one("Mul", f32(1, 64, 56, 56), f32(64, 1, 1)),
    one("Where", ((512, 3072), BOOL), f32(512, 3072), f32(1)),
    one("Transpose", f32(768, 768), perm=[1, 0]), one("Transpose", f32(1, 64, 56, 56), perm=[0, 2, 3, 1]),
    one("Transpose", f32(1, 56, 56, 64), perm=[0, 3, 1, 2]), one("Transpose", f32(1, 128, 12, 64), perm=[0, 2, 1, 3]),
    one("Transpose", f32(1, 3, 224, 224), perm=[0, 2, 3, 1]),
    one("Transpose", f32(512, 512), perm=[1, 0]), one("Transpose", f32(197, 768), perm=[1, 0]),
    one("Transpose", f32(1, 197, 12, 64), perm=[0, 2, 1, 3]), one("Transpose", f32(1, 2048, 49), perm=[0, 2, 1]),
    one("Transpose", f32(1024, 1024), perm=[1, 0]), one("Transpose", f32(2000, 2000), perm=[1, 0]),
    one("Concat", f32(1, 64, 3136), f32(1, 64, 3136), axis=1), one("Concat", f32(3136, 64), f32(3136, 64), axis=1),
    Case("Pad", {}, [f32(1, 64, 56, 56)], [np.array([0, 0, 1, 1] * 2)]),
    Case("Gather", {"axis": 0}, [f32(30522, 768), ((128,), I64)], below=30522),
    one("MaxPool", f32(1, 64, 112, 112), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    one("MaxPool", f32(1, 64, 112, 112), kernel_shape=[2, 2], strides=[2, 2]),
    one("AveragePool", f32(1, 192, 28, 28), kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
)  # fmt: skip


def make_model(case: Case) -> Any:
    """Return the case as an ONNX model; `x0`, `x1`, ... are its inputs and `y` its output."""
    import onnx
    from onnx import helper, numpy_helper

    constants = [numpy_helper.from_array(array, f"c{i}") for i, array in enumerate(case.constants)]
    names = [f"x{i}" for i in range(len(case.inputs))] + [constant.name for constant in constants]
    node = helper.make_node(case.operator, names, ["y"], **case.attributes)
    types = [helper.np_dtype_to_tensor_dtype(dtype) for _, dtype in case.inputs]
    inputs = [
        helper.make_tensor_value_info(f"x{i}", kind, shape)
        for i, (kind, (shape, _)) in enumerate(zip(types, case.inputs, strict=True))
    ]
    output = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph([node], "case", inputs, [output], constants)
    version = 17 if case.operator.startswith("Reduce") else 20  # later on, the axes of reductions are an input
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def make_arrays(case: Case) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    arrays = []
    for shape, dtype in case.inputs:
        array = empty_aligned(dtype, shape)
        is_float = dtype == F32
        array[...] = generator.standard_normal(shape) if is_float else generator.integers(0, case.below, shape)
        arrays.append(array)
    return arrays


def copy_runner(count: int) -> Callable[[], float]:
    """Return a call that reads and writes this many bytes together, and returns its seconds."""
    source, target = (empty_aligned(np.dtype(np.uint8), (max(count // 2, 64),)) for _ in range(2))
    source[...], target[...] = 1, 0

    def run() -> float:
        start = time.perf_counter()
        np.copyto(target, source)
        return time.perf_counter() - start

    return run


def moved_bytes(case: Case, arrays: list[np.ndarray], out: np.ndarray) -> int:
    """Return the bytes read and written; of a table only the rows that are gathered."""
    if case.operator == "Gather":
        return arrays[1].nbytes + 2 * out.nbytes
    return sum(array.nbytes for array in arrays) + out.nbytes


def measure(case: Case, seconds: float) -> tuple[float, float, float, float]:
    """Return the seconds of Mirlo, of the copy and of ONNX Runtime, and the bytes that are moved."""
    model, arrays = make_model(case), make_arrays(case)
    executable = mirlo.compile(model)
    theirs, want = bound_runner(model.SerializeToString(), {f"x{i}": array for i, array in enumerate(arrays)})
    np.testing.assert_allclose(executable(*arrays), want, rtol=1e-3, atol=1e-4)
    count = moved_bytes(case, arrays, want)
    copy = copy_runner(count)
    times: list[list[float]] = [[], [], []]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        times[0].append(executable.profile(*arrays, repeats=5).microseconds * 1e-6)
        times[1] += [copy() for _ in range(5)]
        times[2] += [theirs() for _ in range(5)]
    ours, copied, other = (statistics.median(t) for t in times)
    return ours, copied, other, count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only cases whose names contain one of these")
    parser.add_argument("--seconds", type=float, default=0.5, help="how long each case is measured")
    parser.add_argument("--core", type=int, default=0, help="the core to stay on, where the system lets one choose")
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {arguments.core})
    print(f"{'case':42} {'us':>9} {'GB/s':>7} {'of copy':>8} {'ORT us':>9} {'ORT/mirlo':>10}")
    for case in CASES:
        if arguments.names and not any(name in case.name for name in arguments.names):
            continue
        ours, copied, other, count = measure(case, arguments.seconds)
        row = f"{case.name:42} {ours * 1e6:9.1f} {count / ours / 1e9:7.1f} {copied / ours:8.2f}"
        print(f"{row} {other * 1e6:9.1f} {other / ours:10.2f}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
