"""Compiled models that can be called: on this machine, or on a board."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from mirlo.runtime.errors import NotForThisMachine

if TYPE_CHECKING:
    from mirlo.runtime.executable import Executable
    from mirlo.runtime.program import Program
    from mirlo.runtime.remote.model import RemoteModel
    from mirlo.runtime.unloaded import UnloadedModel


CallableModel: TypeAlias = "Executable | Program | RemoteModel"


def require_loaded(compiled: Executable | Program | UnloadedModel, purpose: str) -> CallableModel:
    """Return a compiled model that can be called; raise an error for one of another machine."""
    from mirlo.runtime.remote.model import RemoteModel
    from mirlo.runtime.unloaded import UnloadedModel

    if isinstance(compiled, RemoteModel):
        return compiled
    if isinstance(compiled, UnloadedModel):
        raise NotForThisMachine(f"{purpose} on the machine that the code is for: {compiled.reason}")
    return compiled
