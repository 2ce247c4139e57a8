"""Builds of a model for several kinds of processor: `llvm{cpu=x86-64-v2|x86-64-v3}`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.driver.request import CompileFunction, CompileRequest
from mirlo.driver.specialize import sharing
from mirlo.passes.targets import TargetError
from mirlo.runtime.errors import NotForThisMachine
from mirlo.runtime.executable import Executable
from mirlo.runtime.fat import UnloadedFat, choose
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.unloaded import UnloadedModel

if TYPE_CHECKING:
    from mirlo.runtime.fat import FatExecutable


def compile_fat(
    request: CompileRequest, targets: list[str], compile_request: CompileFunction
) -> FatExecutable | UnloadedFat:
    """Compile a request for each of these targets; the ones for better processors come last."""
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
