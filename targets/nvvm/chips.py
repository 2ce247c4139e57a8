"""Chips of target `nvvm`: PTX version, matrix units, and resources of a thread block."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from mirlo.runtime.errors import MirloError


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
    converted: frozenset[str] = frozenset()
    """Those of them that the assembler emulates with other formats, at the cost of registers."""
    has_async_copy: bool = True
    has_tma: bool = False
    has_warpgroups: bool = False
    """Whether it has warpgroup products (`wgmma`), which no later chip has."""

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
CHIPS: dict[str, Chip] = {
    chip.name: chip
    for chip in (
        Chip("sm_80", 80, 163 * 1024, 108, _AMPERE),
        Chip("sm_89", 84, 99 * 1024, 142, _AMPERE | {"f8"}),
        Chip("sm_90a", 84, 227 * 1024, 132, _AMPERE | {"f8"}, frozenset({"f8"}), has_tma=True, has_warpgroups=True),
        Chip("sm_100", 86, 227 * 1024, 148, _AMPERE | {"f8"}, frozenset({"f8"}), has_tma=True),
    )
}
"""Chips by name. Code for one also runs on later ones, except that of `sm_90a`."""
DEFAULT = "sm_80"


class ChipError(MirloError, ValueError):
    """Raised for an unknown chip."""


def find_chip(name: str) -> Chip:
    """Return the chip with this name."""
    if name not in CHIPS:
        near = difflib.get_close_matches(name, CHIPS, n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise ChipError(f"unknown chip '{name}'; {hint}known: {', '.join(CHIPS)}")
    return CHIPS[name]
