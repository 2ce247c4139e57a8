"""Matrix products and convolutions: `python -m benchmarks.kernels.contraction [NAME...] [--seconds S] [--core N]`.

Each case is compiled by Mirlo with constant weights, and as an ONNX model by ONNX Runtime with one thread. Both, and a
loop that does nothing but multiply-adds, take turns on one core. The table shows the time that a fifth of the turns
stays under (what else the machine does only ever adds to it), and the median of the ratios. Mirlo's time is that of its
kernels (convolutions lie in memory with their channels last, as they do inside of a network); ONNX Runtime's is that of
the whole call.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import mirlo
from benchmarks.turns import bound_runner
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.runtime.params import ParameterStore
from mirlo.tools.bench.peak import peak_loop


@dataclass(frozen=True)
class Case:
    """One product or convolution with bias and ReLU."""

    name: str
    x: tuple[int, ...]
    weight: tuple[int, ...]
    """As in ONNX: (k, n), or (out, in / groups, *window)."""
    stride: int = 1
    pad: int = 0
    groups: int = 1

    @property
    def is_conv(self) -> bool:
        return len(self.weight) > 2

    @property
    def out(self) -> tuple[int, ...]:
        if not self.is_conv:
            return (*self.x[:-1], self.weight[1])
        window = self.weight[2:]
        counts = ((s + 2 * self.pad - w) // self.stride + 1 for s, w in zip(self.x[2:], window, strict=True))
        return (self.x[0], self.weight[0], *counts)

    @property
    def flops(self) -> int:
        depth = self.weight[0] if not self.is_conv else int(np.prod(self.weight[1:]))
        return 2 * int(np.prod(self.out)) * depth


def conv(channels: int, size: int, out: int, window: int, stride: int = 1, pad: int = 0, groups: int = 1) -> Case:
    kind = "depthwise" if groups == channels else "conv"
    name = f"{kind} {channels}x{size}x{size} -> {out}, {window}x{window} /{stride}"
    return Case(name, (1, channels, size, size), (out, channels // groups, window, window), stride, pad, groups)


def product(m: int, n: int, k: int) -> Case:
    return Case(f"matmul {m}x{n}x{k}", (m, k), (k, n))


CASES = (
    product(512, 512, 512), product(1024, 1024, 1024), product(128, 768, 768), product(128, 3072, 768),
    product(128, 768, 3072), product(197, 3072, 768), product(64, 50257, 768), product(1, 1000, 2048),
    conv(64, 56, 64, 3, pad=1), conv(128, 28, 128, 3, pad=1), conv(256, 14, 256, 3, pad=1), conv(512, 7, 512, 3, pad=1),
    conv(512, 28, 128, 1), conv(64, 56, 256, 1), conv(256, 56, 128, 1, 2), conv(2048, 7, 512, 1),
    conv(3, 224, 64, 7, 2, 3),
    conv(32, 112, 32, 3, pad=1, groups=32), conv(96, 112, 96, 3, 2, 1, 96), conv(144, 56, 144, 3, pad=1, groups=144),
    conv(384, 14, 384, 3, pad=1, groups=384), conv(960, 7, 960, 3, pad=1, groups=960),
)  # fmt: skip


def mirlo_text(case: Case) -> str:
    """Return the case as a relax function, convolutions with their channels last."""

    def tensor(shape: tuple[int, ...]) -> str:
        return f"tensor<{'x'.join(map(str, shape))}xf32>"

    if case.is_conv:
        x, out = (tensor((s[0], *s[2:], s[1])) for s in (case.x, case.out))
        weight = tensor((*case.weight[2:], case.weight[1], case.weight[0]))
        dims = len(case.x) - 2
        pads, strides = ", ".join([str(case.pad)] * 2 * dims), ", ".join([str(case.stride)] * dims)
        attributes = f"padding = array<i64: {pads}>, strides = array<i64: {strides}>, groups = {case.groups} : i64"
        attributes += ', data_layout = "N*C", kernel_layout = "*IO"'
        operator = f'"relax.conv"(%x, %w) {{{attributes}}}'
        columns = case.weight[0]
    else:
        x, out, weight, operator = tensor(case.x), tensor(case.out), tensor(case.weight), '"relax.matmul"(%x, %w)'
        columns = case.weight[1]
    bias = tensor((columns,))
    return f"""
      func.func @main(%x: {x}) -> {out} {{
        %w = "relax.constant"() {{param = "w"}} : () -> {weight}
        %b = "relax.constant"() {{param = "b"}} : () -> {bias}
        %0 = {operator} : ({x}, {weight}) -> {out}
        %1 = "relax.add"(%0, %b) : ({out}, {bias}) -> {out}
        %2 = "relax.relu"(%1) : ({out}) -> {out}
        return %2 : {out}
      }}"""


def channels_last(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(array, 1, -1))


def mirlo_executable(case: Case, x: np.ndarray, w: np.ndarray, b: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return the case compiled, the array that it takes, and the result in ONNX's layout."""
    store = ParameterStore()
    is_conv = case.is_conv
    store.add("w", np.ascontiguousarray(np.moveaxis(w, (0, 1), (-1, -2))) if is_conv else w)
    store.add("b", b)
    with make_context(), ir.Location.unknown():
        executable = mirlo.compile(ir.Module.parse(mirlo_text(case)), params=store)
    operand = channels_last(x) if is_conv else x
    result = executable(operand)[0] if isinstance(executable(operand), (list, tuple)) else executable(operand)
    return executable, operand, np.moveaxis(result, -1, 1) if is_conv else result


