"""The options of the backend: `torch.compile(model, backend="mirlo", options={...})`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mirlo.extend.compilation import OPTIONS
from mirlo.extend.options import BOOLEAN, check_options, check_value, declared_options, option, refuse_unknown
from mirlo.extend.runtime import MirloError


class BackendOptionError(MirloError, ValueError):
    """An unknown option of the backend, or one that does not apply."""


@dataclass(frozen=True)
class BackendOptions:
    """Options of the backend itself, and those options of `mirlo.compile` that hold for any model."""

    compilation: Mapping[str, Any] = field(default_factory=dict)
    """Options of `mirlo.compile`; without `threads`, calls use `torch.get_num_threads()`."""
    strict: bool = option(
        False,
        "Whether a graph that cannot be compiled is an error; otherwise it runs eagerly, with a warning.",
        kind=BOOLEAN,
    )
    frozen: bool = option(False, "Whether weights never change: calls do not check them.", kind=BOOLEAN)
    checks: bool = option(
        True,
        "Whether calls check what PyTorch refuses of data: positions outside of an axis, integers divided by zero.",
        kind=BOOLEAN,
    )

    def __post_init__(self) -> None:
        check_options(self, BackendOptionError)
        for name, value in self.compilation.items():  # an error of the call of torch.compile, and not of the first one
            if name != "threads" or value is not None:
                check_value(name, OPTIONS[name], value, BackendOptionError)

    @staticmethod
    def parse(options: Mapping[str, Any] | None, mode: str | None) -> BackendOptions:
        """Return the options of a call of `torch.compile`."""
        if mode not in (None, "default"):
            raise BackendOptionError(f"mode={mode!r} is for Inductor; backend 'mirlo' takes options={{...}}")
        own = list(declared_options(BackendOptions))
        known = [*own, *(name for name, declared in OPTIONS.items() if not declared.of_model)]
        requested = dict(options or {})
        refuse_unknown("backend 'mirlo'", requested, known, BackendOptionError)
        compilation = {name: value for name, value in requested.items() if name not in own}
        return BackendOptions(compilation, **{name: requested[name] for name in own if name in requested})

    def of_training(self) -> BackendOptions:
        """Return the options for the forward graph of training, whose rounding decides which ReLUs are zero."""
        return replace(self, compilation={"target": "llvm{winograd=2}", **self.compilation})

    def compile_arguments(self) -> dict[str, Any]:
        """Return the arguments of `mirlo.compile`."""
        import torch

        threads = self.compilation.get("threads") or torch.get_num_threads()
        return {**self.compilation, "threads": threads}
