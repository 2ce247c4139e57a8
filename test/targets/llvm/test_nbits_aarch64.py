"""Products with packed weights on AArch64: every variant against f64 under emulation, and the instructions of loops."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import product

import emulated_aarch64
import numpy as np
import pytest
from packed_products import BOUNDS, SHAPES, Weights, error, float_weights, kernels

import mirlo
from mirlo.driver.code import kernel_listings
from mirlo.driver.request import CompileRequest

needs_emulator = pytest.mark.skipif(bool(emulated_aarch64.missing()), reason=emulated_aarch64.missing() or "there is")
CPUS = ("neoverse-n1", "neoverse-n2")
"""With `sdot`, and with `smmla` as well."""
CASES = list(product((2, 4, 8), (16, 32, 64, 256), ("", "packed", "real"), ("i8", "i8x2")))


def target(cpu: str) -> str:
    return f"llvm{{cpu={cpu} triple=aarch64-linux-gnu}}"


@pytest.fixture
def emulated() -> Iterator[None]:
    with emulated_aarch64.models_run_emulated():
        yield


@pytest.mark.sample(0)
@needs_emulator
@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("bits, block, zeros, activations", CASES)
def test_variants(cpu: str, bits: int, block: int, zeros: str, activations: str) -> None:
    number = CASES.index((bits, block, zeros, activations))
    columns, rows = SHAPES[(number + number // 4) % len(SHAPES)]
    weights = Weights(columns, rows, bits, block, zeros, "f16" if number % 5 == 4 else "f32")
    executable = mirlo.compile(weights.model(4), target(cpu), activations=activations, cache=False, jobs=1)
    assert any(name.startswith(f"matmul_u{bits}_i8x") for name in kernels(executable))
    bound = max(BOUNDS[activations], 1e-3 if weights.dtype == "f16" else 0)
    for count in (1, 4, 9, 67):
        assert error(executable, weights, count) < bound


@pytest.mark.sample(2)
@needs_emulator
@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("bits, zeros, activations", ((4, "packed", "i8"), (8, "", "i8x2")))
def test_each_row_is_what_it_is_alone(cpu: str, bits: int, zeros: str, activations: str) -> None:
    weights = Weights(50, 96, bits, 32, zeros)
    executable = mirlo.compile(weights.model(4), target(cpu), activations=activations, cache=False, jobs=1)
    x = np.random.default_rng(1).standard_normal((70, 96)).astype(np.float32)
    x[3], x[8, 2] = 0, np.inf
    whole = np.asarray(executable(x))
    for first, last in ((0, 1), (3, 4), (7, 9), (5, 8), (65, 70)):
        np.testing.assert_array_equal(np.asarray(executable(x[first:last])), whole[first:last])


@needs_emulator
@pytest.mark.usefixtures("emulated")
def test_weights_of_floats() -> None:
    model, real = float_weights(50, 96, 32)
    executable = mirlo.compile(model, target("neoverse-n2"), activations="i8x2", cache=False, jobs=1)
    assert any(name.startswith("matmul_f4e2m1_i8x2") for name in kernels(executable))
    for count in (1, 7):
        x = np.random.default_rng(count).standard_normal((count, 96)).astype(np.float32)
        wanted = x @ real
        assert np.abs(np.asarray(executable(x)) - wanted).max() < BOUNDS["i8x2"] * np.abs(wanted).max()


def inner_loops(code: str) -> list[list[str]]:
    """Return the instructions of the loops that have no other loop in them."""
    labels, listed = dict[str, int](), list[str]()
    jumps = []
    for line in (line.partition("//")[0].strip() for line in code.splitlines()):
        if label := re.match(r"([.\w$]+):", line):
            labels[label[1]] = len(listed)
        elif line and not line.startswith("."):
            if (jump := re.search(r"(\.L[\w$]+)$", line)) and jump[1] in labels:
                jumps.append((labels[jump[1]], len(listed)))
            listed.append(line.split()[0])
    is_inner = [not any(a <= c and d <= b for c, d in jumps if (a, b) != (c, d)) for a, b in jumps]
    return [listed[a : b + 1] for (a, b), inner in zip(jumps, is_inner, strict=True) if inner]


EXTENSIONS = {"sxtl", "uxtl", "sshll", "ushll", "sshll2", "ushll2", "smull", "smull2", "mul", "mla"}


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("cpu", "rows", "bits", "instruction", "products", "most"),
    (
        ("neoverse-n1", 1, 4, "sdot", 16, 0.25), ("neoverse-n2", 1, 2, "sdot", 16, 0.27),
        ("neoverse-n1", 4, 4, "sdot", 16, 0.13), ("neoverse-n2", 4, 8, "sdot", 16, 0.13),
        ("neoverse-n1", 64, 4, "sdot", 16, 0.17), ("neoverse-n1", 64, 8, "sdot", 16, 0.16),
        ("neoverse-n2", 64, 4, "smmla", 32, 0.13), ("neoverse-n2", 64, 2, "smmla", 32, 0.13),
    ),
)  # fmt: skip
def test_instructions_of_loops(cpu: str, rows: int, bits: int, instruction: str, products: int, most: float) -> None:
    """Weights stay bytes: none are extended, and a multiply-add takes few instructions."""
    model = Weights(64, 256, bits, 32).model(4, (rows,))
    listings = kernel_listings(CompileRequest(model, target(cpu), activations="i8"), "asm")
    (code,) = (each.content.decode() for each in listings if "matmul_u" in each.symbol)
    loops = [loop for loop in inner_loops(code) if instruction in loop]
    assert loops
    for loop in loops:
        counts = Counter(loop)
        assert not EXTENSIONS & set(counts)
        assert len(loop) / (counts[instruction] * products) <= most
