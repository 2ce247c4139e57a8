"""How fast GPUs compute, and how near kernels come to that: those of target `nvvm` and those of NVIDIA's libraries.

What a chip can do is from its data sheet; which part of it kernels reach is an estimate, of which `python -m
benchmarks.gpu` measures the truth. Products are counted in tiles, as the schedules count them, so that too few tiles,
or a last round with few, cost what they cost.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from mirlo.passes.figures import Cost, Figures, Work
from mirlo.targets.gpu.schedule.costs import ALONE, FEWEST_STEPS, LAUNCH, Shape, tiled_seconds

FEW_ROWS = 8
"""Products of so few rows read a matrix once, whoever computes them."""


@dataclass(frozen=True)
class Device:
    """What a chip can do."""

    name: str
    units: int
    tflops: Mapping[str, float]
    """Trillions of operations in a second, by the format of factors; `f32` and `f64` without matrix units."""
    gbytes: float
    """Of its memory."""
    cache_gbytes: float
    """Of what neighbouring tiles read together, through the second cache and by clusters: roughly."""


DEVICES = {
    "sm_80": Device("A100", 108, {"f16": 312, "tf32": 156, "i8": 624, "f32": 19.5, "f64": 9.7}, 2039, 5000),
    "sm_89": Device("L40S", 142, {"f16": 362, "tf32": 183, "i8": 733, "f8": 733, "f32": 91.6, "f64": 1.4}, 864, 5000),
    "sm_90a": Device("H200", 132, {"f16": 989, "tf32": 494, "i8": 1979, "f8": 1979, "f32": 67, "f64": 34}, 4800, 14000),
    "sm_100": Device(
        "B200", 148, {"f16": 2250, "tf32": 1125, "i8": 4500, "f8": 4500, "f32": 75, "f64": 37}, 8000, 30000
    ),
}
"""By the name of the chip; numbers of dense factors."""


@dataclass(frozen=True)
class Maker:
    """Whose kernels they are: which part of what a chip can do they reach."""

    matrix: Mapping[str, float]
    """Products on the matrix units, by chip."""
    attention: Mapping[str, float]
    convolution: float
    """To products."""
    plain: float
    memory: float
    kernel_us: float
    """Microseconds from one kernel of a graph to the next; those of libraries, made for many cases, begin later."""
    tiles: tuple[tuple[int, int], ...]


OWN = Maker(
    matrix={"sm_80": 0.7, "sm_89": 0.7, "sm_90a": 0.7, "sm_100": 0.25},
    attention={"sm_80": 0.5, "sm_89": 0.5, "sm_90a": 0.35, "sm_100": 0.12},
    convolution=0.85, plain=0.7, memory=0.9, kernel_us=2.0,
    tiles=((128, 256), (128, 128), (128, 64), (64, 64)),
)  # fmt: skip
"""On `sm_100` Mirlo's products go through `mma.sync`, which that chip has for older code."""
LIBRARY = Maker(
    matrix={"sm_80": 0.85, "sm_89": 0.85, "sm_90a": 0.8, "sm_100": 0.8},
    attention={"sm_80": 0.65, "sm_89": 0.65, "sm_90a": 0.6, "sm_100": 0.6},
    convolution=0.8, plain=0.85, memory=0.85, kernel_us=2.5,
    tiles=((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64)),
)  # fmt: skip


def figures_of(chip: str, maker: Maker, tf32: bool = False) -> Figures:
    """The figures of kernels on a chip; `tf32` for factors of f32 that are rounded."""
    device = DEVICES[chip]
    return Figures(
        gflops=1e3 * device.tflops["f32"] * maker.plain, gbytes=device.gbytes * maker.memory, call_us=maker.kernel_us,
        scales=False, expected=partial(expected, chip, maker, tf32),
    )  # fmt: skip


def library_figures(host: str, options: str, tf32: bool) -> Figures | None:
    """Those of NVIDIA's libraries beside target nvvm with its options; None beside another target."""
    from mirlo.targets.nvvm.options import parse_options

    return figures_of(parse_options(options).chip.name, LIBRARY, tf32) if host == "nvvm" else None


def expected(chip: str, maker: Maker, tf32: bool, work: Work) -> Cost | None:
    """What contractions take; None for the rest, which memory decides."""
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
        # Kernels begin with their outputs, or end with them; what they reduce is the rest.
        columns = right[0] if right[0] in result else right[-1]
        product = (1, math.prod(result) // max(columns, 1), columns, math.prod(right) // max(columns, 1))
    else:
        return None
    return _product(work, device, maker, product, share * peak, _bytes(dtype))


def _product(
    work: Work, device: Device, maker: Maker, product: tuple[int, int, int, int], rate: float, size: int
) -> Cost:
    """The best of the tiles, and of sums in parts."""
    batch, rows, columns, depth = product
    bytes_of_unit = 1e9 * device.cache_gbytes / ALONE / device.units
    best, why = math.inf, ""
    for height, width in maker.tiles:
        for parts in (1, 2, 4, 8, 16):
            if parts > 1 and depth < parts * FEWEST_STEPS:
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


def _longer(work: Work, device: Device, maker: Maker, seconds: float, why: str) -> Cost:
    moved = work.size / (1e9 * device.gbytes * maker.memory)
    if moved > seconds:
        return Cost(1e6 * moved, f"{work.size / 1e6:.1f} MB at {device.gbytes * maker.memory:.0f} GB/s")
    return Cost(1e6 * seconds, why)


_TYPE = re.compile(r"^(\w+)\[([\d, ]*)\]$")


def parsed(text: str) -> tuple[list[int], str] | None:
    """Dims and element type of a tensor type as records have it: `f16[128, 64]`; None where a dim is open."""
    found = _TYPE.match(text)
    return ([int(dim) for dim in found.group(2).split(",") if dim.strip()], found.group(1)) if found else None


def _family(dtype: str, tf32: bool, device: Device) -> str:
    if dtype in ("f16", "bf16"):
        return "f16"
    if dtype in ("i8", "u8"):
        return "i8"
    if dtype.startswith("f8"):
        return "f8" if "f8" in device.tflops else "f16"
    return "f64" if dtype == "f64" else "tf32" if tf32 else "f32"


def _bytes(dtype: str) -> int:
    return {"f64": 8, "f32": 4, "f16": 2, "bf16": 2}.get(dtype, 1)
