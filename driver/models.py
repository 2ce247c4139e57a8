"""Opening of models: ONNX files, IR of any stage of compilation, modules in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.dims import UNKNOWN, Dim, substitute, symbols_of
from mirlo.dialects.core.input_sizes import sized_shapes, sizes_of_shapes
from mirlo.dialects.core.surgery import clone_module
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.core.walk import diagnostics_to
from mirlo.dialects.tir.buffers import FOREIGN
from mirlo.dialects.tir.view import PRIM_FUNC, is_prim_func
from mirlo.frontends.files import BYTECODE_PREFIX, FileForm, form_of, forms_named, has_form, missing_package
from mirlo.frontends.foreign import ImportedModule
from mirlo.passes.byoc.artifacts import ARTIFACTS
from mirlo.passes.entry import PLANNED, entry_or_none, select_entry
from mirlo.passes.files import FileError
from mirlo.passes.instrumentation import PassFailed
from mirlo.passes.locations import describe
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.registry import PassError
from mirlo.passes.session import Session
from mirlo.passes.targets import takes_dynamic_dims
from mirlo.runtime.errors import MirloError
from mirlo.runtime.files import read_regular
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.processes import can_fork
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    import numpy as np

IR_SUFFIXES = (".mlir", ".mlirbc", ".py")


class ModelError(MirloError, ValueError):
    """A model that cannot be compiled."""

    error_code = "MIR0613"
    remedy = "Pass a model of a form that the message lists."


@dataclass
class OpenedModel:
    """A module, its weights, and the remaining passes that its file lists, if any."""

    module: ir.Module
    session: Session
    pipeline: str | None = None


def open_model(
    model: object,
    shapes: Mapping[str, Sequence[int | str] | None] | None = None,
    params: ParameterStore | None = None,
    trust: bool = False,
    rings: bool = False,
) -> OpenedModel:
    """Open a path to an ONNX or IR file, an `onnx.ModelProto`, the bytes of a model, or a copy of a module.

    A file of IR may name passes that reach outside of the module, and hold machine code, only where `trust` is set. The
    caches of windows become rings with `rings`.
    """
    is_ir = isinstance(model, (str, os.PathLike)) and is_ir_file(model)
    if rings and (is_ir or isinstance(model, (ImportedModule, ir.Module))):
        raise ModelError("ring_caches: caches become rings when an ONNX model is imported: compile the ONNX model")
    if isinstance(model, ImportedModule):
        params = model.params
        model = model.module
    if isinstance(model, ir.Module):
        copy = clone_module(model)
        copy.operation.verify()
        opened = _checked(OpenedModel(copy, Session(ParameterStore() if params is None else params.copy())))
        return _with_shapes(opened, shapes, "the module")
    if isinstance(model, (str, os.PathLike)) and is_ir_file(model):
        return _with_shapes(_checked(_open_ir(Path(model), params, trust)), shapes, str(model))
    from mirlo.frontends.onnx.importer import import_model

    module, store = import_model(model, shapes=shapes, rings=rings)
    return OpenedModel(module, Session(store))


def fix_dims(
    model: object, shapes: Mapping[str, Sequence[int | str] | None] | None, dims: Mapping[str, int] | None
) -> Mapping[str, Sequence[int | str] | None] | None:
    """Return the shapes of a model's inputs for sizes that are given by input and by dim."""
    if not dims:
        return shapes
    if isinstance(model, (ir.Module, ImportedModule)) or (isinstance(model, (str, os.PathLike)) and is_ir_file(model)):
        what = str(model) if isinstance(model, (str, os.PathLike)) else "the module"
        declared = _input_types(open_model(model, trust=True).module, what)
        try:
            asked = sized_shapes(what, declared, declared, dims, {})
            fixed = sizes_of_shapes(what, declared, asked)
            sizes_of_shapes(what, {name: _substituted(kind, fixed) for name, kind in declared.items()}, shapes or {})
        except ValueError as error:
            raise ModelError(str(error)) from None
        return {**asked, **(shapes or {})}
    from mirlo.frontends.onnx.inputs import shapes_with_dims

    return shapes_with_dims(model, shapes, dims)


