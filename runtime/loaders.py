"""Loaders, which make the code of an artifact callable in this process; an artifact names its loader."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

from mirlo.runtime import archive, interrupts, threads
from mirlo.runtime.artifact import Artifact
from mirlo.runtime.callbacks import Expected, callback, check_callbacks, checked, is_a, is_time, optional
from mirlo.runtime.elf_linker import BadObject, ObjectsInMemory, symbols_of
from mirlo.runtime.entry_points import offered
from mirlo.runtime.errors import ArtifactError, NotForThisMachine
from mirlo.runtime.host_cpu import AMX, host_cpu
from mirlo.runtime.known_packages import install_command
from mirlo.runtime.locks import UNCUT
from mirlo.runtime.names import POLLS
from mirlo.runtime.object_loader import emit_object, find_symbol, llvm_binding, load_objects
from mirlo.runtime.records import dataclass
from mirlo.runtime.system import permits_tiles

if TYPE_CHECKING:
    from mirlo.runtime.on_device import DeviceSide

EntryFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
"""`void entry(void** tensors, void** params, void* arena, uint64_t* profile)`; a call releases the GIL."""

Addresses: TypeAlias = "ctypes.Array[ctypes.c_void_p] | None"
EntryCall: TypeAlias = "Callable[[Addresses, Addresses, int, int | None], object]"
"""Takes the addresses of tensors and of parameters, and those of the arena and of the time stamps."""


@dataclass(frozen=True)
class LoadedCode:
    """A callable entry function, and the objects that must live as long as it."""

    entry: EntryCall
    keep: object
    device: DeviceSide | None = None
    """The interface for calls whose arrays stay on a device, if the loader supports them."""
    on: Callable[[int], LoadedCode] | None = callback("LoadedCode", is_a("mirlo.runtime.loaders:LoadedCode"))
    """Returns the same model on another device, by its number, if there may be several."""
    device_arena: int = 0
    """Bytes of intermediate buffers on the device, shared by all calls; 0 if they depend on run-time sizes."""
    has_memory: bool = False
    """Whether the loader allocates the intermediate buffers itself, and takes no arena."""
    timed: Callable[[int], float | None] | None = callback("microseconds, or None", optional(is_time))
    """Returns the microseconds per call by the device's clock, for this many repetitions with the last call's
    tensors."""
    fill: Callable[[int], None] | None = None
    """Fills the memory of calls on the device with a byte."""
    release: Callable[[], None] | None = None
    """Frees memory that is cached on the device for later calls."""

    def __post_init__(self) -> None:
        check_callbacks(self, "the code of a loader", ArtifactError)


_LOADED = Expected(
    "LoadedCode whose entry is callable", lambda value: isinstance(value, LoadedCode) and callable(value.entry)
)
Loader = Callable[[Artifact], LoadedCode]
_LOADERS: dict[str, Loader] = {}


def register_loader(name: str, loader: Loader) -> None:
    """Register the loader of artifacts with `loader=name`. Packages can use the entry point `mirlo.loaders` instead."""
    _LOADERS[name] = loader


def load_code(artifact: Artifact, device: int | None = None) -> LoadedCode:
    """Load the code of an artifact with the loader that it names, on the device of a number if one is given."""
    code = _load(artifact)
    if device is None:
        return code
    if code.on is None:
        raise ArtifactError(f"a model for target '{artifact.target}' is on no device with a number, found {device}")
    return code.on(device)


def _remedy(loader: str) -> str:
    command = install_command("mirlo.loaders", loader)
    return f"Install the package of that target: {command}" if command else "Install the package of that target"


def _load(artifact: Artifact) -> LoadedCode:
    loader = _LOADERS.get(artifact.loader)
    if loader is None:
        for entry in offered("mirlo.loaders"):
            if entry.name == artifact.loader:
                loader = _LOADERS[artifact.loader] = entry.load()
                break
        else:
            raise ArtifactError(
                f"the model was compiled for target '{artifact.target}', whose loader '{artifact.loader}' is not "
                f"installed; known: {', '.join(_LOADERS)}. {_remedy(artifact.loader)}, or compile again"
            )
    return checked(loader, _LOADED, f"the loader '{artifact.loader}'", ArtifactError)(artifact)


def llvm_host() -> dict[str, list[str] | str]:
    """Return the metadata of code compiled for this machine with all its features, which the `llvm` loader checks."""
    return {"triple": host_cpu().triple, "features": sorted(host_cpu().features)}


def compile_bitcode(code: bytes, opt: int = 0) -> tuple[ObjectsInMemory, bytes]:
    """Compile LLVM's bitcode, which calls nothing but itself, for this machine; return it and what it reads.

    Such code is executed once in a call: compiling it without optimization takes a fifth of the time.
    """
    llvm = llvm_binding()
    try:
        module = llvm.parse_bitcode(code, llvm.create_context())
    except RuntimeError as error:
        raise ArtifactError(f"the model's code cannot be loaded: {error}; compile the model again") from None
    # An undefined symbol would end the process.
    unknown = [f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm.")]
    unknown += [variable.name for variable in module.global_variables if variable.is_declaration]
    if unknown:
        raise ArtifactError(f"the model's code needs {', '.join(unknown)}, which it does not define; compile it again")
    with UNCUT:
        # Only the object file outlives this call: the module is freed with its context.
        code = emit_object(module, opt)
    return load_objects([code]), code


def load_llvm(artifact: Artifact) -> LoadedCode:
    """Load an object file, or an archive of several.

    Metadata `triple` and `features` (see `llvm_host`) name the machine that it was compiled for: they are compared
    with this one first, because a wrong machine would end the process.
    """
    _check_machine(artifact)
    if artifact.threads > 1:
        threads.ensure(artifact.threads)
    if artifact.metadata.get(POLLS):
        interrupts.ensure()
    objects = _objects(artifact)
    _check_symbols(artifact)
    try:
        code = load_objects(objects)
    except BadObject as problem:
        raise ArtifactError(f"the model's code cannot be loaded: {problem}; compile the model again") from None
    address = code.address(artifact.entry)
    if not address:
        raise ArtifactError(f"no address for the entry function '{artifact.entry}'; compile the model again")
    return LoadedCode(EntryFunction(address), keep=code)


def _objects(artifact: Artifact) -> list[bytes]:
    """Return the object files of an artifact's code: one, or the members of an archive."""
    if not archive.is_archive(artifact.code):
        return [artifact.code]
    try:
        return [content for _, content in archive.unpack(artifact.code)]
    except archive.BadArchive as problem:
        raise ArtifactError(f"the model's code cannot be loaded: {problem}; compile the model again") from None


