"""The models that Mirlo is measured on: the samples that ship with it, and some that are built here."""

from __future__ import annotations

import os
from pathlib import Path

from mirlo.tools import samples

__all__ = ["all_names", "fill", "names", "path", "path_with_symbols"]

HERE = Path(__file__).resolve().parent
names = samples.names


def all_names() -> list[str]:
    """Return the samples, then the models that are built here."""
    from .made import MADE

    return [*samples.names(), *MADE]


def fill(name: str, path: str | os.PathLike[str]) -> Path:
    """Write the complete model `name` to `path`; the file appears there whole or not at all."""
    from .made import MADE

    return samples.write(MADE[name]() if name in MADE else samples.complete(name), path)


def path_with_symbols(name: str, cache: str | os.PathLike[str] | None = None) -> Path:
    """Return the model with a symbolic batch as a file in the cache folder."""
    import onnx

    from .dynamic import with_symbols

    fixed = path(name, cache)
    target = samples.file_in(cache, f"{name}-symbols", fixed.stem.encode() + (HERE / "dynamic.py").read_bytes())
    return target if target.exists() else samples.write(with_symbols(onnx.load(fixed)), target)


def path(name: str, cache: str | os.PathLike[str] | None = None) -> Path:
    """Return the complete model as a file in a cache folder, by default `~/.cache/mirlo/models`."""
    from .made import MADE

    if name not in MADE:
        return samples.path(name, cache)
    source = b"".join((HERE / file).read_bytes() for file in ("large.py", "made.py", "nets.py"))
    target = samples.file_in(cache, name, source)
    return target if target.exists() else fill(name, target)
