"""`mirlo.compile`: from a model to an executable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirlo.dialects.bindings import ir
from mirlo.passes.files import write_ir
from mirlo.passes.instrumentation import Instrument
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.passes.targets import find_target

if TYPE_CHECKING:
    from mirlo.runtime.executable import Executable
    from mirlo.runtime.params import ParameterStore

Progress = Callable[[str], None]
"""Called with a sentence before each step of a compilation."""


@dataclass(frozen=True)
class CompileOptions:
    """What a target's pipeline and code generator are told."""

    target: str = "llvm"
    threads: int = 1
    opt_level: int = 2


@dataclass
class _Steps(Instrument):
    """Tells the progress of a pipeline, and writes the IR after each pass where asked."""

    progress: Progress | None
    save_ir: Path | None
    session: Session
    count: int = field(default=0)

    def before_pass(self, step: Any, op: Any) -> None:
        if self.progress:
            self.progress(step.name)

    def after_pass(self, step: Any, op: Any) -> None:
        if self.save_ir is None or op.operation.name != "builtin.module":
            return
        self.count += 1
        write_ir(op, self.save_ir / f"{self.count:02}-{step.name}.mlir", self.session, enable_debug_info=True)


def compile(
    model: Any,
    target: str = "llvm",
    *,
    threads: int = 1,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    pipeline: Pipeline | str | None = None,
    legalize: Mapping[str, Callable[..., Any]] | None = None,
    opt_level: int = 2,
    save_ir: str | Path | None = None,
    progress: Progress | None = None,
    params: ParameterStore | None = None,
) -> Executable:
    """Compile a model: a path to an ONNX file, an `onnx.ModelProto`, its bytes, or an MLIR module.

    `shapes` fixes the dims of inputs that the model leaves open. `pipeline` replaces the target's. `legalize` maps
    operators (`"relax.softmax"`) to rules that come before all registered ones. `save_ir` names a folder for the IR
    after each pass. A module that the caller hands in is not changed; `params` holds the arrays that it names.
    """
    from mirlo.runtime.executable import Executable

    options = CompileOptions(target, threads, opt_level)
    module, store, session = _prepare(model, shapes, params)
    session.options["legalize"] = dict(legalize or {})
    chosen = find_target(target)
    if chosen.pipeline is None or chosen.emit is None:
        raise ValueError(f"target '{target}' makes no code: it has no pipeline or no emitter")
    steps = pipeline if isinstance(pipeline, Pipeline) else Pipeline(pipeline or chosen.pipeline(options))
    folder = Path(save_ir) if save_ir is not None else None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with module.context, ir.Location.unknown():
        if folder is not None:
            write_ir(module, folder / "00-import.mlir", session, enable_debug_info=True)
        steps.run(module, session, [_Steps(progress, folder, session)])
        if progress:
            progress("emit")
        artifact = chosen.emit(module, options)
    return Executable(artifact, store)


def _prepare(model: Any, shapes: Any, params: ParameterStore | None) -> tuple[Any, ParameterStore, Session]:
    from mirlo.runtime.params import ParameterStore

    if isinstance(model, ir.Module):
        store = params or ParameterStore()
        with model.context:
            return ir.Module.parse(model.operation.get_asm(enable_debug_info=True)), store, Session(store)
    from mirlo.frontends.onnx.importer import import_model

    module, store = import_model(model, shapes=shapes)
    return module, store, Session(store)
