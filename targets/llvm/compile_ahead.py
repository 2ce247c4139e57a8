"""Compilation of kernels while passes run: workers begin with a kernel when `schedule` has lowered it.

The passes after `schedule` change each kernel alone: they run on a copy here, and the workers compile the result. Code
is found by the text from which it was compiled. A kernel whose text becomes another one in the module is compiled
again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.passes.instrumentation import PassFailed, Preparation
from mirlo.passes.pipeline_parser import Leaf, Nested, Step
from mirlo.passes.registry import Pass, PassError
from mirlo.passes.session import Session
from mirlo.passes.targets import CompileOptions
from mirlo.runtime.cache import OBJECTS, Cache
from mirlo.targets.llvm.machine_code import OBJECT, CodeSettings
from mirlo.targets.llvm.merge_kernels import similar_kernels
from mirlo.targets.llvm.options import parse_options
from mirlo.targets.llvm.processes import Compilation, CompileTask, compile_all, helpers
from mirlo.targets.llvm.units import SMALL, CompilationUnit, kernel_units


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
    lowered: dict[object, str] | None = None,
) -> list[bytes]:
    """Return the code of each unit; call `while_compiling` while worker processes compile, if there are any.

    `started` may have compiled some of the units already; `lowered` has the LLVM IR of units that other levels share.
    """
    known = {unit.key: cache.get(OBJECTS, unit.key) if cache is not None else None for unit in units}
    cached = {key: content for key, content in known.items() if content is not None}
    missing = [unit for unit in units if unit.key not in cached]
    tasks = [task_of(unit) for unit in missing]
    compiled = (
        compile_all(tasks, settings, jobs, while_compiling, lowered)
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


OF_KERNELS = ("lower-loops", "lower-intrinsics", "outline-parallel")
"""The passes after `schedule` that change each kernel by itself."""


class CompileAhead(Preparation):
    """The kernels of a model that workers compile while passes run."""

    watches_inner = True

    def __init__(self, options: CompileOptions) -> None:
        self.options = options
        self.settings = code_settings(options)
        self.compilation = Compilation(self.settings, helpers(options.jobs))
        self.similar: Mapping[str, int] = {}
        """The kernels that differ from others in scalars only, before they are lowered: groups by name."""
        self._sizes: Counter[int] = Counter()
        """The kernels of each group."""
        self._lowered: defaultdict[int, dict[str, ir.Module]] = defaultdict(dict)
        """The kernels of a group that wait for the others."""
        self._steps: list[Pass] = []
        """The passes that a kernel goes through after `schedule`."""
        self._session = Session()
        self._seen: set[str] = set()
        self._characters = 0
        self._held: list[CompilationUnit] = []
        """Kernels that wait for the model to be large enough to be divided."""

    def begin_stage(self, op: ir.OpView, remaining: Sequence[Step]) -> None:
        is_outermost = op.operation.parent is None and not isinstance(remaining[0], Nested)
        if is_outermost and remaining[0].name == "schedule" and self.settings.form == OBJECT:
            self._steps = [step for step in remaining[1:] if isinstance(step, Pass) and step.name in OF_KERNELS]
            self.similar = similar_kernels(op)
            self._sizes = Counter(self.similar.values())

    def after_function(self, step: Leaf, function: ir.OpView, session: Session) -> None:
        if step.name == "schedule" and self._steps and self.compilation.has_workers:
            self._session.options = session.options
            module, name = self._lower(function), symbol_name(function)
            if module is not None:
                self._add_kernel(name, module)

    def after_pass(self, step: Leaf, op: ir.OpView) -> None:
        if step.name == "schedule":
            self._steps = []

    def close(self) -> None:
        self.compilation.close()

    def _lower(self, function: ir.OpView) -> ir.Module | None:
        """Return a module with the lowered kernel; None where a pass fails, as it will fail on the module."""
        module = ir.Module.create(function.operation.location)
        with ir.InsertionPoint(module.body):
            function.operation.clone()
        try:
            for step in self._steps:
                step.run(module.operation.opview, self._session)
        except (PassError, PassFailed, ir.MLIRError):
            return None
        return module

    def _add_kernel(self, name: str, module: ir.Module) -> None:
        """Add a kernel, or all of its group if it is the last one."""
        modules = {name: module}
        group = self.similar.get(name)
        if group is not None:
            self._lowered[group][name] = module
            if len(self._lowered[group]) < self._sizes[group]:
                return
            modules = self._lowered.pop(group)
        for unit in kernel_units(modules, self.settings):
            if unit.key not in self._seen:
                self._seen.add(unit.key)
                self._add(unit)

    def _add(self, unit: CompilationUnit) -> None:
        self._held.append(unit)
        self._characters += len(unit.text)
        if self._characters < SMALL:
            return
        cache = self.options.cache
        for held in self._held:
            if cache is None or not cache.has(OBJECTS, held.key):
                self.compilation.add(task_of(held))
        self._held.clear()
