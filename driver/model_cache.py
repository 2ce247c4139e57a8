"""Whole models in the cache: the compiled form of a model's file, with packed weights, ready to be mapped.

The key holds all that the result depends on: the content of the model's file and of those that it refers to, the
options, the machine, the sources of Mirlo and of installed packages that extend it, the versions of the libraries.
Where something cannot be part of a key, such as rules that a script registered, the model is compiled as if there were
no such cache; `Uncacheable` says why. Nothing here imports the compiler: a lookup costs only the time to read the
files.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.passes.targets import plugin_of
from mirlo.runtime import artifact
from mirlo.runtime.artifact import Artifact, save
from mirlo.runtime.cache import LARGEST_SHARE, MANIFESTS, MODELS, Cache, default_folder
from mirlo.runtime.errors import ArtifactError, NotForThisMachine
from mirlo.runtime.extenders import compiler_version, foreign_extenders
from mirlo.runtime.files import resolved
from mirlo.runtime.records import dataclass
from mirlo.runtime.sources import digest_of_unchanged

if TYPE_CHECKING:
    from mirlo.passes.targets import Target
    from mirlo.runtime.compiled_program import CompiledProgram
    from mirlo.runtime.executable import Executable
    from mirlo.runtime.params import ParameterStore
    from mirlo.runtime.program import Program
    from mirlo.runtime.unloaded import UnloadedModel

MIN_COMPILE_SECONDS = 0.2
"""Models that compile faster are not cached."""


@dataclass(frozen=True)
class Uncacheable:
    """Why a compilation cannot be cached."""

    reason: str


@dataclass(frozen=True)
class CacheKey:
    """The key of a compilation whose result the cache may have."""

    cache: Cache
    model: Path | None
    """The model's file; None for a model in memory, which refers to no other files."""
    key: str

    def lookup(self) -> Executable | Program | UnloadedModel | None:
        """Return the compiled model, or None if there is no valid one."""
        manifest = self.cache.get(MANIFESTS, self.key)
        if manifest is None:
            return None
        try:
            entry = self.cache.find(MODELS, self._full_key(json.loads(manifest)["files"]))
            return None if entry is None else _load(entry)
        except (OSError, ArtifactError):
            return None  # a file that the model refers to is gone: the compilation will tell; or the entry is

    def store(self, compiled: Artifact | CompiledProgram, params: ParameterStore, files: Iterable[Path]) -> str | None:
        """Store the compiled model, or return why it is too large. `files` are those that it refers to."""
        names = sorted({os.path.relpath(resolved(file), self._folder) for file in files}) if self.model else []
        parts = (compiled,) if isinstance(compiled, Artifact) else compiled.parts
        weights = {spec.name for part in parts for spec in part.params}
        size = sum(len(part.code) for part in parts) + params.nbytes_of(weights)
        if size > self.cache.largest():
            needed = 1 + int(size / LARGEST_SHARE) // (1 << 20)
            what = f"it takes {_mebibytes(size)}, more than half of the cache's limit of"
            return f"{what} {_mebibytes(self.cache.max_bytes())}: mirlo cache limit {needed}MiB"
        try:
            full_key = self._full_key(names)
        except OSError:
            return None
        self.cache.put_file(MODELS, full_key, size, lambda path: _save(path, compiled, params))
        self.cache.put(MANIFESTS, self.key, json.dumps({"files": names}).encode())
        return None

    @property
    def _folder(self) -> Path:
        assert self.model is not None, "a model in memory refers to no files"
        return resolved(self.model).parent

    def _full_key(self, names: list[str]) -> str:
        parts = [self.key, *(f"{name} {digest_of_unchanged(self._folder / name)}" for name in names)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:40]


def _mebibytes(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB"


def _save(path: Path, compiled: Artifact | CompiledProgram, params: ParameterStore) -> None:
    from mirlo.runtime.program_file import write_program

    if isinstance(compiled, Artifact):
        save(path, compiled, params)
    else:
        write_program(path, compiled, params)


def _load(path: Path) -> Executable | Program | UnloadedModel | None:
    """Return the model in a file of the cache, not loaded if it is for another machine."""
    from mirlo.runtime.load import load
    from mirlo.runtime.unloaded import UnloadedModel

    try:
        return load(path)
    except NotForThisMachine as problem:
        content, params = artifact.load(path)
        return None if content.loader == "program" else UnloadedModel(content, params, str(problem))


def open_cache(cache: Cache | bool | str | os.PathLike[str]) -> Cache | None:
    """Return the cache for the option `cache` of `compile`, or None."""
    if isinstance(cache, Cache):
        return cache
    if isinstance(cache, bool):
        return Cache(default_folder()) if cache else None
    return Cache(Path(cache))


def cache_key(
    cache: Cache | None, model: object, target: Target, options: Mapping[str, object]
) -> CacheKey | Uncacheable:
    """Return the key of a compilation; `options` are all arguments of `mirlo.compile` that change the result."""
    if cache is None:
        return Uncacheable("there is no cache")
    digest: str | None = getattr(model, "digest", None)
    if isinstance(model, (bytes, bytearray, memoryview)):
        digest = hashlib.sha256(model).hexdigest()
    path = Path(model) if isinstance(model, (str, os.PathLike)) else None
    tools = "" if digest is not None else _tools_of(path)
    if tools is None:
        return Uncacheable("only models in files of ONNX or TensorFlow Lite, and those of frameworks, are kept whole")
    if not target.has("fingerprint"):
        return Uncacheable(f"target '{target.name}' does not say what of the machine its code depends on")
    added = extended(target)
    if added is not None:
        return Uncacheable(added)
    if options.get("strategies") == "measure":
        return Uncacheable("strategies are measured anew")
    nonempty = {name: value for name, value in options.items() if value}
    try:
        text = json.dumps(nonempty, sort_keys=True)
    except TypeError as error:
        return Uncacheable(f"an option cannot be part of a key: {error}")
    try:
        digest = digest or digest_of_unchanged(path or "")
    except OSError as error:
        return Uncacheable(f"the model cannot be read: {error.strerror or error}")
    target_options = str(nonempty.get("target", "")).partition("{")[2].removesuffix("}")
    parts = [digest, tools, target.name, target.fingerprint(target_options), text, compiler_version()]
    return CacheKey(cache, path, hashlib.sha256("\n".join(parts).encode()).hexdigest()[:40])


def _tools_of(path: Path | None) -> str | None:
    """Return the tools that convert a model's file before the compiler, or None if the result cannot be cached."""
    if path is None:
        return None
    if path.suffix.lower() == ".onnx":
        return ""
    from mirlo.frontends.files import tool_versions

    return tool_versions(path)


def extended(target: Target) -> str | None:
    """Return the extensions of this process that no cache key covers, or None."""
    if plugin_of(target.name) is not None:
        return f"target '{target.name}' belongs to no installed package"
    extenders = foreign_extenders()
    if extenders:
        return f"this process has extended the compiler (module '{extenders[0]}' uses mirlo.extend)"
    names = [
        name for name in ("legalize", "onnx_operator", "prim_func", "script") if name in vars(sys.modules["mirlo"])
    ]
    if names:
        return f"this process has extended the compiler (mirlo.{names[0]})"
    rules = sys.modules.get("mirlo.passes.rules")
    if rules is None:
        return None
    for book in vars(rules).values():
        if isinstance(book, rules.RuleBook):
            rule = book.foreign()
            if rule is not None:
                module = getattr(rule.function, "__module__", "") or ""
                return f"this process has extended the compiler (rule {rule.name} of module '{module}')"
    return None
