"""Loading of NVIDIA's libraries from CUDA or a wheel, and their error messages.

Shared by the loaders of cuBLASLt and cuDNN; imports nothing of the compiler.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from ctypes import c_void_p
from dataclasses import field

from mirlo.runtime.callbacks import Expected, callback, check_callbacks, checked, is_text
from mirlo.runtime.external import ExternalArtifact, ExternalFunctions, LoadContext
from mirlo.runtime.records import dataclass
from mirlo.targets.nvvm.library_plan import LibraryStep, read
from mirlo.targets.nvvm.library_program import LibraryCall, LibraryProgram
from mirlo.targets.nvvm.wheels import find_library


def _no_detail(library: ctypes.CDLL) -> str:
    return ""


_CALL = Expected("a LibraryCall", lambda value: hasattr(value, "start") and hasattr(value, "release"))


@dataclass(eq=False)
class NvidiaLibrary:
    """A library, opened on first use."""

    title: str
    file: str
    """File name without the prefix `lib` and the suffix."""
    install: str
    """What to install if it is missing."""
    error: type[Exception]
    prefix: str
    """Prefix of its function names; `Create` and `Destroy` make and destroy a handle."""
    explain: str
    """Name of the function that describes a status."""
    results: Mapping[str, type[ctypes.c_char_p | ctypes.c_size_t | ctypes.c_int64 | ctypes.c_void_p]] = field(
        default_factory=dict
    )
    """Result types of functions that do not return a status."""
    detail: Callable[[ctypes.CDLL], str] = callback("a text", is_text, default=_no_detail)
    """Returns more text about the last error."""
    _loaded: ctypes.CDLL | None = None

    def __post_init__(self) -> None:
        check_callbacks(self, self.title, self.error)

    def load(self) -> ctypes.CDLL:
        """Return the library; raise an error that says what to install if it is missing."""
        if self._loaded is None:
            name = find_library(self.file)
            if name is None:
                raise self.error(f"the library {self.title} is not on this machine: {self.install}")
            try:
                library = ctypes.CDLL(name)
            except OSError as error:
                raise self.error(f"the library {self.title} does not load: {error}") from error
            for function, result in {self.explain: ctypes.c_char_p, **self.results}.items():
                getattr(library, function).restype = result
            self._loaded = library
        return self._loaded

    def check(self, status: int, what: str) -> None:
        """Raise an error if a library call failed."""
        if not status:
            return
        library = self.load()
        message = getattr(library, self.explain)(status)
        text = message.decode() if message else f"status {status}"
        raise self.error(f"{what}: {text}{self.detail(library)}")

    def version_text(self) -> str:
        """Return the version if the library is installed, else an empty string."""
        try:
            return str(getattr(self.load(), f"{self.prefix}GetVersion")())
        except self.error:
            return ""

    def open_handle(self) -> c_void_p:
        """Create a handle for calls on one GPU."""
        handle = ctypes.c_void_p()
        self.check(getattr(self.load(), f"{self.prefix}Create")(ctypes.byref(handle)), f"starting {self.title}")
        return handle

    def close_handle(self, handle: c_void_p) -> None:
        """Destroy a handle."""
        getattr(self.load(), f"{self.prefix}Destroy")(handle)

    def functions(
        self,
        artifact: ExternalArtifact,
        context: LoadContext,
        steps: tuple[type[LibraryStep], ...],
        call: Callable[[LibraryStep], LibraryCall],
    ) -> ExternalFunctions:
        """Return the functions of a plan with these step types; `call` makes the call of a step."""
        plan = read(artifact.data, *steps)
        make_call = checked(call, _CALL, "the functions of a library", self.error)
        return LibraryProgram(plan, context.params, make_call, self.open_handle, self.close_handle).functions()
