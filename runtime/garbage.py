"""Python's search for cycles of garbage, less often while a model is compiled.

A compilation makes hundreds of thousands of objects that it keeps, few of them in cycles: looking through them after
every 700 new ones takes a tenth of its time.
"""

from __future__ import annotations

import gc
from contextlib import ContextDecorator
from typing import Literal

from mirlo.runtime.locks import make_lock

_OBJECTS = 1_000_000
"""New objects before the collector looks at them."""
_lock = make_lock()
_running = 0
_usual = gc.get_threshold()


def _collect_less() -> None:
    # 0 is how some programs turn it off.
    if 0 < _usual[0] < _OBJECTS:
        gc.set_threshold(_OBJECTS, *_usual[1:])


class FewerCollections(ContextDecorator):
    """Lets the collector run seldom while one of these is entered; the last one to leave restores its setting."""

    def __enter__(self) -> None:
        global _running, _usual
        with _lock:
            if not _running:
                _usual = gc.get_threshold()
                _collect_less()
            _running += 1

    def __exit__(self, *unused: object) -> Literal[False]:
        global _running
        with _lock:
            _running -= 1
            if not _running:
                gc.set_threshold(*_usual)
        return False


class UsualCollections(ContextDecorator):
    """Lets the collector run as usual inside of what `FewerCollections` runs, such as a server that a command starts.

    A collection that looks at a million new objects keeps all threads of a process for a second.
    """

    def __enter__(self) -> None:
        global _running
        with _lock:
            self._outer, _running = _running, 0
            if self._outer:
                gc.set_threshold(*_usual)

    def __exit__(self, *unused: object) -> Literal[False]:
        global _running
        with _lock:
            if self._outer and not _running:
                _collect_less()
            _running += self._outer
        return False
