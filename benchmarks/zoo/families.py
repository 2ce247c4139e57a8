"""The families of the zoo."""

from __future__ import annotations

import hashlib
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


def mixed(chosen: Iterable[Variant]) -> list[Variant]:
    """Return the exports in an order whose beginning has some of each family, the larger ones less than in proportion.

    The exports of an architecture stay together; the order is the same in each run.
    """
    families: dict[str, dict[str, list[Variant]]] = {}
    for variant in chosen:
        families.setdefault(variant.entry.family, {}).setdefault(variant.entry.name, []).append(variant)
    ranked = []
    for family, of_entry in families.items():
        names = sorted(of_entry, key=lambda name: hashlib.sha256(name.encode()).digest())
        ranked += [(at / len(names) ** 0.5, family, of_entry[name]) for at, name in enumerate(names)]
    return [variant for *_, found in sorted(ranked, key=lambda each: each[:2]) for variant in found]
