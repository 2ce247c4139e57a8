"""Calls of models on a GPU, by the real bindings of CUDA's driver (for `test_bindings.py`)."""

from __future__ import annotations

import sys

import numpy as np

import mirlo
from mirlo import R
from mirlo.runtime.dtypes import numpy_dtype
from mirlo.targets.nvvm.device import CudaError


@mirlo.script
def product(x: R.Tensor[(1536, 1024), R.bf16], y: R.Tensor[(1024, 4096), R.bf16]):
    return R.matmul(x, y)


@mirlo.script
def summed(x: R.Tensor[("rows", 64), R.f32]):  # noqa: F821, UP037
    return R.reduce_sum(R.exp(x), axes=[1])


@mirlo.script
def transposed(x: R.Tensor[(64,), R.f32]):
    return R.negative(x)


def on_the_cpu() -> None:
    """Make two calls, the second by the graph of the first, and one that is timed."""
    compiled = mirlo.compile(product, target="nvvm", cache=False)
    factors = [np.zeros(shape, numpy_dtype("bf16")) for shape in ((1536, 1024), (1024, 4096))]
    for _ in range(2):
        compiled(*factors)
    compiled.profile(*factors, repeats=1)


def on_the_device() -> None:
    """Check a result that stays on the device, in the order of the caller's stream, and that is passed on."""
    compiled = mirlo.compile(summed, target="nvvm", cache=False)
    made = compiled.on_device(np.zeros((5, 64), np.float32), stream=77)
    made.__dlpack__(stream=2)
    made.numpy()


def refused() -> None:
    """PTX that the driver does not take."""
    compiled = mirlo.compile(transposed, target="nvvm", cache=False)
    object.__setattr__(compiled.artifact, "code", compiled.artifact.code.replace(b"st.global", b"no.global"))
    try:
        compiled(np.zeros(64, np.float32))
    except CudaError as error:
        print(error)


if __name__ == "__main__":
    {"cpu": on_the_cpu, "device": on_the_device, "refused": refused}[sys.argv[1]]()
