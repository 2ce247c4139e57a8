"""Chips of target `nvvm`: PTX version, matrix units, resources of a thread block, and how fast they are."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import field

from mirlo.runtime.errors import MirloError
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class PeakFigures:
    """Figures of a device's data sheet, for dense operands."""

    device: str
    tflops: Mapping[str, float] = field(hash=False)
    """Tera-operations per second by operand format; `f32` and `f64` without matrix units."""
    gbytes: float
    """Memory bandwidth, GB/s."""
    cache_gbytes: float
    """Approximate bandwidth of data shared by adjacent tiles, through the L2 cache and clusters, GB/s."""


@dataclass(frozen=True)
class PeakShare:
    """The share of the matrix units' peak that kernels reach, estimated: `python -m benchmarks.gpu` measures it."""

    product: float
    attention: float


@dataclass(frozen=True)
class Chip:
    """An NVIDIA GPU as the compiler sees it."""

    name: str
    ptx: int
    """PTX version to emit."""
    shared_bytes: int
    """Most shared memory of a thread block."""
    units: int
    """Streaming multiprocessors of the largest chip of this kind."""
    tensor_cores: frozenset[str]
    """Operand formats of its matrix units."""
    peak: PeakFigures
    """Figures of its largest device."""
    converted: frozenset[str] = frozenset()
    """Those of them that the assembler emulates with other formats, at the cost of registers."""
    has_warpgroups: bool = False
    """Whether it has warpgroup products (`wgmma`), which no later chip has."""
    has_tensor_memory: bool = False
    """Whether it has products with accumulators in tensor memory (`tcgen05`)."""
    kernels: PeakShare = PeakShare(product=0.7, attention=0.5)
    """What kernels of target `nvvm` reach."""
    library: PeakShare = PeakShare(product=0.85, attention=0.65)
    """What those of NVIDIA's libraries reach."""

    @property
    def version(self) -> tuple[int, int]:
        """Return the compute capability."""
        return divmod(int("".join(c for c in self.name if c.isdigit())), 10)

    def runs_on(self, capability: tuple[int, int]) -> bool:
        """Return whether machine code for this chip runs on a GPU; unlike PTX, it does not run on later ones."""
        if self.name.endswith("a"):
            return capability == self.version
        return capability[0] == self.version[0] and capability >= self.version


_AMPERE = frozenset({"f16", "bf16", "tf32", "i8", "f64"})
_ADA = _AMPERE | {"f8"}
_A100 = PeakFigures("A100", {"f16": 312, "tf32": 156, "i8": 624, "f32": 19.5, "f64": 9.7}, 2039, 5000)
_A40 = PeakFigures("A40", {"f16": 150, "tf32": 75, "i8": 299, "f32": 37.4, "f64": 0.6}, 696, 2500)
_L40S = PeakFigures("L40S", {"f16": 362, "tf32": 183, "i8": 733, "f8": 733, "f32": 91.6, "f64": 1.4}, 864, 5000)
_H200 = PeakFigures("H200", {"f16": 989, "tf32": 494, "i8": 1979, "f8": 1979, "f32": 67, "f64": 34}, 4800, 14000)
_B200 = PeakFigures("B200", {"f16": 2250, "tf32": 1125, "i8": 4500, "f8": 4500, "f32": 75, "f64": 37}, 8000, 30000)
_RTX_PRO_6000 = PeakFigures(
    "RTX PRO 6000", {"f16": 503, "tf32": 251, "i8": 1007, "f8": 1007, "f32": 125, "f64": 2}, 1792, 8000
)
CHIPS: dict[str, Chip] = {
    chip.name: chip
    for chip in (
        Chip("sm_80", 80, 163 * 1024, 108, _AMPERE, _A100),
        Chip("sm_86", 80, 99 * 1024, 84, _AMPERE, _A40),
        Chip("sm_89", 84, 99 * 1024, 142, _ADA, _L40S),
        Chip(
            "sm_90a", 84, 227 * 1024, 132, _ADA, _H200, frozenset({"f8"}), has_warpgroups=True,
            # Both measured on an H100.
            kernels=PeakShare(0.78, 0.45), library=PeakShare(0.82, 0.6),
        ),
        # Products use `mma.sync`, which this chip supports for compatibility.
        Chip(
            "sm_100", 86, 227 * 1024, 148, _ADA, _B200, frozenset({"f8"}),
            kernels=PeakShare(0.25, 0.12), library=PeakShare(0.8, 0.6),
        ),
        # The same chip, with code that runs on no other.
        Chip(
            "sm_100a", 86, 227 * 1024, 148, _ADA, _B200, frozenset({"f8"}), has_tensor_memory=True,
            kernels=PeakShare(0.5, 0.12), library=PeakShare(0.8, 0.6),
        ),
        Chip("sm_120", 87, 99 * 1024, 188, _ADA, _RTX_PRO_6000),
    )
}  # fmt: skip
"""Chips by name. Code for one also runs on later ones, except that of `sm_90a` and `sm_100a`."""
DEFAULT = "sm_80"


class ChipError(MirloError, ValueError):
    """Raised for an unknown chip."""

    error_code = "MIR0503"
    remedy = "Name a chip that the message lists, such as `nvvm{chip=sm_90a}`."


def find_chip(name: str) -> Chip:
    """Return the chip with this name."""
    if name not in CHIPS:
        near = difflib.get_close_matches(name, CHIPS, n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise ChipError(f"unknown chip '{name}'; {hint}known: {', '.join(CHIPS)}")
    return CHIPS[name]
