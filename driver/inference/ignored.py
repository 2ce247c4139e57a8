"""Settings of ONNX Runtime without an effect on compiled models: accepted, and logged once."""

from __future__ import annotations

import logging

LOGGER = logging.getLogger("mirlo")
"""The logger of sessions; `set_default_logger_severity` sets its level."""
_NOTED: set[str] = set()


def note_ignored(what: str, why: str) -> None:
    """Log, once a process and at debug level, that something has no effect here."""
    if what not in _NOTED:
        _NOTED.add(what)
        LOGGER.debug("%s has no effect: %s", what, why)
