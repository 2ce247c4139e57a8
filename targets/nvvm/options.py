"""Options of target `nvvm`: the chip, and whether f32 products may be rounded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from mirlo.runtime.records import dataclass
from mirlo.targets.nvvm.chips import CHIPS, DEFAULT, Chip, ChipError, find_chip
from mirlo.targets.nvvm.device import capability, first_gpu

_YES, _NO = ("true", "1"), ("false", "0")


@dataclass(frozen=True)
class Options:
    """Parsed options such as `nvvm{chip=sm_90a tf32=true}`."""

    chip: Chip
    tf32: bool = False
    """Whether f32 operands are rounded to 10 fraction bits for the matrix units."""
    cubin: bool = False
    """Whether PTX is assembled at compile time."""
    libdevice: str = ""
    """The file of libdevice, or "true" to search for it; empty for none."""
    named: tuple[str, ...] = ()
    """Further files of functions that kernels may call."""

    @property
    def libraries(self) -> tuple[str, ...]:
        """Return the files of functions that kernels may call; `libdevice` stands for that of CUDA or a wheel."""
        own = {"": (), "true": ("libdevice",)}.get(self.libdevice, (self.libdevice,))
        return tuple(dict.fromkeys((*own, *self.named)))

    @property
    def machine(self) -> str:
        """Return the options as one word, for the pass `schedule`."""
        return f"{self.chip.name}+tf32" if self.tf32 else self.chip.name


def parse_options(text: str) -> Options:
    """Parse options in braces; without a chip use this machine's, or the one whose code most others run."""
    name, libdevice, named = "", "", []
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
        elif key == "library":
            if not value:
                raise ChipError("option library of target 'nvvm' needs a file: library=functions.bc")
            named.append(value)
        else:
            raise ChipError(
                f"target 'nvvm' has no option '{key}'; it has: chip={'|'.join(CHIPS)}, tf32=true|false, "
                "cubin=true|false, libdevice=true|false|FILE, library=FILE|libdevice (several times, for more)"
            )
    chip = find_chip(name or _present() or DEFAULT)
    return Options(_as_here(chip), flags["tf32"], flags["cubin"], libdevice, tuple(named))


def planned_for(options: Mapping[str, int | str | None]) -> Options:
    """Return the options that schedule rules plan for."""
    name, _, rest = str(options.get("machine") or "").partition("+")
    return parse_options(" ".join([*([f"chip={name}"] if name else []), *([f"{rest}=true"] if rest else [])]))


@cache
def _as_here(chip: Chip) -> Chip:
    """Return a chip with as many multiprocessors as this machine's GPU, if it is of that kind."""
    return replace(chip, units=first_gpu().units) if _present() == chip.name else chip


@cache
def _present() -> str | None:
    """Return the best chip whose code this machine's GPU runs, if there is a GPU."""
    present = capability()
    if present is None:
        return None
    if present == (9, 0):
        return "sm_90a"
    able = [chip for chip in CHIPS.values() if not chip.name.endswith("a") and chip.version <= present]
    return max(able, key=lambda chip: chip.version).name if able else None
