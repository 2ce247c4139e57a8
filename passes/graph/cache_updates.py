"""Writes to key/value caches that a function takes and returns."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class CacheUpdate:
    """A write to an f32 input that nothing else reads, whose result is an output."""

    write: ir.Operation
    views: tuple[ir.Operation, ...]
    """The reshapes of the input before the write, and of its result; empty if there are none."""

    @property
    def input(self) -> ir.Value:
        return (self.views[0] if self.views else self.write).operands[0]

    @property
    def result(self) -> ir.Value:
        return (self.views[-1] if self.views else self.write).results[0]


def match_cache_update(write: ir.Operation) -> CacheUpdate | None:
    """Return the cache that an operation writes to; None if it is no input, or something else reads it."""
    before = write.operands[0]
    views: tuple[ir.Operation, ...] = ()
    if isinstance(before, ir.OpResult):
        users = [use.owner.operation for use in write.results[0].uses]
        views = (before.owner.operation, *users)
        if [each.name for each in views] != ["relax.reshape", "relax.reshape"] or not _has_one_use(before):
            return None
    cache = CacheUpdate(write, views)
    is_input = isinstance(cache.input.owner, ir.Block) and isinstance(cache.input.type.element_type, ir.F32Type)
    if not is_input or not _has_one_use(cache.input):
        return None
    return cache if any(use.owner.name == "func.return" for use in cache.result.uses) else None


def _has_one_use(value: ir.Value) -> bool:
    return sum(1 for _ in value.uses) == 1
