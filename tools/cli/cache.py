"""`mirlo cache`: the cache of compiled kernels and models."""

from __future__ import annotations

import time
from pathlib import Path

from mirlo.runtime.cache import KINDS, Cache, CacheEntry, default_folder
from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.tables import bytes_text, columns


def execute(arguments: Arguments) -> None:
    """Execute the action."""
    cache = Cache(Path(arguments.cache_dir) if arguments.cache_dir else default_folder())
    _ACTIONS[arguments.action](cache, arguments)


def _path(cache: Cache, arguments: Arguments) -> None:
    print(cache.folder)


def _list(cache: Cache, arguments: Arguments) -> None:
    now = time.time()
    rows = [(e.kind, e.key, bytes_text(e.bytes), _ago(now - e.used)) for e in cache.entries()]
    print("\n".join(columns([("kind", "key", "size", "used"), *rows], numbers={2})))


def _size(cache: Cache, arguments: Arguments) -> None:
    entries = cache.entries()
    rows = [(kind, *_total([entry for entry in entries if entry.kind == kind])) for kind in KINDS]
    print("\n".join(columns([*rows, ("all", *_total(entries))], numbers={1, 2})))
    print(f"limit: {bytes_text(cache.max_bytes())}")


def _clear(cache: Cache, arguments: Arguments) -> None:
    print(f"removed {' entries, '.join(_total(cache.clear()))}")


def _limit(cache: Cache, arguments: Arguments) -> None:
    cache.set_limit(arguments.limit)
    print(f"limit: {bytes_text(cache.max_bytes())}; the cache holds {_total(cache.entries())[1]}")


def _verify(cache: Cache, arguments: Arguments) -> None:
    count = len(cache.entries())
    damaged = cache.verify()
    for entry in damaged:
        print(f"removed {entry.kind} {entry.key}: damaged")
    print(f"{count - len(damaged)} entries are whole, {len(damaged)} were damaged")


def _total(entries: list[CacheEntry]) -> tuple[str, str]:
    return f"{len(entries)}", bytes_text(sum(entry.bytes for entry in entries))


def _ago(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} seconds ago"


_ACTIONS = {"path": _path, "list": _list, "size": _size, "clear": _clear, "limit": _limit, "verify": _verify}
