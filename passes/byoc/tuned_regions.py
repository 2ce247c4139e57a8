"""Choices for parts of regions: the results of `mirlo tune`, attached to external modules as `relax.tuned`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from mirlo.dialects.bindings import ir
from mirlo.passes.byoc.codegen import CodeGenerator
from mirlo.passes.byoc.view import key_hash
from mirlo.passes.schedule.choices import choices_attribute, read_choices
from mirlo.passes.schedule.tuned import TUNING
from mirlo.passes.session import Session

TUNED_REGIONS = "relax.tuned"


@runtime_checkable
class RegionLookup(Protocol):
    """The part of a tuning database that regions use."""

    def with_prefix(self, prefix: str) -> Mapping[str, Mapping[str, int]]:
        """Return the choices of all entries whose keys begin with a text, by the rest of their keys."""


def region_prefix(generator: CodeGenerator) -> str:
    """Return the prefix of the keys of a code generator's parts: each version of its compiler has its own results."""
    return f"{generator.name}:{key_hash(generator.fingerprint())}:"


def attach_tuned(nested: ir.Operation, generator: CodeGenerator, session: Session) -> None:
    """Attach the tuned choices of a code generator to its module, so that files that repeat a failure have them too."""
    database = session.options.get(TUNING)
    if type(generator).tunables is CodeGenerator.tunables or not isinstance(database, RegionLookup):
        return
    entries = {key: choices_attribute(values) for key, values in database.with_prefix(region_prefix(generator)).items()}
    if entries:
        nested.attributes[TUNED_REGIONS] = ir.DictAttr.get(entries)


def attached_values(nested: ir.Operation) -> dict[str, dict[str, Any]]:
    """Return the choices attached to an external module, by the hash of each part's key."""
    if TUNED_REGIONS not in nested.attributes:
        return {}
    entries = ir.DictAttr(nested.attributes[TUNED_REGIONS])
    return {entries[i].name: read_choices(entries[i].attr) for i in range(len(entries))}
