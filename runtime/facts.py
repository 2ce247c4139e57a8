"""The metadata of a compiled model that Mirlo itself reads, checked when its file is opened."""

from __future__ import annotations

from mirlo.runtime.fields import Fields

TEXTS = ("symbols", "sizes", "checks", "shown", "late", "packed")
"""Lists of texts: dims, what is checked of them, and functions of the run time."""
FLAGS = ("allocates", "passes_record")
DIMS = ("symbols", "sizes", "late")
"""Those of them that are dims: none is empty."""


def check_facts(metadata: Fields) -> None:
    """Raise an error where metadata are not what the run time and the reports expect.

    Loaders check what only they read.
    """
    for name in TEXTS:
        if metadata.has(name) and not all(metadata.texts(name)) and name in DIMS:
            raise metadata.fail(f"{metadata.place}.{name}", "dims that are not empty", "")
    if metadata.has("memory"):
        plan = metadata.object("memory")
        plan.count("bound"), plan.count("in_place")
        if plan.has("buffers"):
            for buffer in plan.each("buffers"):
                [buffer.count(name) for name in ("offset", "bytes", "first", "last")]
    if metadata.has("placement"):
        placement = metadata.object("placement")
        placement.name("by"), placement.name("taken")
    if metadata.has("approximations"):
        metadata.texts("approximations")
    if metadata.has("regions"):
        for region in metadata.each("regions"):
            _check_region(region)
    for name in FLAGS:
        if metadata.has(name):
            metadata.flag(name)


def _check_region(region: Fields) -> None:
    region.name("name"), region.name("target"), region.text("loader"), region.texts("needs")
    if region.has("operators"):
        region.count("operators")
    share = region.content.get("share", 0)
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
        raise region.fail(f"{region.place}.share", "a number from 0 to 1", share)
