"""External artifacts: parts of a model that a code generator compiled, and the functions that their loaders return.

An artifact names its loader (`format`), which is registered with `register_external_loader` or offered by a package as
an entry point of the group `mirlo.loaders`:

    def load(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions

Its functions are packed ones: `int fn(DLTensor** tensors, int64_t count)`, inputs then outputs, or Python callables
on numpy arrays. They may be called from several threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from mirlo.runtime.callbacks import (
    Expected,
    callback,
    check_callbacks,
    checked,
    describe_raised,
    each_is,
    is_a,
    is_text,
    optional,
)
from mirlo.runtime.entry_points import offered
from mirlo.runtime.errors import ArtifactError, nearest
from mirlo.runtime.known_packages import install_command
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    import ctypes

    import numpy as np

    from mirlo.runtime.params import ParameterStore

GROUP = "mirlo.loaders"


@dataclass(frozen=True)
class ExternalArtifact:
    """A compiled external module: data for a loader, and the names of its functions."""

    format: str
    """Name of the loader."""
    functions: tuple[str, ...]
    """The functions of the external module, by their names in it."""
    data: bytes = b""
    params: tuple[str, ...] = ()
    """Names of the constants that are passed to the loader once."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Further JSON values for the loader."""
    target: str = ""
    """The target whose code generator made the artifact; set by `codegen-external`."""
    stored: Mapping[str, str] = field(default_factory=dict)
    """The names in the store of those `params` that have another one there: several builds of a model share it."""

    @property
    def stored_params(self) -> tuple[str, ...]:
        """Return the names of the constants in the store."""
        return tuple(self.stored.get(name, name) for name in self.params)

    def packed_name(self, function: str) -> str:
        """Return the name by which the model calls a function."""
        return packed_name(self.target, function)


def packed_name(target: str, function: str) -> str:
    """Return the name by which a model calls a function of an external module."""
    return f"{target}.{function}"


@dataclass(frozen=True)
class LoadContext:
    """The arguments of a loader besides the artifact."""

    params: Mapping[str, np.ndarray]
    """The constants that the artifact names: read-only arrays, which live as long as the executable."""
    threads: int = 1
    """Number of threads that the model was compiled for."""


@dataclass(frozen=True)
class DeviceStep:
    """The work of a device for a part of a region, by its own clock."""

    name: str
    """The part: a node of the user's model where there is one."""
    amount: float
    """How long it took, in `unit`."""
    unit: str = "cycles"
    details: Mapping[str, float] = field(default_factory=dict)
    """Further numbers by name, such as the cycles in which a part of the device worked."""
    spans: Sequence[tuple[str, float, float]] = ()
    """When parts of the device worked, for time lines: the part, and the begin and end since the step's begin."""


@dataclass(frozen=True)
class ExternalFunctions:
    """The result of a loader."""

    functions: Mapping[str, Callable[..., object]]
    """By the artifact's names: a ctypes function pointer of the packed type, or a Python callable on numpy arrays."""
    keep: object = None
    """An object that must live as long as the functions."""
    release: Callable[[], None] | None = None
    """Callback for the release of the executable, called once."""
    explain: Callable[[str, int], str | None] | None = callback("a text, or None", optional(is_text))
    """Returns the meaning of a function's return code: `explain("region_0", 3)`."""
    steps: Callable[[str], Sequence[DeviceStep]] | None = callback(
        "a list of DeviceSteps", each_is(is_a("mirlo.runtime.external:DeviceStep"))
    )
    """Returns what the device did in the last call of a function, for profiles."""

    def __post_init__(self) -> None:
        check_callbacks(self, "the functions of a loader", ArtifactError)


_LOADED = Expected(
    "ExternalFunctions whose functions are a dict",
    lambda value: isinstance(value, ExternalFunctions) and isinstance(value.functions, Mapping),
)
ExternalLoader = Callable[[ExternalArtifact, LoadContext], ExternalFunctions]
_LOADERS: dict[str, ExternalLoader] = {}


def register_external_loader(format: str, loader: ExternalLoader) -> None:
    """Register the loader of external artifacts of a format.

    Packages can use the entry point `mirlo.loaders` instead.
    """
    _LOADERS[format] = loader


