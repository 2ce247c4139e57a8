"""Keys of bodies that have no meaning: named once in the log, or refused."""

from __future__ import annotations

import logging
from collections.abc import Collection

from mirlo_llm.serve.body import BodyFields

LOG = logging.getLogger(__package__)
MOST = 256
"""Keys that are named; clients may make up any number."""


class UnknownKeys:
    """What is done with keys that are not known."""

    def __init__(self, is_strict: bool) -> None:
        """With `is_strict` they are refused."""
        self._is_strict = is_strict
        self._named: set[str] = set()

    def check(self, body: BodyFields, known: Collection[str]) -> None:
        """Name the keys of a body that are not known, each once; or raise an error for the first."""
        if self._is_strict:
            body.require_known(known)
            return
        for key in body.unknown(known):
            if key not in self._named and len(self._named) < MOST:
                self._named.add(key)
                LOG.warning("a request has the key %a, which is not known and has no effect", key[:80])
