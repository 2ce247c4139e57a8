"""The command lines of `mirlo cache` and `mirlo bench`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

Add = Callable[[Any, str, str], argparse.ArgumentParser]
_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def add_cache(commands: Any, add: Add) -> None:
    """`mirlo cache`."""
    parser = add(commands, "cache", "look at the cache of compiled kernels and models, and keep it small")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, purpose in {
        "path": "print the folder",
        "list": "list the entries, the longest unused first",
        "size": "tell how much there is, of what, and the limit",
        "clear": "remove all entries",
        "verify": "read all entries, and remove those that are damaged",
    }.items():
        _add_folder(actions.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}."))
    limit = actions.add_parser("limit", help="set how large it may grow", description="Set how large it may grow.")
    limit.add_argument("limit", metavar="SIZE", type=_size, help="bytes, or such as 500MiB and 8GiB")
    _add_folder(limit)


def add_cache_flags(group: Any, positive: Callable[[str], int]) -> None:
    """What commands that compile say about the cache and processes."""
    group.add_argument("--cache-dir", metavar="DIR", help="the folder of the cache (default: see 'mirlo cache path')")
    group.add_argument("--no-cache", action="store_true", help="compile everything, and keep nothing")
    group.add_argument("--jobs", metavar="N", type=positive, help="processes that compile (default: one a core)")


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cache-dir", metavar="DIR", help="the folder of the cache (default: this user's)")


def _size(text: str) -> int:
    number, factor = text, 1
    for unit, bytes_ in _UNITS.items():
        if text.lower().endswith((unit.lower(), unit[0].lower())):
            cut = len(unit) if text.lower().endswith(unit.lower()) else 1
            number, factor = text[:-cut].strip(), bytes_
            break
    try:
        value = int(float(number) * factor)
    except (ValueError, OverflowError):
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"expected a size such as 500MiB or 8GiB, found '{text}'")
    return value
