"""Throughput estimates of GPUs, of target `nvvm`'s kernels, and of NVIDIA's libraries.

Peak figures come from data sheets; the shares that kernels reach are estimates, which `python -m benchmarks.gpu`
measures. Products are counted in tiles, as the schedules count them, to account for too few tiles and partial waves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from mirlo.passes.figures import Cost, Figures, RegionWork
from mirlo.targets.gpu.schedule.costs import ALONE, LAUNCH, MIN_SPLIT_STEPS, Shape, tiled_seconds

FEW_ROWS = 8
"""Products with up to this many rows read a matrix once in any implementation."""


@dataclass(frozen=True)
class PeakFigures:
    """Peak figures of a chip."""

    name: str
    units: int
    tflops: Mapping[str, float]
    """Tera-operations per second by operand format; `f32` and `f64` without matrix units."""
    gbytes: float
    """Memory bandwidth, GB/s."""
    cache_gbytes: float
    """Approximate bandwidth of data shared by adjacent tiles, through the L2 cache and clusters, GB/s."""


DEVICES = {
    "sm_80": PeakFigures("A100", 108, {"f16": 312, "tf32": 156, "i8": 624, "f32": 19.5, "f64": 9.7}, 2039, 5000),
    "sm_89": PeakFigures(
        "L40S", 142, {"f16": 362, "tf32": 183, "i8": 733, "f8": 733, "f32": 91.6, "f64": 1.4}, 864, 5000
    ),
    "sm_90a": PeakFigures(
        "H200", 132, {"f16": 989, "tf32": 494, "i8": 1979, "f8": 1979, "f32": 67, "f64": 34}, 4800, 14000
    ),
    "sm_100": PeakFigures(
        "B200", 148, {"f16": 2250, "tf32": 1125, "i8": 4500, "f8": 4500, "f32": 75, "f64": 37}, 8000, 30000
    ),
}
"""Devices by chip name; figures for dense operands."""


@dataclass(frozen=True)
class KernelSource:
    """A source of kernels, with the share of peak that they reach."""

    matrix: Mapping[str, float]
    """Share of peak of products on the matrix units, by chip."""
    attention: Mapping[str, float]
    convolution: float
    """Throughput of convolutions relative to products."""
    plain: float
    memory: float
    kernel_us: float
    """Microseconds between kernels of a graph; general library kernels take longer to start."""
    tiles: tuple[tuple[int, int], ...]


MIRLO_KERNELS = KernelSource(
    matrix={"sm_80": 0.7, "sm_89": 0.7, "sm_90a": 0.7, "sm_100": 0.25},
    attention={"sm_80": 0.5, "sm_89": 0.5, "sm_90a": 0.35, "sm_100": 0.12},
    convolution=0.85, plain=0.7, memory=0.9, kernel_us=2.0,
    tiles=((128, 256), (128, 128), (128, 64), (64, 64)),
)  # fmt: skip
"""On `sm_100` Mirlo's products use `mma.sync`, which that chip supports for compatibility."""
LIBRARY = KernelSource(
    matrix={"sm_80": 0.85, "sm_89": 0.85, "sm_90a": 0.8, "sm_100": 0.8},
    attention={"sm_80": 0.65, "sm_89": 0.65, "sm_90a": 0.6, "sm_100": 0.6},
    convolution=0.8, plain=0.85, memory=0.85, kernel_us=2.5,
    tiles=((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64)),
)  # fmt: skip


def figures_of(chip: str, maker: KernelSource, tf32: bool = False) -> Figures:
    """Return the figures of kernels on a chip; `tf32` for rounded f32 operands."""
    device = DEVICES[chip]
    return Figures(
        gflops=1e3 * device.tflops["f32"] * maker.plain, gbytes=device.gbytes * maker.memory, call_us=maker.kernel_us,
        scales=False, expected=partial(expected, chip, maker, tf32),
    )  # fmt: skip


def library_figures(host: str, options: str, tf32: bool) -> Figures | None:
    """Return the figures of NVIDIA's libraries next to target nvvm; None next to other targets."""
    from mirlo.targets.nvvm.options import parse_options

    return figures_of(parse_options(options).chip.name, LIBRARY, tf32) if host == "nvvm" else None


