"""The options of the backend: `torch.compile(model, backend="mirlo", options={...})`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from mirlo.runtime.errors import MirloError
from mirlo.runtime.nearest import nearest


class BackendOptionError(MirloError, ValueError):
    """An option of the backend that it does not have, or that does not apply."""


@dataclass(frozen=True)
class BackendOptions:
    """What a user may set."""

    threads: int | None = None
    """Threads of a call; None: `torch.get_num_threads()`."""
    target: str | Sequence[str] = "llvm"
    precision: str | None = None
    opt_level: int = 2
    cache: bool | str = True
    tune: bool | float | str = True
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
        known = [entry.name for entry in fields(BackendOptions)]
        for name in options or {}:
            if name not in known:
                hint = nearest(str(name), known)
                raise BackendOptionError(f"backend 'mirlo' has no option '{name}'; options: {', '.join(known)}{hint}")
        return BackendOptions(**dict(options or {}))

    def compile_arguments(self) -> dict[str, Any]:
        """Return the arguments of `mirlo.compile`."""
        import torch

        return {
            "target": self.target,
            "threads": self.threads or torch.get_num_threads(),
            "precision": self.precision,
            "opt_level": self.opt_level,
            "cache": self.cache,
            "tune": self.tune,
        }
