"""Graphs of weights that are made only if the cache has no such model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.generate.errors import ModelFolderError
from mirlo.runtime.cache import digest_of_file
from mirlo.runtime.sources import compiler_digest

if TYPE_CHECKING:
    from mirlo.frontends.foreign import ImportedModule


def deferred_graph(
    make: Callable[[], ImportedModule], files: Callable[[], Sequence[Path]], use: str = ""
) -> ImportedModule:
    """Return a graph that is made of files when it is used; `use` tells graphs of the same files apart."""
    from mirlo.frontends.foreign import DeferredModule

    def digest() -> str:
        try:
            parts = [compiler_digest(("generate",)), use, *map(digest_of_file, files())]
        except OSError as error:
            raise ModelFolderError(f"{error.filename}: {error.strerror or error}") from None
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    return DeferredModule(make, digest)