def expected(chip: str, maker: KernelSource, tf32: bool, work: RegionWork) -> Cost | None:
    """Return the expected cost of contractions; None for others, which are bound by memory."""
    device = DEVICES[chip]
    types = [parsed(text) for text in (*work.operands[:2], *work.results[:1])]
    if len(types) < 3 or any(found is None for found in types):
        return None
    (left, dtype), (right, _), (result, _) = (found for found in types if found is not None)
    family = _family(dtype, tf32, device)
    peak = 1e12 * device.tflops[family]
    is_plain = family in ("f32", "f64")
    if work.operator == "relax.attention":
        share = maker.plain / 2 if is_plain else maker.attention[chip]
        return _longer(work, device, maker, work.flops / (peak * share), f"{share:.2f} of {peak / 1e12:.0f} TFLOP/s")
    share = maker.plain if is_plain else maker.matrix[chip]
    if work.operator == "relax.matmul" and min(len(left), len(right), len(result)) >= 2:
        *batches, rows, columns = result
        batch = math.prod(batches)
        depth = math.prod(left) // max(math.prod(left[:-2]) * rows, 1)
        if len(right) == 2:
            batch, rows = 1, rows * batch
        if rows <= FEW_ROWS:
            return None
        product = (batch, rows, columns, max(depth, 1))
    elif work.operator == "relax.conv":
        share *= maker.convolution
        # Kernels begin or end with their output dims; the rest is reduced.
        columns = right[0] if right[0] in result else right[-1]
        product = (1, math.prod(result) // max(columns, 1), columns, math.prod(right) // max(columns, 1))
    else:
        return None
    return _product(work, device, maker, product, share * peak, _bytes(dtype))


def _product(
    work: RegionWork,
    device: PeakFigures,
    maker: KernelSource,
    product: tuple[int, int, int, int],
    rate: float,
    size: int,
) -> Cost:
    """Return the lowest cost over tiles and split-K factors."""
    batch, rows, columns, depth = product
    bytes_of_unit = 1e9 * device.cache_gbytes / ALONE / device.units
    best, why = math.inf, ""
    for height, width in maker.tiles:
        for parts in (1, 2, 4, 8, 16):
            if parts > 1 and depth < parts * MIN_SPLIT_STEPS:
                break
            shape = Shape(height, width, rate / 2 / device.units)
            divided = (batch * parts, rows, columns, -(-depth // parts))
            took = tiled_seconds(divided, (size, size), shape, device.units, bytes_of_unit)
            if parts > 1:
                took += LAUNCH + 2 * 4 * parts * batch * rows * columns / (1e9 * device.gbytes)
            if took < best:
                blocks = batch * parts * -(-rows // height) * -(-columns // width)
                rounds = -(-blocks // device.units)
                best = took
                why = f"{blocks} tiles of {height} x {width} in {rounds} round{'s' if rounds > 1 else ''}"
                why += f", sums in {parts} parts" if parts > 1 else ""
    return _longer(work, device, maker, best, why)


def _longer(work: RegionWork, device: PeakFigures, maker: KernelSource, seconds: float, why: str) -> Cost:
    moved = work.size / (1e9 * device.gbytes * maker.memory)
    if moved > seconds:
        return Cost(1e6 * moved, f"{work.size / 1e6:.1f} MB at {device.gbytes * maker.memory:.0f} GB/s")
    return Cost(1e6 * seconds, why)


_TYPE = re.compile(r"^(\w+)\[([\d, ]*)\]$")


def parsed(text: str) -> tuple[list[int], str] | None:
    """Parse a tensor type of a record, `f16[128, 64]`, to dims and element type; None if a dim is dynamic."""
    found = _TYPE.match(text)
    return ([int(dim) for dim in found.group(2).split(",") if dim.strip()], found.group(1)) if found else None


def _family(dtype: str, tf32: bool, device: PeakFigures) -> str:
    if dtype in ("f16", "bf16"):
        return "f16"
    if dtype in ("i8", "u8"):
        return "i8"
    if dtype.startswith("f8"):
        return "f8" if "f8" in device.tflops else "f16"
    return "f64" if dtype == "f64" else "tf32" if tf32 else "f32"


def _bytes(dtype: str) -> int:
    return {"f64": 8, "f32": 4, "f16": 2, "bf16": 2}.get(dtype, 1)
