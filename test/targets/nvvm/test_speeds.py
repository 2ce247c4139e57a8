"""What kernels are expected to take on each chip, those of target nvvm and those of NVIDIA's libraries."""

from __future__ import annotations

import pytest

from mirlo.passes.figures import RegionWork
from mirlo.targets.nvvm.chips import CHIPS
from mirlo.targets.nvvm.speeds import LIBRARY, MIRLO_KERNELS, figures_of, library_figures


def product(m: int, n: int, k: int, dtype: str = "f16") -> RegionWork:
    operands, result = (f"{dtype}[{m}, {k}]", f"{dtype}[{k}, {n}]"), f"{dtype}[{m}, {n}]"
    return RegionWork("relax.matmul", operands, (result,), 2 * m * n * k, 2 * (m * k + k * n + m * n))


def microseconds(chip: str, work: RegionWork, maker: object = MIRLO_KERNELS) -> float:
    return figures_of(chip, maker).cost(work).microseconds  # type: ignore[arg-type]


def test_the_figures_of_a_chip_are_of_its_formats() -> None:
    for chip in CHIPS.values():
        assert chip.peak.tflops.keys() == (chip.tensor_cores - {"bf16"}) | {"f32"}


@pytest.mark.parametrize("chip", CHIPS)
def test_large_products_reach_their_part_of_the_peak(chip: str) -> None:
    for maker in (MIRLO_KERNELS, LIBRARY):
        share = (
            2e-12
            * 8192**3
            / (1e-6 * microseconds(chip, product(8192, 8192, 8192), maker))
            / CHIPS[chip].peak.tflops["f16"]
        )
        reached = maker.share(CHIPS[chip]).product
        assert 0.85 * reached < share <= reached


def test_what_decides() -> None:
    cost = figures_of("sm_90a", MIRLO_KERNELS).cost
    # A tile more than there are units is another round.
    assert cost(product(128 * 132, 128, 4096)).microseconds < cost(product(128 * 133, 128, 4096)).microseconds
    assert "in 1 round" in cost(product(512, 512, 512)).why
    assert "parts" in cost(product(64, 64, 65536)).why
    assert "MB at 4320 GB/s" in cost(product(16, 16384, 4096)).why
    assert cost(product(1, 16384, 4096)).why == "bytes"
    rounded = figures_of("sm_90a", MIRLO_KERNELS, tf32=True).cost(product(4096, 4096, 4096, "f32")).microseconds
    assert rounded < cost(product(4096, 4096, 4096, "f32")).microseconds / 4
    attention = RegionWork("relax.attention", ("f16[1, 16, 4096, 128]",) * 2, ("f16[1, 16, 4096, 128]",), 10**11, 10**6)
    assert cost(attention).why == "0.45 of 989 TFLOP/s"
    decline_dynamic_dims = RegionWork("relax.matmul", ("f16[n, 64]", "f16[64, 64]"), ("f16[n, 64]",), 0, 10**6)
    assert cost(decline_dynamic_dims).why == "bytes"


def test_convolutions_are_products() -> None:
    """Whatever the layout: of places by channels, with sums along the window."""
    cost = figures_of("sm_90a", MIRLO_KERNELS).cost
    first, last = ("f16[32, 64, 56, 56]", "f16[64, 64, 3, 3]"), ("f16[32, 56, 56, 64]", "f16[64, 3, 3, 64]")
    flops, size = 2 * 32 * 56 * 56 * 64 * 64 * 9, 2 * 2 * 32 * 56 * 56 * 64
    found = [cost(RegionWork("relax.conv", kinds, (kinds[0],), flops, size)) for kinds in (first, last)]
    assert found[0] == found[1] and "tiles" in found[0].why
    deeper = RegionWork(
        "relax.conv", ("f16[32, 14, 14, 512]", "f16[512, 3, 3, 512]"), ("f16[32, 14, 14, 512]",), 10**9, 10**6
    )
    assert "49 x 4" not in cost(deeper).why and cost(deeper).microseconds > 30


def test_libraries_beside_another_target() -> None:
    assert library_figures("llvm", "", False) is None
    found = library_figures("nvvm", "chip=sm_89", False)
    assert found is not None and found.gbytes == 864 * LIBRARY.memory
