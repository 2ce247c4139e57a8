"""The request of one compilation: the arguments of `mirlo.compile`, and those of tools."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from mirlo.driver.model_cache import open_cache
from mirlo.driver.options import DEFAULTS, OPTIONS, CompileArguments, Progress
from mirlo.passes.targets import CompileOptions, TargetError, declared_target
from mirlo.runtime.cache import default_folder
from mirlo.runtime.private_folders import unsafe_folder
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.dialects.bindings import ir
    from mirlo.driver.tune.database import Database
    from mirlo.passes.byoc.target_list import Targets
    from mirlo.runtime.cache import Cache
    from mirlo.runtime.executable import Executable
    from mirlo.runtime.params import ParameterStore
    from mirlo.runtime.program import Program
    from mirlo.runtime.unloaded import UnloadedModel

CompiledResult: TypeAlias = "Executable | Program | UnloadedModel"
"""What a compilation returns."""
CompileFunction = Callable[["CompileRequest"], CompiledResult]
"""Compiles a request: measured placement and strategies compile alternatives with it."""
MOST_BUILDS = 16
"""Most builds of one model: each takes as long to compile as the first."""


def ignore_progress(step: str) -> None:
    """Report no progress."""


@dataclass(frozen=True, kw_only=True)
class CompileRequest(CompileArguments):
    """One compilation: its options, checked, and the form of code that tools request."""

    form: str = ""
    """The form of code that the emitter makes, for other tools; empty for what its loader takes."""
    kernel: str = ""
    """The kernel whose code is wanted, with a form of code; empty for all."""
    merges: bool = False
    """Whether kernels that differ in numbers only are merged in a small model too, for tests of that."""

    @classmethod
    def of(cls, arguments: CompileArguments, **changes: Any) -> CompileRequest:
        """Return the request of these arguments, with changes."""
        current = {each.name: getattr(arguments, each.name) for each in fields(arguments)}
        return cls(**{**current, **changes})

    def options(self, target: str, target_options: str = "") -> CompileOptions:
        """Return the options for the pipeline and the emitter of a target."""
        return CompileOptions(
            target,
            self.threads,
            self.opt_level,
            target_options,
            self.jobs,
            self.opened_cache,
            form=self.form,
            kernel=self.kernel,
        )

    def with_fixed_dims(self) -> CompileRequest:
        """Return the request with shapes of inputs in the place of sizes of dims."""
        if not self.dims:
            return self
        from mirlo.driver.models import fix_dims

        return replace(self, shapes=fix_dims(self.model, self.shapes, self.dims), dims=None)

    def of_module(self, module: ir.Module, params: ParameterStore, *, is_part: bool, **changes: Any) -> CompileRequest:
        """Return the request for a module that was opened: the model, or a part, which other passes went through."""
        names = {"shapes", "dims", "pipeline", "save_ir", "ring_caches", "trust_file", "progress", "load"}
        if is_part:
            names |= {name for name, declared in OPTIONS.items() if declared.own_pass}
        opened = {name: DEFAULTS[name] for name in names}
        return CompileRequest.of(
            self, **{**opened, "form": "", "kernel": "", **changes, "model": module, "params": params}
        )

    @property
    def report(self) -> Progress:
        """Return the callback for the name of each step."""
        return self.progress or ignore_progress

    @cached_property
    def opened_cache(self) -> Cache | None:
        """Return the cache, or None."""
        return open_cache(self.cache)

    @cached_property
    def database(self) -> Database | None:
        """Return the database of tuned choices, or None if it is empty."""
        return open_database(self.tune)

    @property
    def tune_seconds(self) -> float | None:
        """Return the time of a search before the compilation; None for no search."""
        is_time = isinstance(self.tune, (int, float)) and not isinstance(self.tune, bool)
        return float(self.tune) if is_time else None  # type: ignore[arg-type]

    @property
    def single_target(self) -> str | None:
        """Return the target, or None for a list of several."""
        return self.target if isinstance(self.target, str) and "," not in self.target else None

    def key_options(self) -> dict[str, object]:
        """Return the options that change the result; an `object` stands for a value that no cache key can contain."""
        target = self.single_target or ""
        declared = {name: each.key(getattr(self, name)) for name, each in OPTIONS.items() if each.key is not None}
        return {
            **declared,  # but for what is in a key in another form
            "target": "" if target == target.partition("{")[0].strip() else target,
            "tune": self.database.digest if self.database is not None else None,
        }


def alternatives(target: str | None) -> list[str]:
    """Return the targets that options with `|` list, in order; empty if there are none."""
    if target is None or "|" not in target:
        return []
    name, _, options = target.partition("{")
    parts = options.removesuffix("}").split()
    several = [i for i, part in enumerate(parts) if "|" in part]
    if not declared_target(name.strip()).chooses_at_load:
        raise TargetError(f"target '{name.strip()}' chooses nothing when a model is loaded: name one value, found '|'")
    if len(several) != 1:
        raise TargetError(
            f"alternatives are listed in one option of '{name.strip()}', found {len(several)}: '{target}'"
        )
    key, _, values = parts[several[0]].partition("=")
    listed = list(dict.fromkeys(values.split("|")))
    if not all(listed) or len(listed) > MOST_BUILDS:
        raise TargetError(f"option {key}: expected up to {MOST_BUILDS} values with '|' between them, found '{values}'")
    others = [parts[: several[0]], parts[several[0] + 1 :]]
    return [f"{name}{{{' '.join([*others[0], f'{key}={value}', *others[1]])}}}" for value in listed]


def require_one_build(targets: Targets) -> None:
    """Raise `TargetError` if options list alternatives where only one build is supported."""
    host = targets.host
    if host is None or "|" not in host.options or not declared_target(host.name).chooses_at_load:
        return
    raise TargetError(
        f"'{host}' lists alternatives with '|', of which compiled models (.mirlo) have a build each; here there is "
        "one: name one value"
    )


def default_database() -> Path:
    """Return the database that compilations read by default."""
    return default_folder() / "tuning.json"


def open_database(tune: Database | bool | float | str | os.PathLike[str]) -> Database | None:
    """Return the database for the option `tune` of `compile`, or None if it is empty."""
    path = default_database() if isinstance(tune, (bool, int, float)) else None
    if path is not None and (not tune or not path.exists()):
        return None
    from mirlo.driver.tune.database import Database  # few users have one

    if isinstance(tune, Database):
        return tune
    if path is None:
        return Database(tune)  # type: ignore[arg-type]
    problem = unsafe_folder(path.parent)
    if problem is not None:
        warnings.warn(f"what was tuned is not used: {problem}", stacklevel=2)
        return None
    return Database(path)
