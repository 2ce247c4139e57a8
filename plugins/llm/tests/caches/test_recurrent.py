"""States of a fixed size of sequences that run in calls with changing others, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mirlo_llm import caches
from onnx import TensorProto, helper

import mirlo
from mirlo.extend.runtime import Executable, InputError

STATES = {"past": "present"}


def sums_model(batch: int | str = "b") -> Any:
    """Return a model that halves its state for each call and adds the sum of its tokens."""
    nodes = [
        helper.make_node("ReduceSum", ["x", "axis"], ["sum"], keepdims=0),
        helper.make_node("Mul", ["past", "half"], ["less"]),
        helper.make_node("Add", ["less", "sum"], ["present"]),
        helper.make_node("Neg", ["present"], ["y"]),
    ]
    shapes = {"x": [batch, "s", 3], "past": [batch, 3], "present": [batch, 3], "y": [batch, 3]}
    info = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()}
    constants = [
        helper.make_tensor("axis", TensorProto.INT64, [1], [1]),
        helper.make_tensor("half", TensorProto.FLOAT, [], [0.5]),
    ]
    graph = helper.make_graph(nodes, "sums", [info["x"], info["past"]], [info["y"], info["present"]], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def executable() -> Executable:
    return mirlo.compile(sums_model())


@pytest.mark.parametrize("seed", range(4))
def test_pools_of_states(executable: Executable, seed: int) -> None:
    """Each sequence has the state of its own calls, and goes back to where this is known."""
    random, count = np.random.default_rng(seed), 4
    pool = caches.pool(executable, count, pairs={}, states=STATES)
    zero = np.zeros(3, np.float32)
    known = [[(0, zero)] for _ in range(count)]
    """The lengths of each sequence at which its state is known, in their order."""
    for _ in range(60):
        action = random.integers(4)
        if action < 2:
            source, target = (int(i) for i in random.permutation(count)[:2])
            length = int(random.integers(pool.lengths[source] + 1))
            kept = pool.rewind(source, length) if action else pool.copy(source, target, length)
            found = [each for each in known[source] if each[0] <= length]
            assert kept == found[-1][0] == pool.lengths[source if action else target]
            whole = found[-1][0] == known[source][-1][0]
            known[source if action else target] = (
                known[source] if whole else sorted({0: (0, zero), kept: found[-1]}.values(), key=lambda each: each[0])
            )
            continue
        tokens = int(random.integers(1, 4))
        some = pool.select([int(i) for i in random.permutation(count)[: random.integers(1, count + 1)]])
        x = random.integers(-8, 8, (len(some.sequences), tokens, 3)).astype(np.float32)
        found_rows = some.run({"x": x}, tokens)["y"]
        for row, i, own in zip(found_rows, some.sequences, x, strict=True):
            length, state = known[i][-1]
            after = state * np.float32(0.5) + own.sum(0)
            np.testing.assert_allclose(row, -after, rtol=1e-6)
            known[i] = [(0, zero), *([(length, state)] if length else []), (length + tokens, after)]


def test_states_of_a_fixed_batch() -> None:
    compiled = mirlo.compile(sums_model(2))
    with pytest.raises(
        InputError, match=r"calls run any number of sequences, and the state .*past.* has a fixed batch"
    ):
        caches.pool(compiled, 2, pairs={}, states=STATES)
