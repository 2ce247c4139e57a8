"""Builds of a model for several kinds of processor: `llvm{cpu=x86-64-v2|x86-64-v3}`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.driver.request import CompileFunction, CompileRequest
from mirlo.passes.targets import TargetError, declared_target
from mirlo.runtime.errors import NotForThisMachine

if TYPE_CHECKING:
    from mirlo.passes.byoc.target_list import Targets
    from mirlo.runtime.fat import FatExecutable, UnloadedFat

MOST_BUILDS = 16
"""Most builds of one model: each takes as long to compile as the first."""


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


def compile_fat(
    request: CompileRequest, targets: list[str], compile_request: CompileFunction
) -> FatExecutable | UnloadedFat:
    """Compile a request for each of these targets; the ones for better processors come last."""
    # Imported here: a model of one build that the cache has needs nothing of the compiler.
    from mirlo.driver.specialize import sharing
    from mirlo.runtime.executable import Executable
    from mirlo.runtime.fat import UnloadedFat, choose
    from mirlo.runtime.params import ParameterStore
    from mirlo.runtime.unloaded import UnloadedModel

    store = ParameterStore()
    digests: dict[object, str] = {}
    builds = []
    for number, target in enumerate(targets):
        folder = None if request.save_ir is None else Path(request.save_ir) / f"build{number}"
        executable = compile_request(replace(request, target=target, save_ir=folder))
        if not isinstance(executable, (Executable, UnloadedModel)):
            raise TargetError(
                "programs of several parts have one build: name one processor, or export the tensors' part"
            )
        builds.append(sharing(executable, store, digests))
    try:
        return choose(builds, store)
    except NotForThisMachine as problem:
        return UnloadedFat(builds, store, str(problem))
