"""Contexts with Mirlo's dialects loaded."""

from __future__ import annotations

import threading
from typing import Any

from mirlo.dialects.bindings import ir

_LOADING = threading.Lock()
"""Two threads that load dialects at once crash the process, even into contexts of their own."""

EXTRA_DIALECTS: list[Any] = []
"""Dialects that plug-ins add; loaded into every context made afterwards."""


def make_context(allow_unregistered: bool = False) -> Any:
    """A new MLIR context that knows relax and tir."""
    from mirlo.dialects import relax, tir

    with _LOADING:
        context = ir.Context()
        # Python verifiers called from MLIR's pool threads deadlock on the interpreter lock.
        context.enable_multithreading(False)
        context.allow_unregistered_dialects = allow_unregistered
        with context:
            for dialect in (relax.DIALECT, tir.DIALECT, *EXTRA_DIALECTS):
                dialect.load()
    return context
