"""Options of target `nvvm`: the chip that code is made for, and whether products of f32 may be rounded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from mirlo.targets.nvvm.chips import CHIPS, DEFAULT, Chip, ChipError, find_chip

_YES, _NO = ("true", "1"), ("false", "0")


@dataclass(frozen=True)
class Options:
    """What `nvvm{chip=sm_90a tf32=true}` says."""

    chip: Chip
    tf32: bool = False
    """Whether factors of f32 are rounded to 10 bits of fraction, so that the matrix units take them."""
    cubin: bool = False
    """Whether PTX is assembled when compiling."""
    libdevice: str = ""
    """The file of NVIDIA's library of math functions, or "true" for the one that is found; without it none is used."""

    @property
    def machine(self) -> str:
        """The same as one word: what the pass `schedule` is told."""
        return f"{self.chip.name}+tf32" if self.tf32 else self.chip.name


def parse_options(text: str) -> Options:
    """The options in braces; without a chip that of this machine, or the one whose code most others run."""
    name, libdevice = "", ""
    flags = {"tf32": False, "cubin": False}
    for part in text.split():
        key, _, value = part.partition("=")
        if key == "chip":
            name = value
        elif key in flags:
            if value not in _YES + _NO:
                raise ChipError(f"option {key} of target 'nvvm' is true or false, found '{value}'")
            flags[key] = value in _YES
        elif key == "libdevice":
            libdevice = "true" if value in _YES else "" if value in _NO else value
        else:
            raise ChipError(
                f"target 'nvvm' has no option '{key}'; it has: chip={'|'.join(CHIPS)}, tf32=true|false, "
                "cubin=true|false, libdevice=true|false|FILE"
            )
    chip = find_chip(name or _present() or DEFAULT)
    return Options(_as_here(chip), flags["tf32"], flags["cubin"], libdevice)


def planned_for(options: Mapping[str, Any]) -> Options:
    """What schedule rules plan for, of the options that they are given."""
    name, _, rest = str(options.get("machine") or "").partition("+")
    return parse_options(" ".join([*([f"chip={name}"] if name else []), *([f"{rest}=true"] if rest else [])]))


def chosen_chip(options: str) -> Chip:
    """The chip of the options of a target."""
    return parse_options(options).chip


@cache
def _as_here(chip: Chip) -> Chip:
    """A chip with as many units as that of this machine has, if it is one of the kind."""
    from mirlo.targets.nvvm.device import first_gpu

    return replace(chip, units=first_gpu().units) if _present() == chip.name else chip


@cache
def _present() -> str | None:
    """The best chip whose code the GPU of this machine runs, if there is one."""
    from mirlo.targets.nvvm.device import capability

    found = capability()
    if found is None:
        return None
    if found == (9, 0):
        return "sm_90a"
    able = [chip for chip in CHIPS.values() if not chip.name.endswith("a") and chip.version <= found]
    return max(able, key=lambda chip: chip.version).name if able else None
