"""Forms of contractions that are schedules of primitives: lanes along K, one element, columns and K of run time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_models import F32, make_model, node

import mirlo
from mirlo.tools.explain.model import explain_model

SIZES = {"m": 13, "k": 37, "n": 21}
SMALL = {"m": 1, "k": 5, "n": 3}
EMPTY = {"m": 2, "k": 0, "n": 3}
FORMS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "rows by a transposed matrix": ([node("Einsum", "a b", "y", equation="mk,nk->mn")], {"a": [3, 70], "b": [33, 70]}),
    "matrix by a vector": ([node("Einsum", "a b", "y", equation="mk,k->m")], {"a": [40, 70], "b": [70]}),
    "products of rows": ([node("Einsum", "a b", "y", equation="mk,mk->m")], {"a": [40, 70], "b": [40, 70]}),
    "one element": ([node("Einsum", "a b", "y", equation="ij,ij->")], {"a": [7, 30], "b": [7, 30]}),
    "one element, transposed": ([node("Einsum", "a b", "y", equation="ij,ji->")], {"a": [7, 30], "b": [30, 7]}),
    "columns of run time": ([node("MatMul", "a b", "y")], {"a": [40, 64], "b": [64, "n"]}),
    "few rows and columns of run time": ([node("MatMul", "a b", "y")], {"a": [3, 64], "b": [64, "n"]}),
    "K of run time": ([node("MatMul", "a b", "y")], {"a": [40, "k"], "b": ["k", 64]}),
    "all sizes of run time": ([node("MatMul", "a b", "y")], {"a": ["m", "k"], "b": ["k", "n"]}),
    "panels for rows of run time": ([node("MatMul", "a b", "y")], {"a": ["m", 64], "b": [64, 100]}),
    "transposed columns of run time": (
        [node("Einsum", "a b", "y", equation="bmk,bnk->bmn")], {"a": [2, 40, 64], "b": [2, "n", 64]},
    ),
    "transposed panels for rows of run time": (
        [node("Einsum", "a b", "y", equation="mk,nk->mn")], {"a": ["m", 64], "b": [100, 64]},
    ),
    "lanes along K, columns of run time": (
        [node("Einsum", "a b", "y", equation="mk,nk->mn")], {"a": [1, 64], "b": ["n", 64]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("cpu", ["", "icelake-server", "neoverse-n1"])
@pytest.mark.parametrize("name", FORMS)
def test_forms_are_primitives(name: str, cpu: str, tmp_path: Path) -> None:
    """Each form is arranged by primitives on each processor, and computes the product on this one."""
    nodes, shapes = FORMS[name]
    model = make_model(nodes, {each: (F32, shape) for each, shape in shapes.items()}, ["y"])
    onnx.save(model, tmp_path / "product.onnx")
    target = f"llvm{{cpu={cpu}}}" if cpu else "llvm"
    explained = explain_model(str(tmp_path / "product.onnx"), target, tune=False)
    traces = [str(kernel.schedule.trace) for kernel in explained.kernels if kernel.schedule is not None]
    assert any("register_tile" in trace for trace in traces)
    if cpu:
        return
    f = mirlo.compile(tmp_path / "product.onnx", cache=False)
    equation = next((each.s.decode() for each in nodes[0].attribute), "mk,kn->mn")
    is_dynamic = any(isinstance(dim, str) for shape in shapes.values() for dim in shape)
    for sizes in (SIZES, SMALL, EMPTY) if is_dynamic else (SIZES,):
        random = np.random.default_rng(0)
        a, b = (
            random.integers(-8, 8, [sizes[dim] if isinstance(dim, str) else dim for dim in shape]).astype(np.float32)
            for shape in shapes.values()
        )
        np.testing.assert_array_equal(f(a, b), np.einsum(equation, a, b))
