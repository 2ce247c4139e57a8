"""Kernels that were equal to their definitions before, by the text of both forms."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.passes.exact.verdict import EQUAL, KernelVerdict, RangeRound
from mirlo.runtime.cache import OBJECTS, Cache, digest_of
from mirlo.runtime.sources import digest_of_sources, library_versions

if TYPE_CHECKING:
    from mirlo.passes.exact.compare import KernelPair

VERDICTS = "verdicts"
"""Session option: the `Cache` in which verdicts are kept, None for none."""


class VerdictCache:
    """Verdicts of earlier compilations, only of kernels that were equal."""

    def __init__(self, kept: Cache | None, settings: str):
        self._kept, self._settings = kept, settings

    def key(self, pair: KernelPair) -> str:
        """Return a key of everything a verdict depends on: both forms, constants, settings, and the comparing code.

        Without a cache it is empty: text of forms takes milliseconds.
        """
        if self._kept is None:
            return ""
        version = _version(tuple(pair.definition.sources))
        parts = [version, self._settings, text_of(pair.definition.operation), text_of(pair.scheduled)]
        for constants in pair.definition.constants:
            parts += [f"{i} {digest_of(array.tobytes())}" for i, array in sorted(constants.items())]
        parts += [f"call: {'; '.join(map(str, facts))}" for facts in pair.calls]
        return digest_of("\n".join(parts).encode())

    def find(self, pair: KernelPair, key: str) -> KernelVerdict | None:
        """Return the verdict of a kernel that was equal before."""
        content = self._kept.get(OBJECTS, key) if self._kept is not None else None
        if content is None:
            return None
        row = json.loads(content)
        return KernelVerdict(
            pair.definition.name, EQUAL, rounds=row["rounds"], bits=row["bits"], sizes=tuple(row["sizes"]),
            unreached=tuple(row["unreached"]), extremes=row["extremes"], ranges=RangeRound(**row["ranges"]),
        )  # fmt: skip

    def keep(self, verdict: KernelVerdict, key: str) -> None:
        if self._kept is not None and verdict.status == EQUAL:
            row = {name: getattr(verdict, name) for name in ("rounds", "bits", "sizes", "unreached", "extremes")}
            assert verdict.ranges is not None
            row["ranges"] = verdict.ranges.as_json()
            self._kept.put(OBJECTS, key, json.dumps(row).encode())


def text_of(function: ir.Operation) -> str:
    """Return a function as text, under a name that is the same for all functions."""
    text = str(function.get_asm(assume_verified=True, use_local_scope=True))
    return text.replace(f"@{symbol_name(function)}(", "@kernel(", 1)


@cache
def _version(others: tuple[Path, ...]) -> str:
    """Return a digest of the code that compares kernels, and of the versions of its libraries."""
    sources = digest_of_sources([Path(__file__).parent, *others])
    return digest_of("\n".join(("verdict", *library_versions(), sources)).encode())
