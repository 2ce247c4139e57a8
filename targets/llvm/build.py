"""Object files of units: read from the cache, or compiled by several processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirlo.passes.targets import CompileOptions
from mirlo.runtime.cache import OBJECTS, Cache
from mirlo.targets.llvm.machine_code import OBJECT, CodeSettings
from mirlo.targets.llvm.options import parse_options
from mirlo.targets.llvm.processes import Compilation, CompileTask, compile_all
from mirlo.targets.llvm.units import CompilationUnit


def code_settings(options: CompileOptions) -> CodeSettings:
    """Return the settings of code that options request."""
    return CodeSettings(parse_options(options.target_options).processor, options.opt_level, options.form or OBJECT)


def build(
    units: Sequence[CompilationUnit],
    settings: CodeSettings,
    cache: Cache | None = None,
    jobs: int | None = None,
    while_compiling: Callable[[], None] | None = None,
    started: Compilation | None = None,
) -> list[bytes]:
    """Return the code of each unit; call `while_compiling` while worker processes compile, if there are any.

    `started` may have compiled some of the units already.
    """
    known = {unit.key: cache.get(OBJECTS, unit.key) if cache is not None else None for unit in units}
    cached = {key: content for key, content in known.items() if content is not None}
    missing = [unit for unit in units if unit.key not in cached]
    tasks = [task_of(unit) for unit in missing]
    compiled = (
        compile_all(tasks, settings, jobs, while_compiling)
        if started is None
        else started.finish(tasks, while_compiling)
    )
    for unit, content in zip(missing, compiled, strict=True):
        cached[unit.key] = content
        if cache is not None:
            cache.put(OBJECTS, unit.key, content)
    return [cached[unit.key] for unit in units]


def task_of(unit: CompilationUnit) -> CompileTask:
    """Return the task of compiling a unit."""
    return CompileTask(unit.name, unit.text, unit.entry)
