"""The hint of an error about an unknown name."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name, `; did you mean 'x'?`, or nothing."""
    from difflib import get_close_matches  # start-up does not need it

    # Also match a name without the dialect's namespace.
    meant = {word: full for full in sorted(known) for word in (full.rpartition(".")[2], full)}
    near = get_close_matches(name, meant, n=1)
    return f"; did you mean '{meant[near[0]]}'?" if near else ""
