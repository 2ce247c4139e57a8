"""The families of the zoo."""

from __future__ import annotations

import hashlib
import importlib
import itertools
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


def mixed(chosen: Iterable[Variant], count: int | None = None) -> list[Variant]:
    """Return the exports of this many architectures, in an order whose beginning has some of each kind.

    Of larger families there are more, though less than in proportion. First comes one export of each architecture,
    exporters and shapes in turn, then another of each, and so on; the order is the same in each run.
    """
    families: dict[str, dict[str, list[Variant]]] = {}
    for variant in chosen:
        families.setdefault(variant.entry.family, {}).setdefault(variant.entry.name, []).append(variant)
    ranked = []
    for family, of_entry in families.items():
        names = sorted(of_entry, key=lambda name: hashlib.sha256(name.encode()).digest())
        ranked += [(at / len(names) ** 0.5, family, of_entry[name]) for at, name in enumerate(names)]
    taken = [group for *_, group in sorted(ranked, key=lambda each: each[:2])[:count]]
    rotated = [group[at % len(group) :] + group[: at % len(group)] for at, group in enumerate(taken)]
    return [each for round_ in itertools.zip_longest(*rotated) for each in round_ if each is not None]