def mirlo_runner(case: Case, x: np.ndarray, w: np.ndarray, b: np.ndarray) -> tuple[Callable[[], float], np.ndarray]:
    """Return a call that returns the seconds of the kernels, and the result."""
    executable, operand, result = mirlo_executable(case, x, w, b)

    def run() -> float:
        return executable.profile(operand, repeats=4).microseconds * 1e-6

    return run, result


def onnxruntime_runner(
    case: Case, x: np.ndarray, w: np.ndarray, b: np.ndarray
) -> tuple[Callable[[], float], np.ndarray]:
    """Return the same for ONNX Runtime."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    if case.is_conv:
        options: dict[str, Any] = {"strides": [case.stride] * 2, "pads": [case.pad] * 4, "group": case.groups}
        nodes = [helper.make_node("Conv", ["x", "w", "b"], ["z"], **options)]
    else:
        nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Add", ["y", "b"], ["z"])]
    nodes.append(helper.make_node("Relu", ["z"], ["out"]))
    graph = helper.make_graph(
        nodes, "case", [helper.make_tensor_value_info("x", TensorProto.FLOAT, case.x)],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, case.out)],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return bound_runner(model.SerializeToString(), {"x": x})


def measure(case: Case, seconds: float, peak: Any) -> tuple[float, float, float, float]:
    """GFLOP/s of the machine, of Mirlo and of ONNX Runtime; how many times faster Mirlo is."""
    generator = np.random.default_rng(0)
    x, w = (generator.standard_normal(s, dtype=np.float32) for s in (case.x, case.weight))
    b = generator.standard_normal(case.weight[0] if case.is_conv else case.weight[1], dtype=np.float32)
    ours, got = mirlo_runner(case, x, w, b)
    theirs, want = onnxruntime_runner(case, x, w, b)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3 * np.sqrt(case.flops / 2 / want.size))
    times: list[list[float]] = [[], [], []]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        start = time.perf_counter()
        peak.run()
        times[0].append(time.perf_counter() - start)
        times[1].append(ours())
        times[2].append(theirs())
    work = (peak.flops, case.flops, case.flops)
    machine, mirlo_, other = (w / np.quantile(t, 0.2) / 1e9 for w, t in zip(work, times, strict=True))
    return machine, mirlo_, other, statistics.median(b / a for a, b in zip(times[1], times[2], strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only cases whose names contain one of these")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each case is measured")
    parser.add_argument("--core", type=int, default=0, help="the core to stay on, where the system lets one choose")
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {arguments.core})
    peak = peak_loop()
    print(f"{'case':42} {'machine':>8} {'mirlo':>8} {'of peak':>8} {'ORT':>8} {'mirlo/ORT':>10}   (GFLOP/s)")
    for case in CASES:
        if arguments.names and not any(name in case.name for name in arguments.names):
            continue
        machine, ours, theirs, ratio = measure(case, arguments.seconds, peak)
        print(f"{case.name:42} {machine:8.1f} {ours:8.1f} {ours / machine:8.2f} {theirs:8.1f} {ratio:10.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
