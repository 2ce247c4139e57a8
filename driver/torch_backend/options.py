"""The options of the backend: `torch.compile(model, backend="mirlo", options={...})`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from mirlo.driver.options import OPTIONS
from mirlo.runtime.errors import MirloError
from mirlo.runtime.nearest import nearest


class BackendOptionError(MirloError, ValueError):
    """An option of the backend that it does not have, or that does not apply."""


@dataclass(frozen=True)
class BackendOptions:
    """What a user may set: options of the backend itself, and those of `mirlo.compile` that hold for any model."""

    compilation: Mapping[str, Any] = field(default_factory=dict)
    """Options of `mirlo.compile`; without `threads`, calls use `torch.get_num_threads()`."""
    strict: bool = False
    """Whether a graph that cannot be compiled is an error; otherwise it runs eagerly, with a warning."""
    frozen: bool = False
    """Whether weights never change: calls do not check them."""
    checks: bool = True
    """Whether calls check what PyTorch refuses of data: positions outside of an axis, integers divided by zero."""

    @staticmethod
    def parse(options: Mapping[str, Any] | None, mode: str | None) -> BackendOptions:
        """Return the options of a call of `torch.compile`."""
        if mode not in (None, "default"):
            raise BackendOptionError(f"mode={mode!r} is for Inductor; backend 'mirlo' takes options={{...}}")
        own = [entry.name for entry in fields(BackendOptions) if entry.name != "compilation"]
        known = [*own, *(name for name, declared in OPTIONS.items() if not declared.of_model)]
        given = dict(options or {})
        for name in given:
            if name not in known:
                hint = nearest(str(name), known)
                raise BackendOptionError(f"backend 'mirlo' has no option '{name}'; options: {', '.join(known)}{hint}")
        compilation = {name: value for name, value in given.items() if name not in own}
        return BackendOptions(compilation, **{name: given[name] for name in own if name in given})

    def compile_arguments(self) -> dict[str, Any]:
        """Return the arguments of `mirlo.compile`."""
        import torch

        threads = self.compilation.get("threads") or torch.get_num_threads()
        return {**self.compilation, "threads": threads}
