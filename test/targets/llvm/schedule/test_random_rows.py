"""The rule `rows` on random kernels of rows: any order of reductions and elementwise blocks, rows of any length."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from presets import runs_code_of

import mirlo

ROWS = 6
PIPELINE = "builtin.module(schedule,lower-loops,lower-intrinsics,plan-memory)"
REDUCTIONS: dict[str, tuple[str, str, Callable[..., np.ndarray]]] = {
    "sum": ("0.0", "{out} + {x}", lambda x: x.sum(1)),
    "max": ('T.f32("-inf")', "T.max({out}, {x})", lambda x: x.max(1)),
}
MAPS: dict[str, tuple[int, int, str, Callable[..., np.ndarray]]] = {
    # Operands that are matrices and rows, the text, and what numpy makes of it.
    "double": (1, 0, "{0} * 2.0", lambda x: x * 2),
    "relu": (1, 0, "T.max({0}, 0.0)", lambda x: np.maximum(x, 0)),
    "mean": (2, 0, "({0} + {1}) * 0.5", lambda x, y: (x + y) / 2),
    "minus": (1, 1, "{0} - {1}", lambda x, row: x - row[:, None]),
    "scaled": (1, 1, "{0} / (T.abs({1}) + 1.0)", lambda x, row: x / (np.abs(row[:, None]) + 1)),
}


def _program(source: random.Random, columns: int) -> tuple[str, Callable[[np.ndarray], np.ndarray]]:
    """Return the text of a kernel of random blocks, and the same in numpy."""
    lines, steps = list[str](), list[tuple[str, Callable[..., np.ndarray], list[str]]]()
    matrices, rows = ["x"], list[str]()
    count = source.randint(3, 7)
    for i in range(count):
        name = "y" if i == count - 1 else f"b{i}"
        if name != "y" and source.random() < 0.4:
            start, text, function = REDUCTIONS[source.choice(sorted(REDUCTIONS))]
            read = source.choice(matrices[-2:])
            steps.append((name, function, [read]))
            value = text.format(out=f"{name}[vi]", x=f"{read}[vi, vj]")
            body = [
                'vi, vj = T.axes("SR", i, j)',
                "with T.init():",
                f"    {name}[vi] = {start}",
                f"{name}[vi] = {value}",
            ]
            lines.append(f"{name} = T.alloc(({ROWS},), T.f32)")
            rows.append(name)
        else:
            _, own, text, function = MAPS[chosen := source.choice([m for m in MAPS if rows or not MAPS[m][1]])]
            read = [source.choice(matrices[-2:]) for _ in range(MAPS[chosen][0])]
            by_row = [source.choice(rows) for _ in range(own)]
            steps.append((name, function, [*read, *by_row]))
            value = text.format(*(f"{each}[vi, vj]" for each in read), *(f"{each}[vi]" for each in by_row))
            body = ['vi, vj = T.axes("SS", i, j)', f"{name}[vi, vj] = {value}"]
            if name != "y":
                lines.append(f"{name} = T.alloc(({ROWS}, {columns}), T.f32)")
            matrices.append(name)
        lines += [f"for i, j in T.grid({ROWS}, {columns}):", f'    with T.block("{name}"):']
        lines += [f"        {line}" for line in body]

    def expected(x: np.ndarray) -> np.ndarray:
        values = {"x": x}
        for name, function, reads in steps:
            values[name] = function(*(values[each] for each in reads))
        return values["y"]

    shape = f"({ROWS}, {columns}), T.f32"
    text = "\n    ".join([f"def kernel(x: T.Buffer[{shape}], y: T.Out[{shape}]):", *lines])
    call = f"@mirlo.script\ndef model(x: R.Tensor[({ROWS}, {columns}), R.f32]):\n    return R.call_tir(kernel, x)\n"
    return f"import mirlo\nfrom mirlo import R, T\n\n\n@mirlo.prim_func\n{text}\n\n\n{call}", expected


@pytest.mark.sample(10)
@pytest.mark.parametrize("seed", range(400))
def test_results(seed: int, tmp_path: Path) -> None:
    source = random.Random(seed)
    columns = source.choice([1, 3, 15, 16, 17, 30, 45, 64, 100])
    text, expected = _program(source, columns)
    path = tmp_path / "random_rows.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("random_rows", path)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x = np.random.default_rng(seed).standard_normal((ROWS, columns)).astype(np.float32)
    target = source.choice(["llvm", *(f"llvm{{cpu={cpu}}}" for cpu in ("x86-64-v2", "x86-64-v3") if runs_code_of(cpu))])
    found = mirlo.compile(module.model, target, pipeline=PIPELINE, cache=False)(x)
    np.testing.assert_allclose(found, expected(x), rtol=2e-5, atol=2e-5)
