"""Compilation to code for other tools: an artifact that is not loaded, with its weights."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from mirlo.driver.build import build
from mirlo.driver.compiler import Compiler
from mirlo.driver.model_cache import open_cache
from mirlo.driver.models import fix_dims
from mirlo.driver.request import CompileRequest, Progress, ignore_progress
from mirlo.driver.tune.database import open_database
from mirlo.passes.targets import TargetError
from mirlo.runtime.artifact import Artifact
from mirlo.runtime.cache import Cache
from mirlo.runtime.params import ParameterStore


def compile_code(
    model: Any, target: str = "llvm", *, form: str, threads: int = 1,
    shapes: Mapping[str, Sequence[int | str]] | None = None, dims: Mapping[str, int] | None = None,
    pipeline: str | None = None, opt_level: int = 2, precision: str | None = None, activations: str | None = None,
    jobs: int | None = None, cache: Cache | bool | str | os.PathLike[str] = True, trust_file: bool = False,
    progress: Progress | None = None,
) -> tuple[Artifact, ParameterStore]:  # fmt: skip
    """Compile a model to a form of code, as `mirlo.compile` does; return the artifact and its weights."""
    if dims:
        shapes = fix_dims(model, shapes, dims)
    request = CompileRequest(
        model, target, threads, shapes, pipeline, opt_level=opt_level, cache=open_cache(cache), jobs=jobs,
        tuning=open_database(True), precision=precision, activations=activations, form=form, trust_file=trust_file,
        progress=progress or ignore_progress,
    )  # fmt: skip
    compiler = Compiler(request, build)
    if form and form not in compiler.target.forms:
        made = ", ".join(compiler.target.forms) or "none"
        raise TargetError(f"target '{compiler.target.name}' makes no code of the form '{form}'; its forms: {made}")
    compiled, session = compiler.run()
    if not isinstance(compiled, Artifact):
        raise TargetError(
            "the model works on sequences, optional values or strings, which the run time computes in Python: there is "
            "no code of it as a whole; export the part that works on tensors"
        )
    return compiled, session.params
