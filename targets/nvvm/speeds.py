"""Throughput estimates of GPUs, of target `nvvm`'s kernels, and of NVIDIA's libraries.

Products are counted in tiles, as the schedules count them, to account for too few tiles and partial waves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from operator import attrgetter

from mirlo.passes.figures import Cost, Figures, RegionWork
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.costs import LAUNCH, MIN_SPLIT_STEPS, Shape, tiled_seconds
from mirlo.targets.nvvm.chips import Chip, PeakFigures, PeakShare, find_chip
from mirlo.targets.nvvm.options import parse_options

FEW_ROWS = 8
"""Products with up to this many rows read a matrix once in any implementation."""


@dataclass(frozen=True)
class KernelSource:
    """A source of kernels, with the share of peak that they reach."""

    share: Callable[[Chip], PeakShare]
    """Returns the share of the matrix units' peak."""
    convolution: float
    """Throughput of convolutions relative to products."""
    plain: float
    memory: float
    kernel_us: float
    """Microseconds between kernels of a graph; general library kernels take longer to start."""
    tiles: tuple[tuple[int, int], ...]


MIRLO_KERNELS = KernelSource(
    share=attrgetter("kernels"), convolution=0.85, plain=0.7, memory=0.9, kernel_us=2.0,
    tiles=((128, 256), (128, 128), (128, 64), (64, 64)),
)  # fmt: skip
LIBRARY = KernelSource(
    share=attrgetter("library"), convolution=0.8, plain=0.85, memory=0.85, kernel_us=2.5,
    tiles=((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64)),
)  # fmt: skip


def figures_of(chip: str, maker: KernelSource, tf32: bool = False) -> Figures:
    """Return the figures of kernels on a chip; `tf32` for rounded f32 operands."""
    device = find_chip(chip).peak
    return Figures(
        gflops=1e3 * device.tflops["f32"] * maker.plain, gbytes=device.gbytes * maker.memory, call_us=maker.kernel_us,
        scales=False, expected=partial(expected, chip, maker, tf32),
    )  # fmt: skip


def library_figures(host: str, options: str, tf32: bool) -> Figures | None:
    """Return the figures of NVIDIA's libraries next to target nvvm; None next to other targets."""
    return figures_of(parse_options(options).chip.name, LIBRARY, tf32) if host == "nvvm" else None


def expected(chip: str, maker: KernelSource, tf32: bool, work: RegionWork) -> Cost | None:
    """Return the expected cost of contractions; None for others, which are bound by memory."""
    found_chip = find_chip(chip)
    device, reached = found_chip.peak, maker.share(found_chip)
    types = [parsed(text) for text in (*work.operands[:2], *work.results[:1])]
    if len(types) < 3 or any(typed is None for typed in types):
        return None
    (left, dtype), (right, _), (result, _) = (typed for typed in types if typed is not None)
    family = _family(dtype, tf32, device)
    peak = 1e12 * device.tflops[family]
    is_plain = family in ("f32", "f64")
    if work.operator == "relax.attention":
        share = maker.plain / 2 if is_plain else reached.attention
        return _longer(work, device, maker, work.flops / (peak * share), f"{share:.2f} of {peak / 1e12:.0f} TFLOP/s")
    share = maker.plain if is_plain else reached.product
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
    return _product(work, found_chip, maker, product, share * peak, _bytes(dtype))


def _product(
    work: RegionWork,
    chip: Chip,
    maker: KernelSource,
    product: tuple[int, int, int, int],
    rate: float,
    size: int,
) -> Cost:
    """Return the lowest cost over tiles and split-K factors."""
    batch, rows, columns, depth = product
    device = chip.peak
    # Bytes of memory count in `_longer`.
    cache = 1e9 * device.cache_gbytes / chip.units
    best, why = math.inf, ""
    for height, width in maker.tiles:
        for parts in (1, 2, 4, 8, 16):
            if parts > 1 and depth < parts * MIN_SPLIT_STEPS:
                break
            shape = Shape(height, width, rate / 2 / chip.units)
            divided = (batch * parts, rows, columns, -(-depth // parts))
            took = tiled_seconds(divided, (size, size), shape, chip.units, moved=0, cache_of_unit=cache)
            if parts > 1:
                took += LAUNCH + 2 * 4 * parts * batch * rows * columns / (1e9 * device.gbytes)
            if took < best:
                blocks = batch * parts * -(-rows // height) * -(-columns // width)
                rounds = -(-blocks // chip.units)
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
    match = _TYPE.match(text)
    return ([int(dim) for dim in match.group(2).split(",") if dim.strip()], match.group(1)) if match else None


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
