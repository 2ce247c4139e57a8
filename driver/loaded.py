"""What a compilation for this machine returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirlo.driver.request import CompiledResult
    from mirlo.runtime.executable import Executable
    from mirlo.runtime.program import Program


def require_loaded(compiled: CompiledResult, purpose: str) -> Executable | Program:
    """Return a compiled model that can be called; raise an error for one of another machine."""
    from mirlo.runtime.errors import NotForThisMachine
    from mirlo.runtime.unloaded import UnloadedModel

    if isinstance(compiled, UnloadedModel):
        raise NotForThisMachine(f"{purpose} on the machine that the code is for: {compiled.reason}")
    return compiled
