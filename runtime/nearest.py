"""The hint of an error about an unknown name."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name, `; did you mean 'x'?`, or nothing."""
    # Also match a name without the dialect's namespace.
    meant = {word: full for full in sorted(known) for word in (full.rpartition(".")[2], full)}
    near = nearest_name(name, meant)
    return f"; did you mean '{meant[near]}'?" if near else ""


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like an unknown one, if one is like it."""
    from difflib import get_close_matches  # start-up does not need it

    near = get_close_matches(name, list(known), n=1)
    return near[0] if near else None