def _check_machine(artifact: Artifact) -> None:
    triple = artifact.metadata.get("triple")
    features = artifact.metadata.get("features")
    if not isinstance(triple, str) or not _is_texts(features):
        raise ArtifactError(
            "the model does not say for which machine it was compiled: expected metadata 'triple', text, and "
            f"'features', a list of texts (see loaders.llvm_host); found {triple!r} and {features!r}"
        )
    own = host_cpu().triple
    if platform_of(triple) != platform_of(own):
        raise NotForThisMachine(f"the model was compiled for {triple}, this machine is {own}: compile it again for it")
    lacking = [feature for feature in features if feature not in host_cpu().features]
    if not lacking and any(feature in AMX for feature in features) and not permits_tiles():
        raise NotForThisMachine(
            "the model was compiled for a CPU with AMX, whose registers the system does not permit this process to use "
            "(a thread with a small signal stack, a sandbox, or Linux before 5.16): compile it here, or for "
            "--target 'llvm{tiles=none}'"
        )
    if lacking:
        names = ", ".join(lacking)
        raise NotForThisMachine(
            f"the model was compiled for a CPU with {names}, which this one lacks: compile it here, or for "
            "this kind of CPU: --target 'llvm{cpu=x86-64-v3}', for example"
        )


def _is_texts(value: object) -> TypeGuard[Sequence[str]]:
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


def _check_symbols(artifact: Artifact) -> None:
    try:
        tables = [symbols_of(code) for code in _objects(artifact)]
    except BadObject as problem:
        raise ArtifactError(f"the model's code cannot be loaded: {problem}; compile the model again") from None
    defined = {name for symbols in tables for name in symbols.defined}
    undefined = {name for symbols in tables for name in symbols.undefined} - defined
    if artifact.entry not in defined:
        raise ArtifactError(f"the model's code does not define its entry function '{artifact.entry}'; compile it again")
    unknown = sorted(name for name in undefined if not find_symbol(name))
    if unknown:
        raise ArtifactError(
            f"the model's code needs {', '.join(unknown)}, which this process does not define: load the library that "
            "does (ctypes.CDLL(path, ctypes.RTLD_GLOBAL)) before the model, or compile the model without it"
        )


def platform_of(triple: str) -> tuple[str, str]:
    """Return the processor and the system; vendor, version and libc do not matter to loading."""
    parts = triple.split("-")
    system = next((name for name in ("linux", "darwin", "macos", "windows") if name in triple), triple)
    processor = {"arm64": "aarch64", "amd64": "x86_64"}.get(parts[0], parts[0])
    return processor, "darwin" if system == "macos" else system


register_loader("llvm", load_llvm)