def _with_shapes(model: OpenedModel, shapes: Mapping[str, Sequence[int | str] | None] | None, what: str) -> OpenedModel:
    """Give the dynamic dims of a module the sizes with which its inputs have these shapes."""
    if not shapes:
        return model
    try:
        sizes = sizes_of_shapes(what, _input_types(model.module, what), shapes)
    except ValueError as error:
        raise ModelError(str(error)) from None
    if sizes:
        from mirlo.passes.graph.fix_dims import fix_dims as fix_module_dims  # for modules only

        with model.module.context, ir.Location.unknown():
            try:
                fix_module_dims(model.module.operation, sizes)
                model.module.operation.verify()
            except (PassError, ir.MLIRError) as error:
                chosen = ", ".join(f"{name} = {size}" for name, size in sizes.items())
                raise ModelError(f"{what}: with {chosen} it is not valid: {_first_problem(error)}") from None
    return model


def _first_problem(error: Exception) -> str:
    """Return the message of an error with the place of what it is about."""
    if isinstance(error, ir.MLIRError) and error.error_diagnostics:
        first = error.error_diagnostics[0]
        return f"{describe(first.location)}: {first.message}"
    location = error.location if isinstance(error, PassError) else None
    return f"{describe(location)}: {error}" if location is not None else str(error)


def _input_types(module: ir.Module, what: str) -> dict[str, TensorType]:
    """Return the types of the model's inputs that are tensors, by name."""
    main = entry_or_none(module)
    if main is None:
        raise ModelError(f"{what}: it has no graph that is the model, whose inputs have shapes: call it @main")
    if PLANNED in main.attributes:
        raise ModelError(f"{what}: its memory is planned, so that its shapes are fixed: compile what it was made from")
    kinds = [TensorType.from_mlir(argument.type) for argument in main.regions[0].blocks[0].arguments]
    return {_input_name(main.opview, i): kind for i, kind in enumerate(kinds) if kind is not None}


def _substituted(kind: TensorType, sizes: Mapping[str, Dim]) -> TensorType:
    return kind.with_shape([substitute(dim, sizes) for dim in kind.shape])


def _checked(model: OpenedModel) -> OpenedModel:
    """Check the properties of a valid module that passes rely on and MLIR's verifier does not check; return it."""
    problems: list[str] = []

    def note(diagnostic: ir.DiagnosticInfo | ir.Diagnostic) -> bool:
        problems.append(f"{describe(diagnostic.location)}: {diagnostic.message}")
        return True

    with model.module.context as context:
        try:
            with diagnostics_to(context, note):
                Pipeline("verify-calls").run(model.module, model.session, verify_each=False)
        except PassFailed as failure:
            raise ModelError("\n".join(["the module is not consistent:", *problems, str(failure)])) from failure
        select_entry(model.module)
        for function in model.module.body.operations:
            if is_prim_func(function):
                function.operation.attributes[FOREIGN] = ir.UnitAttr.get()
    return model


def require_sizes(module: ir.Module, target: str) -> None:
    """Raise an error if inputs of the model have dynamic dims and the target supports none."""
    takes_symbols = takes_dynamic_dims(target)
    for function in module.body.operations:
        if function.operation.name != "func.func" or PRIM_FUNC in function.operation.attributes:
            continue
        for index, kind in enumerate(function.type.inputs):
            tensor = TensorType.from_mlir(kind)
            if tensor is None or tensor.is_static:
                continue
            if not takes_symbols or any(dim is UNKNOWN for dim in tensor.shape):
                raise ModelError(_needs_sizes(_input_name(function, index), tensor, target))


def _input_name(function: ir.OpView, index: int) -> str:
    attributes = function.operation.attributes.get("arg_attrs", None)
    named = attributes is not None and "relax.name" in attributes[index]
    return attributes[index]["relax.name"].value if named else f"{index}"


def _needs_sizes(name: str, kind: TensorType, target: str) -> str:
    sizes = [dim if isinstance(dim, int) else 1 for dim in kind.shape]
    flags = " ".join(f"--dim {symbol}=N" for symbol in sorted({s for dim in kind.shape for s in symbols_of(dim)}))
    return (
        f"input '{name}' is {kind}, and target '{target}' needs a number for each dim: give the sizes of the dims, "
        f"{flags or '--dim'}, in Python dims=, or the shape, for instance "
        f"--shape {name}={'x'.join(map(str, sizes))}, in Python shapes={{'{name}': {sizes}}}"
    )


