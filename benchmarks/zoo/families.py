"""The families of the zoo."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator

from .entry import Variant, variants

FAMILIES = (
    "torchvision",
    "timm",
    "transformers",
    "multimodal",
    "diffusers",
    "sklearn",
    "trees",
    "modules",
    "quantized",
)
"""Each a module of this folder that has a tuple `ENTRIES` and imports nothing heavy before a model is made."""


def entries(families: Iterable[str] | None = None) -> Iterator[Variant]:
    """Yield all exports of the families."""
    for family in families or FAMILIES:
        for entry in importlib.import_module(f".{family}", __package__).ENTRIES:
            yield from variants(entry)
