"""A recurrent network whose states decay to subnormal numbers: `python -m benchmarks.kernels.denormals [--steps N]`.

An LSTM with closed gates: its state falls below 2^-126 after some 30 steps. Mirlo with exact and with flushed subnormal
numbers and ONNX Runtime take turns; beside it, the same with open gates, whose states stay. Medians in milliseconds.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.benchmarks.turns import onnxruntime_session, take_turns

HIDDEN = 256
GATES = {"decays": -3.0, "stays": 6.0}
"""By what becomes of the state: the bias of the forget gate."""
REPEAT = 15


def model(steps: int, forget: float) -> Any:
    """Return an LSTM whose forget gate has a bias."""
    random = np.random.default_rng(0)
    bias = np.zeros((1, 8 * HIDDEN), np.float32)
    bias[:, : 2 * HIDDEN] = -20.0  # closed input, small output
    bias[:, 2 * HIDDEN : 3 * HIDDEN] = forget
    constants = {
        "w": np.zeros((1, 4 * HIDDEN, HIDDEN), np.float32),
        "r": (random.standard_normal((1, 4 * HIDDEN, HIDDEN)) * 0.01).astype(np.float32),
        "b": bias,
        "h": np.ones((1, 1, HIDDEN), np.float32),
        "c": np.ones((1, 1, HIDDEN), np.float32),
    }
    node = helper.make_node("LSTM", ["x", "w", "r", "b", "", "h", "c"], ["y"], hidden_size=HIDDEN)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, 1, HIDDEN])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "lstm", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=256)
    steps = parser.parse_args().steps
    x = np.zeros((steps, 1, HIDDEN), np.float32)
    print("| state | exact | flush | ONNX Runtime | flush / exact | flush / ONNX Runtime |\n|" + " --- |" * 6)
    for name, forget in GATES.items():
        lstm = model(steps, forget)
        exact = mirlo.compile(lstm, threads=1, cache=False)
        flushed = mirlo.compile(lstm, "llvm{denormals=flush}", threads=1, cache=False)
        session = onnxruntime_session(lstm.SerializeToString(), threads=1)
        calls = [partial(exact, x), partial(flushed, x), partial(session.run, None, {"x": x})]
        turns = take_turns(calls, REPEAT)
        times = " | ".join(f"{each:.2f}" for each in turns.milliseconds)
        print(f"| {name} | {times} | {turns.ratio(1, 0):.2f} | {turns.ratio(1, 2):.2f} |", flush=True)


if __name__ == "__main__":
    main()
