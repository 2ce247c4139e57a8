"""Convolutions with windows of one element in one channel: all layouts, with and without bias, compared with numpy."""

from __future__ import annotations

import numpy as np
import pytest

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context


@pytest.mark.sample(4)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("data_layout", "kernel_layout"), [("NC*", "OI*"), ("NC*", "*IO"), ("N*C", "OI*"), ("N*C", "O*I"), ("N*C", "*IO")]
)
@pytest.mark.parametrize("rank", [3, 4])
def test_result(data_layout: str, kernel_layout: str, rank: int, bias: bool, dtype: str) -> None:
    spatial = (5, 3)[: rank - 2]
    first = data_layout == "NC*"
    shape = (2, 6, *spatial) if first else (2, *spatial, 6)
    weight = tuple(6 if axis == "O" else 1 for axis in kernel_layout.replace("*", "*" * (rank - 2)))
    names = {"x": shape, "w": weight, **({"b": (6,)} if bias else {})}
    types = [f"tensor<{'x'.join(map(str, dims))}x{dtype}>" for dims in names.values()]
    parameters = ", ".join(f"%{name}: {kind}" for name, kind in zip(names, types, strict=True))
    operands = ", ".join(f"%{name}" for name in names)
    module = f"""
    func.func @main({parameters}) -> {types[0]} {{
      %0 = "relax.conv"({operands})
        {{groups = 6 : i64, data_layout = "{data_layout}", kernel_layout = "{kernel_layout}"}}
        : ({", ".join(types)}) -> {types[0]}
      return %0 : {types[0]}
    }}"""
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal(dims).astype({"f32": np.float32, "f64": np.float64}[dtype]) for dims in names.values()
    ]
    with make_context(), ir.Location.unknown():
        exe = mirlo.compile(ir.Module.parse(module), cache=False)
    assert not any("conv" in kernel.symbol for kernel in exe.artifact.kernels)
    per_channel = (6, *(1 for _ in spatial)) if first else (6,)
    x, *factors = arrays
    expected = x * factors[0].reshape(per_channel) + (factors[1].reshape(per_channel) if bias else 0)
    np.testing.assert_allclose(exe(*arrays), expected, rtol=1e-6, atol=1e-6)
