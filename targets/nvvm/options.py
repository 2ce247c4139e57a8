"""Options of target `nvvm`: the chip that code is made for."""

from __future__ import annotations

from functools import cache

from mirlo.targets.nvvm.chips import CHIPS, DEFAULT, Chip, ChipError, find_chip


def chosen_chip(options: str) -> Chip:
    """The chip of `chip=sm_90a`; without options that of this machine, or the one whose code most others run."""
    name = ""
    for part in options.split():
        key, _, value = part.partition("=")
        if key != "chip":
            raise ChipError(f"target 'nvvm' has no option '{key}'; it has: chip={'|'.join(CHIPS)}")
        name = value
    return find_chip(name or _present() or DEFAULT)


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
