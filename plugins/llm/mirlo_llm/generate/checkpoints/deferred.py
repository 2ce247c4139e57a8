"""Graphs of weights that are built only if the cache has no compiled model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.extend.runtime import digest_of_sources, digest_of_unchanged
from mirlo_llm.generate.errors import ModelFolderError

if TYPE_CHECKING:
    from mirlo.extend.frontend import ImportedModule


@cache
def _sources_digest() -> str:
    """Return a digest of the modules that build graphs of files."""
    return digest_of_sources([Path(__file__).parents[1]])


def deferred_graph(
    make: Callable[[], ImportedModule], files: Callable[[], Sequence[Path]], use: str = ""
) -> ImportedModule:
    """Return a graph that is built from files on first use; `use` distinguishes graphs of the same files."""
    from mirlo.extend.frontend import DeferredModule

    def digest() -> str:
        try:
            parts = [_sources_digest(), use, *map(digest_of_unchanged, files())]
        except OSError as error:
            raise ModelFolderError(f"{error.filename}: {error.strerror or error}") from None
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    return DeferredModule(make, digest)
