"""Products on several cores: what each has, what the first one broadcasts, bits, and speed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from mirlo_tensix import simulator
from mirlo_tensix.cores import SharedProduct, shared
from mirlo_tensix.generator import Tensix
from mirlo_tensix.instructions import FORMATS
from mirlo_tensix.products import Product
from mirlo_tensix.simulator import execute, why_too_large
from mirlo_tensix.steps import Numbers, ProductStep, Tensor
from mirlo_tensix.unit import Bits, from_tiles, product_bits, to_bits, to_tiles

needs_simulator = pytest.mark.skipif(simulator.missing() is not None, reason=f"simulator: {simulator.missing()}")


def on_cores(m: int, n: int, k: int, cores: int) -> SharedProduct:
    return SharedProduct(Product(m // cores, n, k, has_panels=True), cores)


def operands(m: int, n: int, k: int) -> tuple[Bits, Bits]:
    rng = np.random.default_rng(0)
    shapes = ((32 * m, 32 * k), (32 * k, 32 * n))
    left, right = (to_bits(rng.standard_normal(shape).astype(np.float32), FORMATS["bf16"]) for shape in shapes)
    return left, right


def test_commands_of_shared_products_have_rows_and_panels_of_whole_tiles() -> None:
    product = shared(Product(7, 4, 2), 4)
    assert isinstance(product, SharedProduct) and (product.part.m, product.m) == (2, 8)
    assert product.part.tensor_bytes == (2 * 2 * 2048, 3 * 2 * 2 * 2048, 2 * 4 * 2048)
    panels = product.panels_of(b"".join(bytes([i]) * 2048 for i in range(8)))
    assert list(panels[::2048]) == [0, 1, 4, 5, 2, 3, 6, 7]
    assert isinstance(shared(Product(3, 4, 2), 4), Product), "fewer rows than cores"
    with pytest.raises(ValueError, match="cores is 9: expected 1 to 8"):
        Tensix(cores=9)


def test_commands_of_panels_fit_where_the_whole_operand_does_not() -> None:
    whole = Product(4, 20, 16)
    assert "bytes of L1" in str(why_too_large(whole))
    assert why_too_large(SharedProduct(replace(whole, has_panels=True), 1)) is None
    step = ProductStep(
        "up", Tensor("x", False, (1024, 1024)), Tensor("w", True, (1024, 1024)), None, "y", 1, 1024, 1024, 1024,
        Numbers("bf16", 2), None,
    )  # fmt: skip
    assert why_too_large(step.product()) is not None and why_too_large(replace(step, cores=8).product()) is None


@needs_simulator
@pytest.mark.parametrize("size", [(2, 10, 1, 1), (4, 4, 2, 4), (4, 10, 2, 2)], ids=str)
def test_results_of_several_cores_have_the_bits_of_one(size: tuple[int, int, int, int]) -> None:
    left, right = operands(*size[:3])
    tiles, cycles = execute(on_cores(*size), to_tiles(left), to_tiles(right))
    np.testing.assert_array_equal(from_tiles(tiles, len(left), right.shape[1]), product_bits(left, right, 2))
    assert cycles.busy["matrix"] < cycles.simulated


@needs_simulator
def test_a_step_runs_on_two_cores() -> None:
    rng = np.random.default_rng(0)
    x, *params = (rng.standard_normal(shape).astype(np.float32) for shape in ((50, 40), (40, 70), (70,)))
    tensors = Tensor("x", False, (50, 40)), Tensor("w", True, (40, 70)), Tensor("b", True, (70,))
    one = ProductStep("up", *tensors, "y", 1, 50, 70, 40, Numbers("bf16", 2), "relu")
    named = dict(zip("wb", params, strict=True))
    results = [
        step.run({"x": x}, named, step.constants(named), lambda work, *tiles: execute(work, *tiles)[0])
        for step in (one, replace(one, cores=2))
    ]
    np.testing.assert_array_equal(*results)
    assert isinstance(replace(one, cores=2).product(), SharedProduct)


@needs_simulator
def test_four_cores_take_less_than_a_quarter_and_a_seventh_of_the_time_of_one() -> None:
    """A product of 512 x 256 and 256 x 512: the panels of weights are read once for all cores."""
    tiles = [to_tiles(each) for each in operands(16, 16, 8)]
    one, four = (execute(on_cores(16, 16, 8, cores), *tiles)[1].bound for cores in (1, 4))
    assert one >= 3.5 * four
