"""The chips of target `nvvm`: what PTX they take, and how much of what a block of threads has."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from mirlo.runtime.errors import MirloError


@dataclass(frozen=True)
class Chip:
    """An NVIDIA GPU as the compiler sees it."""

    name: str
    ptx: int
    """Version of PTX that is written."""
    shared_bytes: int
    """Shared memory that a block may have."""
    units: int
    """Streaming multiprocessors of the largest chip of this kind."""
    tensor_cores: frozenset[str]
    """What its matrix units multiply."""
    converted: frozenset[str] = frozenset()
    """Of these what the assembler makes products of other numbers of, which takes registers."""
    has_async_copy: bool = True
    has_tma: bool = False
    has_warpgroups: bool = False
    """Whether four warps multiply together (`wgmma`), which is in no later chip."""

    @property
    def version(self) -> tuple[int, int]:
        """The compute capability."""
        return divmod(int("".join(c for c in self.name if c.isdigit())), 10)

    def runs_on(self, capability: tuple[int, int]) -> bool:
        """Whether machine code for this chip runs on a GPU: PTX runs on all later ones, machine code does not."""
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
"""By name. Code for one also runs on later ones, but that of `sm_90a`, which only runs there."""
DEFAULT = "sm_80"


class ChipError(MirloError, ValueError):
    """A chip that nobody knows."""


def find_chip(name: str) -> Chip:
    """The chip of this name."""
    if name not in CHIPS:
        near = difflib.get_close_matches(name, CHIPS, n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise ChipError(f"unknown chip '{name}'; {hint}known: {', '.join(CHIPS)}")
    return CHIPS[name]
