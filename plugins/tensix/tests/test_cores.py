"""Products on several cores: what each has, what the first one broadcasts, bits, and speed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mirlo_tensix import loader, region, simulator
from mirlo_tensix.cores import MOVER_BYTES, SharedProduct
from mirlo_tensix.generator import Tensix
from mirlo_tensix.instructions import FORMATS
from mirlo_tensix.products import Product
from mirlo_tensix.simulator import Cycles, Machine, SimulatorError, places_of
from mirlo_tensix.unit import Bits, from_tiles, to_bits, to_tiles
from model import product_bits
from test_convolutions import CASES, Case, conv_file, numbers
from test_products import model_file

import mirlo

needs_simulator = pytest.mark.skipif(simulator.missing() is not None, reason=f"simulator: {simulator.missing()}")


def on_cores(m: int, n: int, k: int, cores: int) -> SharedProduct:
    return SharedProduct(Product(m // cores, n, k, has_panels=True), cores)


def operands(m: int, n: int, k: int) -> tuple[Bits, Bits]:
    rng = np.random.default_rng(0)
    shapes = ((32 * m, 32 * k), (32 * k, 32 * n))
    left, right = (to_bits(rng.standard_normal(shape).astype(np.float32), FORMATS["bf16"]) for shape in shapes)
    return left, right


def test_commands_of_shared_products_have_rows_and_panels_of_whole_tiles() -> None:
    product = on_cores(8, 4, 2, 4)
    assert product.part.tensor_bytes == (2 * 2 * 2048, 3 * 2 * 2 * 2048, 0, 2 * 4 * 2048)
    panels = product.panels_of(b"".join(bytes([i]) * 2048 for i in range(8)))
    assert list(panels[::2048]) == [0, 1, 4, 5, 2, 3, 6, 7]
    with pytest.raises(ValueError, match="cores is 9: expected 1 to 8"):
        Tensix(cores=9)


def test_commands_of_panels_fit_where_the_whole_operand_does_not() -> None:
    whole = Product(4, 20, 16)
    with pytest.raises(SimulatorError, match="bytes of L1"):
        places_of(whole)
    assert places_of(replace(whole, has_panels=True))


def run(work: SharedProduct, left: Bits, right: Bits) -> tuple[Bits, Cycles]:
    with Machine(work.cores) as machine:
        content, cycles = machine.run_shared(work, to_tiles(left), to_tiles(right), None)
    return from_tiles(np.frombuffer(content, np.uint16), len(left), right.shape[1]), cycles


@needs_simulator
@pytest.mark.parametrize(
    "size", [(2, 10, 1, 1), (4, 4, 2, 4), pytest.param((4, 10, 2, 2), marks=pytest.mark.nightly)], ids=str
)
def test_results_of_several_cores_have_the_bits_of_one(size: tuple[int, int, int, int]) -> None:
    left, right = operands(*size[:3])
    found, cycles = run(on_cores(*size), left, right)
    np.testing.assert_array_equal(found, product_bits(left, right, 2))
    assert cycles.busy["matrix"] < cycles.simulated


@needs_simulator
@pytest.mark.nightly
def test_layers_on_two_cores_have_the_bits_of_one(tmp_path: Path) -> None:
    path, x = model_file(tmp_path / "layers.onnx", (50,)), operands(2, 2, 2)[0][:50, :48].astype(np.float32) / 2**16
    exes = [mirlo.compile(path, f"tensix{{cores={cores}}},llvm", cache=False) for cores in (1, 2)]
    found = [exe(x) for exe in exes]
    np.testing.assert_allclose(*found, atol=1e-2 * np.abs(found[0]).max())
    (steps,) = exes[1].profile(x, repeats=1).device.values()
    assert [step.name for step in steps] == ["relu", "down"]


@pytest.mark.usefixtures("unit_in_numpy")
@pytest.mark.parametrize("room", [432, 64], ids=["whole", "in turns"])
@pytest.mark.parametrize(
    "case", [CASES[2], CASES[5], CASES[6], ((1, 40, 9, 8), (72, 40, 3, 3), *CASES[0][2:])], ids=str
)
def test_bits_of_convolutions_on_several_cores_are_those_of_one(
    case: Case, room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, x = conv_file(tmp_path / "conv.onnx", case), numbers(0, case[0])
    expected = mirlo.compile(path, "tensix{phases=4},llvm", cache=False)(x)  # which multiplies all bits of results
    monkeypatch.setattr(region, "L1_TENSORS", MOVER_BYTES + 2048 * room)
    shared = mirlo.compile(path, "tensix{phases=4 cores=3},llvm", cache=False)
    np.testing.assert_array_equal(shared(x), expected)
    (external,) = shared.artifact.externals
    assert b'"is": "RunShared"' in external.data


@needs_simulator
@pytest.mark.parametrize("case", [CASES[6], pytest.param(CASES[5], marks=pytest.mark.nightly)], ids=str)
def test_convolutions_on_two_cores_have_the_bits_of_the_unit(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numpy_machine: type
) -> None:
    shared = mirlo.compile(conv_file(tmp_path / "conv.onnx", case), "tensix{cores=2},llvm", cache=False)
    found = shared(x := numbers(0, case[0]))
    monkeypatch.setattr(loader, "Machine", numpy_machine)
    np.testing.assert_array_equal(found, shared(x))


@needs_simulator
@pytest.mark.nightly
def test_four_cores_convolve_in_less_than_a_third_of_the_time_of_one(tmp_path: Path) -> None:
    case = ((1, 64, 32, 32), (64, 64, 3, 3), *CASES[0][2:])
    path, x = conv_file(tmp_path / "conv.onnx", case), numbers(0, case[0])
    targets = ("tensix,llvm", "tensix{cores=4},llvm")
    profiles = [mirlo.compile(path, target, cache=False).profile(x, repeats=1) for target in targets]
    one, four = ([*profile.device.values()][0][0] for profile in profiles)
    assert one.amount + one.details["DRAM"] >= 3.3 * four.amount, (one, four)


@needs_simulator
@pytest.mark.nightly
def test_four_cores_take_less_than_a_quarter_and_a_seventh_of_the_time_of_one() -> None:
    """A product of 512 x 256 and 256 x 512: the panels of weights are read once for all cores."""
    tiles = operands(16, 16, 8)
    one, four = (run(on_cores(16, 16, 8, cores), *tiles)[1].bound for cores in (1, 4))
    print(f"{one} and {four} cycles: {one / four:.2f} times as fast")
    assert one >= 3.5 * four
