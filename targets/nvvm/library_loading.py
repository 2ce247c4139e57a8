"""NVIDIA's libraries in this process: found where CUDA or NVIDIA's wheels put them, and what they say when they fail.

What the loaders of cuBLASLt and cuDNN share; it imports nothing of the compiler.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mirlo.runtime.external import ExternalArtifact, ExternalFunctions, LoadContext
from mirlo.targets.nvvm.library_plan import read
from mirlo.targets.nvvm.library_program import Call, Program
from mirlo.targets.nvvm.wheels import find_library


@dataclass(eq=False)
class NvidiaLibrary:
    """A library, opened when it is first needed."""

    title: str
    file: str
    """Without `lib` before it, and its ending."""
    install: str
    """What to do where it is not there."""
    error: type[Exception]
    prefix: str
    """Of its functions' names: those that make and destroy a handle are `Create` and `Destroy`."""
    explain: str
    """The function that says what a status means."""
    results: Mapping[str, Any] = field(default_factory=dict)
    """What functions return that return no status."""
    detail: Callable[[Any], str] = lambda library: ""
    """What else the library says of its last error."""
    _loaded: Any = None

    def load(self) -> Any:
        """The library; an error that says what to install where it is not."""
        if self._loaded is None:
            name = find_library(self.file)
            if name is None:
                raise self.error(f"the library {self.title} is not on this machine: {self.install}")
            try:
                found = ctypes.CDLL(name)
            except OSError as error:
                raise self.error(f"the library {self.title} does not load: {error}") from error
            for function, result in {self.explain: ctypes.c_char_p, **self.results}.items():
                getattr(found, function).restype = result
            self._loaded = found
        return self._loaded

    def check(self, status: int, what: str) -> None:
        """An error where a call of the library failed."""
        if not status:
            return
        library = self.load()
        said = getattr(library, self.explain)(status)
        text = said.decode() if said else f"status {status}"
        raise self.error(f"{what}: {text}{self.detail(library)}")

    def version_text(self) -> str:
        """The version, where the library is here; else nothing."""
        try:
            return str(getattr(self.load(), f"{self.prefix}GetVersion")())
        except self.error:
            return ""

    def open_handle(self) -> Any:
        """What calls on one GPU are made with."""
        handle = ctypes.c_void_p()
        self.check(getattr(self.load(), f"{self.prefix}Create")(ctypes.byref(handle)), f"starting {self.title}")
        return handle

    def close_handle(self, handle: Any) -> None:
        """Give it back."""
        getattr(self.load(), f"{self.prefix}Destroy")(handle)

    def functions(
        self, artifact: ExternalArtifact, context: LoadContext, steps: tuple[type, ...], call: Callable[[Any], Call]
    ) -> ExternalFunctions:
        """The functions of a plan, whose steps are of these types and become calls."""
        plan = read(artifact.data, *steps)
        return Program(plan, context.params, call, self.open_handle, self.close_handle).functions()
