"""The interface of front ends for other frameworks, and how they are found.

A front end is an entry point in the group `mirlo.frontends`, named for the top-level package of the objects that it
opens: `torch`, `sklearn`. A package that adds one needs only that line. No framework is imported to find the front end
of an object.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from mirlo.runtime.callbacks import Expected, checked
from mirlo.runtime.entry_points import offered
from mirlo.runtime.errors import MirloError
from mirlo.runtime.known_packages import install_command
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    import os

    from mirlo.dialects.bindings import ir

GROUP = "mirlo.frontends"


class FrontendError(MirloError, ValueError):
    """A model of another framework that cannot be converted, or a front end that does not load."""

    error_code = "MIR0306"
    remedy = "Correct the model where the message says, or attach a converter to the operator."


@dataclass(frozen=True)
class ExampleInputs:
    """Example inputs of a model: the arguments of a call, and which of their dims are dynamic."""

    args: tuple[object, ...] | None = None
    kwargs: Mapping[str, object] = field(default_factory=dict)
    dynamic_shapes: object = None
    """In the form of the framework."""

    @property
    def given(self) -> bool:
        """Return whether there are any example inputs."""
        return self.args is not None or bool(self.kwargs) or self.dynamic_shapes is not None


@dataclass(frozen=True)
class ImportedModule:
    """A module of relax that a front end made, with its weights."""

    module: ir.Module
    params: ParameterStore

    @cached_property
    def digest(self) -> str:
        """Return a digest of the module and its weights: models in memory that have one are cached."""
        hasher = hashlib.sha256(self.module.operation.get_asm(enable_debug_info=True).encode())
        for name in self.params.names():
            hasher.update(f"\n{name} {self.params.spec(name)}\n".encode())
            hasher.update(self.params.get(name).reshape(-1).view("uint8").data)
        return hasher.hexdigest()


class DeferredModule(ImportedModule):
    """A module that is made when it is used: what the cache has is found by a digest of the module's files."""

    def __init__(self, make: Callable[[], ImportedModule], digest_of_files: Callable[[], str]) -> None:
        self.__dict__.update(_make=make, _digest_of_files=digest_of_files)

    @cached_property
    def _made(self) -> ImportedModule:
        make = checked(self.__dict__["_make"], _MODULE, "DeferredModule", FrontendError)
        result: ImportedModule = make()
        return result

    @property
    def module(self) -> ir.Module:
        """Return the module."""
        return self._made.module

    @property
    def params(self) -> ParameterStore:
        """Return the weights."""
        return self._made.params

    @cached_property
    def digest(self) -> str:
        """Return a digest of the files, and of what makes a module of them."""
        result: str = checked(self.__dict__["_digest_of_files"], _DIGEST, "DeferredModule", FrontendError)()
        return result


_MODULE = Expected("an ImportedModule", lambda value: isinstance(value, ImportedModule))
_DIGEST = Expected("a digest as text, not empty", lambda value: isinstance(value, str) and value != "")


class InputSpec(Protocol):
    """An input of a compiled model."""

    @property
    def name(self) -> str: ...


class CompiledModel(Protocol):
    """The interface of executables and programs that front ends use."""

    @property
    def inputs(self) -> Sequence[InputSpec]: ...

    def __call__(self, *arrays: Any, **named: Any) -> Any: ...

    def run(self, *inputs: Any, **options: Any) -> Any: ...

    def save(self, path: str | os.PathLike[str]) -> None: ...


@dataclass(frozen=True)
class ConvertedModel:
    """A model in a form that Mirlo compiles, and a function that wraps its executable."""

    model: object
    """An ONNX model: a path, bytes, an `onnx.ModelProto` or a `LoadedModel`; or an `ImportedModule`."""
    wrap: Callable[[CompiledModel], object] | None = None
    """Takes the executable, and returns an object with the interface of the framework; None for the executable."""


class Frontend(Protocol):
    """Opens the objects of one framework."""

    def convert(self, model: object, example: ExampleInputs) -> ConvertedModel:
        """Convert a model; raise `FrontendError` for one that cannot be."""


def frontend_of(model: object) -> Frontend | None:
    """Return the front end of the framework that a model belongs to, by the classes that its class derives from."""
    packages = list(dict.fromkeys(base.__module__.partition(".")[0] for base in type(model).__mro__))
    entries = {entry.name: entry for entry in offered(GROUP)}
    for package in packages:
        if package not in entries:
            command = install_command(GROUP, package)
            if command is not None:
                raise FrontendError(f"a model of {package} needs a package of Mirlo that is not installed: {command}")
            continue
        try:
            loaded: Frontend = entries[package].load()
        except ImportError as error:
            raise FrontendError(f"the front end for {package} does not load: {error}") from error
        return loaded
    return None


def require_package(package: str, extra: str) -> ModuleType:
    """Import a package that a front end needs; an error names the extra of Mirlo that installs it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise FrontendError(
            f"{package} is needed to convert this model: pip install 'mirlo[{extra}]' ({error})"
        ) from None
