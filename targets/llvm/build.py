"""Object files of units: read from the cache, or compiled by several processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirlo.runtime.cache import OBJECTS, Cache
from mirlo.targets.llvm.machine_code import CodeSettings
from mirlo.targets.llvm.processes import CompileTask, compile_all
from mirlo.targets.llvm.units import Unit


def build(
    units: Sequence[Unit],
    settings: CodeSettings,
    cache: Cache | None = None,
    jobs: int | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> list[bytes]:
    """Return the code of each unit; call `meanwhile` while worker processes compile, if there are any."""
    known = {unit.key: cache.get(OBJECTS, unit.key) if cache is not None else None for unit in units}
    found = {key: content for key, content in known.items() if content is not None}
    missing = [unit for unit in units if unit.key not in found]
    made = compile_all([CompileTask(unit.name, unit.text, unit.entry) for unit in missing], settings, jobs, meanwhile)
    for unit, content in zip(missing, made, strict=True):
        found[unit.key] = content
        if cache is not None:
            cache.put(OBJECTS, unit.key, content)
    return [found[unit.key] for unit in units]
