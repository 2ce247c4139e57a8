"""`llvm{denormals=flush}`: kernels take and give zeros for subnormal numbers, their callers do not."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_models import F32, make_model, node

import mirlo
from mirlo.runtime.packed import packed
from mirlo.targets.llvm.machine import MachineError
from mirlo.targets.llvm.options import parse_options

TINY = np.float32(1e-40)
X = np.array([TINY, -TINY, 1.0, 2.0**-126] * 64, np.float32)


def halved() -> object:
    """Return a model that halves its input and doubles it again, by two kernels."""
    nodes = [node("Mul", "x h", "y"), node("Mul", "y t", "z")]
    return make_model(nodes, {"x": (F32, [X.size])}, ["y", "z"], {"h": np.float32(0.5), "t": np.float32(2)})


@pytest.mark.parametrize("threads", (1, 2))
def test_kernels_flush_and_callers_do_not(threads: int) -> None:
    model = mirlo.compile(halved(), "llvm{denormals=flush thread_work=1}", threads=threads, cache=False, jobs=1)
    y, z = model(X)
    expected = np.where(np.abs(X) < 2.0**-126, 0, X) * np.float32(0.5)
    np.testing.assert_array_equal(y, np.where(np.abs(expected) < 2.0**-126, 0, expected))
    assert z[2] == 1 and not z[:2].any()
    assert (X[:1] * np.float32(0.5))[0] != 0, "the caller's mode was not restored"


def test_subnormal_numbers_are_exact_by_default() -> None:
    y, z = mirlo.compile(halved(), cache=False, jobs=1)(X)
    np.testing.assert_array_equal(y, X * np.float32(0.5))
    np.testing.assert_array_equal(z, X * np.float32(0.5) * 2)


def test_packed_functions_run_in_the_callers_mode() -> None:
    """What a model calls in Python sees subnormal numbers."""
    found = []

    @packed("test.denormals.halve")
    def halve(x: np.ndarray, y: np.ndarray) -> None:
        found.append(float(np.float32(TINY) * np.float32(0.5)))
        y[:] = x * np.float32(0.5)

    @mirlo.script
    def model(x: mirlo.R.Tensor[(256,), mirlo.R.f32]):
        return mirlo.R.call_dps_packed("test.denormals.halve", x * 1.0, out=mirlo.R.Tensor[(256,), mirlo.R.f32])

    mirlo.compile(model, "llvm{denormals=flush}", cache=False, jobs=1)(X)
    assert found and found[0] != 0


@pytest.mark.parametrize("triple", ("aarch64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"))
def test_code_sets_the_mode(triple: str) -> None:
    cpu = "neoverse-n1" if triple.startswith("aarch64") else "x86-64-v3"
    target = f"llvm{{cpu={cpu} triple={triple} denormals=flush}}"
    kernels = mirlo.compile(halved(), target, cache=False, load=False)
    code = str(kernels.code(kernels.artifact.kernels[0].symbol))
    assert ("FPCR" if cpu == "neoverse-n1" else "ldmxcsr") in code


def test_other_values_are_refused() -> None:
    with pytest.raises(MachineError, match="option denormals of target 'llvm': expected exact, or flush on x86"):
        parse_options("denormals=zero")
    with pytest.raises(MachineError, match="option denormals"):
        parse_options("cpu=generic-rv64 triple=riscv64-unknown-linux-gnu denormals=flush")
