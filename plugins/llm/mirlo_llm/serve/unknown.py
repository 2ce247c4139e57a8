"""Unknown keys of bodies, which are logged once, or refused."""

from __future__ import annotations

import logging
from collections.abc import Collection

from mirlo_llm.serve.body import BodyFields

LOG = logging.getLogger(__package__)
MOST = 256
"""Most keys that are logged, since clients may send any number."""


class UnknownKeys:
    """Handles unknown keys."""

    def __init__(self, is_strict: bool) -> None:
        """Store whether unknown keys are errors."""
        self._is_strict = is_strict
        self._named: set[str] = set()

    def check(self, body: BodyFields, known: Collection[str]) -> None:
        """Log each unknown key of a body once, or raise an error for the first."""
        if self._is_strict:
            body.require_known(known)
            return
        for key in body.unknown(known):
            if key not in self._named and len(self._named) < MOST:
                self._named.add(key)
                LOG.warning("a request has the key %a, which is not known and has no effect", key[:80])