@dataclass
class LoadedExternals:
    """The functions of all external artifacts of a model, by the names in its calls."""

    functions: dict[str, ctypes._CFunctionType] = field(default_factory=dict)
    loaded: list[ExternalFunctions] = field(default_factory=list)
    _explain: dict[str, tuple[Callable[[str, int], str | None], str]] = field(default_factory=dict)
    _steps: dict[str, tuple[Callable[[str], Sequence[DeviceStep]], str]] = field(default_factory=dict)

    def add(self, artifact: ExternalArtifact, loaded_functions: ExternalFunctions) -> None:
        from mirlo.runtime.packed import as_c_function

        self.loaded.append(loaded_functions)
        for name in artifact.functions:
            packed = artifact.packed_name(name)
            self.functions[packed] = as_c_function(packed, loaded_functions.functions[name])
            if loaded_functions.explain is not None:
                self._explain[packed] = (loaded_functions.explain, name)
            if loaded_functions.steps is not None:
                self._steps[packed] = (loaded_functions.steps, name)

    def explain(self, name: str, code: int) -> str | None:
        """Return the meaning of a function's return code according to its loader."""
        if name not in self._explain:
            return None
        explain, function = self._explain[name]
        return explain(function, code)

    def steps(self) -> dict[str, tuple[DeviceStep, ...]]:
        """Return the work of devices in the last calls, by function, for loaders that report it."""
        return {name: tuple(steps(function)) for name, (steps, function) in self._steps.items()}

    def release(self) -> None:
        """Release the resources of the loaders, last first."""
        self.functions.clear()
        while self.loaded:
            module = self.loaded.pop()
            if module.release is not None:
                module.release()


def load_externals(artifacts: Sequence[ExternalArtifact], store: ParameterStore, threads: int) -> LoadedExternals:
    """Load the external artifacts of a model; the error of a failing loader names it."""
    loaded = LoadedExternals()
    try:
        for artifact in artifacts:
            params = {
                name: store.get(stored) for name, stored in zip(artifact.params, artifact.stored_params, strict=True)
            }
            loaded.add(artifact, _load(artifact, LoadContext(params, threads)))
    except BaseException:
        loaded.release()
        raise
    return loaded


def load_external(format: str, artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
    """Load an external artifact with the loader of a format, which need not be the artifact's own."""
    return _load(replace(artifact, format=format), context)


def _load(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
    who = f"the loader '{artifact.format}' of what target '{artifact.target}' compiled"
    loader = _find_loader(artifact)
    try:
        result = checked(loader, _LOADED, who, ArtifactError)(artifact, context)
    except ArtifactError as error:
        raise error if str(error).startswith(who) else ArtifactError(f"{who}: {error}") from error
    except Exception as error:
        raise ArtifactError(f"{who} raised {describe_raised(error)}") from error
    problem = _problem(artifact.functions, result.functions)
    if problem:
        if result.release is not None:
            result.release()
        raise ArtifactError(f"{who} {problem}")
    return result


def _problem(wanted: Iterable[str], functions: Mapping[str, object]) -> str | None:
    for name in wanted:
        if name not in functions:
            return f"gave no function '{name}'; it gave: {', '.join(functions) or 'none'}"
        if not callable(functions[name]):
            return f"gave a {type(functions[name]).__name__} for the function '{name}': expected a callable"
    return None


def _find_loader(artifact: ExternalArtifact) -> ExternalLoader:
    loader = _LOADERS.get(artifact.format)
    if loader is not None:
        return loader
    for entry in offered(GROUP):
        if entry.name != artifact.format:
            continue
        try:
            loader = _LOADERS[artifact.format] = entry.load()
        except Exception as error:
            raise ArtifactError(
                f"the loader '{artifact.format}' of package '{entry.package}' does not load: "
                f"{type(error).__name__}: {error}"
            ) from error
        result: ExternalLoader = loader
        return result
    hint = nearest(artifact.format, [*_LOADERS, *(entry.name for entry in offered(GROUP))]).removeprefix("; ")
    command = install_command(GROUP, artifact.format)
    remedy = f", {command}," if command else ","
    meant = f" ({hint})" if hint else ""
    raise ArtifactError(
        f"parts of the model were compiled for target '{artifact.target}', whose loader '{artifact.format}' is not "
        f"installed{meant}: install the package of that target{remedy} or compile again without it"
    )