def is_ir_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a file holds MLIR, as text, as bytecode or as script, or the program of another system."""
    return Path(path).suffix in IR_SUFFIXES or has_form(path) or missing_package(path) is not None


def _open_ir(path: Path, params: ParameterStore | None, trust: bool) -> OpenedModel:
    content = _read(path)
    form = form_of(path, content)
    if form is not None:
        return _open_form(path, content, form)
    missing = missing_package(path, content)
    if missing is not None:
        raise FileError(f"{path} is {missing}")
    if path.suffix not in IR_SUFFIXES:
        raise FileError(f"{path} is no {forms_named(path)} file: its content is another, or damaged")
    from mirlo.driver.modules import read_module  # an ONNX model needs none of what reads modules

    session = Session(ParameterStore() if params is None else params.copy())
    with make_context():
        try:
            module = read_module(path, session)
        except ir.MLIRError as error:
            raise FileError(_syntax_errors(path, content, error)) from None
    pipeline = _remaining(content)
    if not trust:
        _require_contained(path, module, pipeline)
    return OpenedModel(module, session, pipeline)


def _read(path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        raise FileError(f"cannot read '{path}': {error.strerror or error}") from None


def _open_form(path: Path, content: bytes, form: FileForm) -> OpenedModel:
    """Open a program of another system."""
    module, store = form.open(_as_mlir(path, content, form), str(path))
    return OpenedModel(module, Session(store))


def _as_mlir(path: Path, content: bytes, form: FileForm) -> bytes:
    """Return the program in a file as MLIR that is safe to parse."""
    if form.to_mlir is not None:
        content = form.to_mlir(path)
    if content.startswith(BYTECODE_PREFIX) and can_fork():
        from mirlo.driver.bytecode import read_in_child

        with make_context():
            return read_in_child(lambda: form.parse(content, str(path)), str(path))
    return content


def initial_states(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Return the initial values of the inputs that are states: variables of the model's program.

    A call takes a state as an input, and returns what the next call takes as an output of the same name. Models in
    formats without variables have none.
    """
    file = Path(path)
    if not has_form(file):
        missing = missing_package(file)
        if missing is not None:
            raise FileError(f"{file} is {missing}")
        return {}
    content = _read(file)
    form = form_of(file, content)
    return {} if form is None or form.states is None else form.states(_as_mlir(file, content, form), str(file))


def _require_contained(path: Path, module: ir.Module, pipeline: str | None) -> None:
    """Raise an error for a file with passes or code that are not trusted."""
    from mirlo.passes.reproducer import TRUST, uncontained

    advice = f"give {TRUST} (in Python trust_file=True) if you trust the file"
    why = uncontained(Pipeline(pipeline)) if pipeline is not None else None
    if why is not None:
        raise ModelError(f"{path}: the file's first line {why}: {advice}")
    if ARTIFACTS not in module.operation.attributes:
        return
    held = module.operation.attributes[ARTIFACTS]
    if not isinstance(held, ir.DictAttr) or len(held):
        raise ModelError(f"{path}: the module holds code that other compilers made ('{ARTIFACTS}'): {advice}")


def _remaining(content: bytes) -> str | None:
    """Return the pipeline that the first line of the file names, or None."""
    if content.startswith(BYTECODE_PREFIX):
        return None
    from mirlo.passes.reproducer import arguments_of

    for argument in arguments_of(content.decode("utf-8", "replace")) or ():
        flag, _, value = argument.partition("=")
        if flag == "--pass-pipeline":
            return value
    return None


def _syntax_errors(path: Path, content: bytes, error: ir.MLIRError) -> str:
    from mirlo.driver.diagnostics import Diagnostic, find_source_position, render
    from mirlo.driver.source import SourceFile

    source = SourceFile(str(path), content)
    errors = [
        Diagnostic(d.severity.name.lower(), d.message, find_source_position(d.location))
        for d in error.error_diagnostics
    ]
    return "\n".join([f"{path} is not valid IR:", *(render(diagnostic, source).rstrip() for diagnostic in errors)])
