"""Contexts with Mirlo's dialects loaded."""

from __future__ import annotations

import threading
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dialect import Dialect

_LOADING = threading.Lock()
"""Two threads that load dialects at once crash the process, even into contexts of their own."""

EXTRA_DIALECTS: list[Dialect] = []
"""Dialects that plug-ins add; loaded into every context made afterwards."""


def register_dialect(namespace: str) -> Dialect:
    """A new dialect for operations of one's own: every context that is made from now on knows it."""
    if any(namespace == known.namespace for known in EXTRA_DIALECTS) or namespace in ("relax", "tir"):
        raise ValueError(f"dialect '{namespace}' is registered already: choose another namespace")
    dialect = Dialect(namespace)
    EXTRA_DIALECTS.append(dialect)
    return dialect


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
