"""Contexts with Mirlo's dialects loaded."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from mirlo.dialects import relax, tir
from mirlo.dialects.bindings import ir, new_context
from mirlo.dialects.core.dialect import Dialect
from mirlo.dialects.core.errors import DialectError
from mirlo.dialects.tir.own_intrinsics import OWN
from mirlo.dialects.wheel import MLIR_DIALECTS
from mirlo.runtime.entry_points import offered
from mirlo.runtime.processes import after_fork

if TYPE_CHECKING:
    from mirlo.dialects.core.op import DialectOp

_LOADING = threading.Lock()
"""Serializes loading: two threads that load dialects at once crash the process, even in separate contexts."""
after_fork(_LOADING._at_fork_reinit)  # type: ignore[attr-defined]

GROUP = "mirlo.dialects"
"""The entry point group in which packages declare their dialects: `npu = "mirlo_npu.dialect:DIALECT"`."""
_OWNERS: dict[str, str] = {}
"""The module that registered each namespace."""

EXTRA_DIALECTS: list[Dialect] = []
"""Dialects of plug-ins, loaded into every context created after registration."""


def register_dialect(namespace: str) -> Dialect:
    """Register and return a new dialect, which every context created from now on loads."""
    module = sys._getframe(1).f_globals.get("__name__", "?")
    owner = "mirlo" if namespace in ("relax", "tir") else _OWNERS.get(namespace)
    if owner == module and owner != "mirlo":  # again from the same place, a cell of a notebook say
        return next(dialect for dialect in EXTRA_DIALECTS if dialect.namespace == namespace)
    if owner is not None:
        raise DialectError(
            f"dialect '{namespace}' is registered already, by module '{owner}': "
            f"module '{module}' must choose another namespace"
        )
    _OWNERS[namespace] = module
    dialect = Dialect(namespace)
    EXTRA_DIALECTS.append(dialect)
    return dialect


def available_dialects() -> list[str]:
    """Return the names of the dialects that files may have, in order: Mirlo's, those of packages, and MLIR's."""
    context = make_context()

    def is_there(name: str) -> bool:
        try:
            return context.get_dialect_descriptor(name) is not None
        except ValueError:
            return False

    names = {*MLIR_DIALECTS, "relax", "tir", *(dialect.namespace for dialect in EXTRA_DIALECTS)}
    return sorted(filter(is_there, names))


def forget_dialects(module: str) -> list[str]:
    """Remove the dialects that a module registered, with their operations; return their namespaces.

    Contexts that were created before keep them.
    """
    namespaces = [namespace for namespace, owner in _OWNERS.items() if owner == module]
    for namespace in namespaces:
        del _OWNERS[namespace]
    EXTRA_DIALECTS[:] = [dialect for dialect in EXTRA_DIALECTS if dialect.namespace not in namespaces]
    return namespaces


@cache
def load_installed_dialects() -> None:
    """Import the dialects that installed packages declare in the entry point group `mirlo.dialects`."""
    owners: dict[str, str] = {}
    for entry in offered(GROUP):
        package = entry.package
        if owners.setdefault(entry.name, package) != package:
            both = f"'{owners[entry.name]}' and '{package}'"
            raise DialectError(f"dialect '{entry.name}' is offered by two packages: {both}; uninstall one")
        try:
            dialect = entry.load()
        except Exception as error:
            text = str(error) if isinstance(error, DialectError) else f"{type(error).__name__}: {error}"
            raise DialectError(f"dialect '{entry.name}' of package '{package}' does not load: {text}") from error
        if not isinstance(dialect, Dialect) or dialect.namespace != entry.name:
            kind = (
                f"the dialect '{dialect.namespace}'" if isinstance(dialect, Dialect) else f"a {type(dialect).__name__}"
            )
            raise DialectError(
                f"entry point '{entry.name}' of package '{package}' in group {GROUP} is {kind}: "
                f'expected what register_dialect("{entry.name}") gave'
            )


def operation_class(name: str) -> type[DialectOp] | None:
    """Return the class of an operation of Mirlo or of a plug-in by its full name, or None."""
    namespace = name.partition(".")[0]
    for dialect in (relax.DIALECT, tir.DIALECT, *EXTRA_DIALECTS):
        if dialect.namespace == namespace and name in dialect.operations:
            return dialect.operations[name]
    return None


_graph_operations: tuple[object, Mapping[str, type[DialectOp]]] = (None, {})
"""What the last result of `graph_operations` was made from, and that result."""


def graph_operations() -> Mapping[str, type[DialectOp]]:
    """Return the classes of all operators of graphs by full name: relax's, then those of plug-ins.

    The result is the same object until operators are added.
    """
    global _graph_operations

    load_installed_dialects()
    dialects = (relax.DIALECT, *EXTRA_DIALECTS)
    state = len(OWN), [(dialect, dialect.additions, len(dialect.operations)) for dialect in dialects]
    if state != _graph_operations[0]:
        operations = {name: cls for dialect in dialects for name, cls in dialect.operations.items() if name not in OWN}
        _graph_operations = state, operations
    return _graph_operations[1]


def is_graph_operation(name: str) -> bool:
    """Return whether an operator of graphs has this full name."""
    cls = operation_class(name)
    return cls is not None and name in graph_operations()


def make_context(allow_unregistered: bool = False) -> ir.Context:
    """Return an MLIR context with relax, tir and the dialects of plug-ins: a recycled one, or a new one."""
    load_installed_dialects()
    with _LOADING:
        context = None if allow_unregistered else _take_free()
        if context is not None:
            return context
        context = new_context()
        context.allow_unregistered_dialects = allow_unregistered
        with context:
            for dialect in (relax.DIALECT, tir.DIALECT, *EXTRA_DIALECTS):
                dialect.load()
        _compositions[context] = _composition()
    return context


MAX_USES = 64
"""Compilations in one context, which keeps the attributes and types of all of them: some 100 KB for a small model."""
_free: list[ir.Context] = []
"""The context that was recycled last, if it was not taken since."""
_compositions: WeakKeyDictionary[ir.Context, object] = WeakKeyDictionary()
"""What was loaded into contexts that `make_context` returned."""
_uses: WeakKeyDictionary[ir.Context, int] = WeakKeyDictionary()
"""How often contexts were recycled."""
_REFERENCES = 2
"""References to a context in a local variable that `sys.getrefcount` counts where no operation, type or attribute of
it, which hold it, is left."""


def recycle_context(context: ir.Context) -> None:
    """Offer this context for reuse: the next `make_context` returns it if nothing refers to it then.

    Loading dialects and unloading them takes a third of the time of compiling a small model. The context of a large
    one would keep too much memory.
    """
    with _LOADING:
        uses = _uses.get(context, 0) + 1
        if context in _compositions and not context.allow_unregistered_dialects and uses < MAX_USES:
            _uses[context] = uses
            _free[:] = [context]


def live_contexts() -> int:
    """Return how many contexts of MLIR this process has: each keeps all IR of one compilation."""
    return ir.Context._get_live_count()


def _take_free() -> ir.Context | None:
    """Return the context that was recycled last, unless it is in use or dialects were added since."""
    if not _free:
        return None
    context = _free.pop()
    if _compositions[context] != _composition() or context.allow_unregistered_dialects:
        return None
    if sys.getrefcount(context) > _REFERENCES:
        # What the compilation left is in cycles, which are young: the old generation takes too long to search.
        gc.collect(1)
    return context if sys.getrefcount(context) == _REFERENCES else None


def _composition() -> object:
    """Return a key of the dialects that a new context has now."""
    return [(dialect, dialect.additions) for dialect in (relax.DIALECT, tir.DIALECT, *EXTRA_DIALECTS)]
