"""Concatenations and stacks of many operands, compared with numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import mirlo
from mirlo.targets.llvm.legalize import joins

TYPES = (np.float32, np.float64, np.float16, np.int8, np.int64, np.bool_)


def _model(dims: list[list[int | str]], axis: int, element: type, stack: bool) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(element))
    names = [f"x{i}" for i in range(len(dims))]
    sequence = helper.make_node("SequenceConstruct", names, ["s"])
    joined = helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=axis, new_axis=1)
    graph = helper.make_graph(
        [sequence, joined] if stack else [helper.make_node("Concat", names, ["y"], axis=axis)],
        "joined",
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in zip(names, dims, strict=True)],
        [helper.make_tensor_value_info("y", kind, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.sample(0)
@pytest.mark.parametrize("seed", range(12))
def test_any_sizes(seed: int) -> None:
    """Dims are numbers or symbols, sizes also 0, runs shorter and longer than vectors."""
    rng = np.random.default_rng(seed)
    element, rank, stack = TYPES[seed % len(TYPES)], int(rng.integers(1, 5)), seed % 4 == 3
    axis, count = int(rng.integers(rank + stack)), int(rng.integers(5, 12))
    shared = [rng.choice(["a", "b", "3", "17"]) for _ in range(rank)]
    dims: list[list[int | str]] = [[int(dim) if dim.isdigit() else str(dim) for dim in shared] for _ in range(count)]
    if not stack:
        for i, shape in enumerate(dims):
            shape[axis] = f"n{i}" if rng.random() < 0.3 else int(rng.integers(0, 70))
    compiled = mirlo.compile(_model(dims, axis, element, stack))
    for _ in range(4):
        sizes: dict[str, int] = {name: int(rng.integers(0, 40)) for name in ("a", "b")}
        arrays = []
        for shape in dims:
            sizes.update({dim: int(rng.integers(0, 40)) for dim in shape if isinstance(dim, str) and dim[0] == "n"})
            whole = [sizes[dim] if isinstance(dim, str) else dim for dim in shape]
            arrays.append((rng.standard_normal(whole) * 50).astype(element))
        wanted = np.stack(arrays, axis) if stack else np.concatenate(arrays, axis)
        np.testing.assert_array_equal(compiled(*arrays), wanted)


@pytest.mark.sample(0)
@pytest.mark.parametrize("stack", [True, False])
def test_many_dynamic_operands_take_several_kernels(stack: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel has a limited number of parallel loops; equal groups share one."""
    monkeypatch.setattr(joins, "MAX_OPERANDS", 5)
    operands = []
    joined = joins._joined

    def counted(b: Any, xs: Any, *rest: Any) -> Any:
        operands.append(len(xs))
        return joined(b, xs, *rest)

    monkeypatch.setattr(joins, "_joined", counted)
    compiled = mirlo.compile(_model([["a"]] * 22, 0, np.float32, stack), cache=False)
    rows = [np.arange(i, i + 19, dtype=np.float32) for i in range(22)]
    np.testing.assert_array_equal(compiled(*rows), np.stack(rows) if stack else np.concatenate(rows))
    assert len(operands) >= 4 and max(operands) == 5
