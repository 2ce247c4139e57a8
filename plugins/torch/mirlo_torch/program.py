"""Conversion of a module of PyTorch to a module of relax that shares its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from mirlo.extend.frontend import CompiledModel, ConvertedModel, ExampleInputs, ImportedModule
from mirlo_torch.compiled import CompiledModule
from mirlo_torch.decompose import decomposed
from mirlo_torch.draws import is_random
from mirlo_torch.errors import TorchImportError, UnsupportedAten
from mirlo_torch.frozen import FrozenWeights
from mirlo_torch.importer import import_exported
from mirlo_torch.locations import source_line
from mirlo_torch.onnx_program import shared_model
from mirlo_torch.signature import ModuleSignature, require_no_writes, written_buffers

if TYPE_CHECKING:
    import torch


_OF_ONNX = "which models of ONNX do not: return the new value"


def convert_program(model: object, example: ExampleInputs) -> ConvertedModel:
    """Convert an `nn.Module`, an `ExportedProgram` or an `ONNXProgram`."""
    import torch

    if isinstance(model, torch.nn.Module):
        model = export(model, example)
    elif example.given:
        raise TorchImportError(
            f"args, kwargs and dynamic_shapes are for an nn.Module, the {type(model).__name__} has its own"
        )
    if isinstance(model, torch.export.ExportedProgram):
        return convert_exported(model)
    if isinstance(model, torch.onnx.ONNXProgram):
        exported = model.exported_program
        if exported is not None:
            require_no_writes(exported, _OF_ONNX)
        known = None if exported is None else ModuleSignature.of(exported)
        return ConvertedModel(shared_model(model), lambda executable: CompiledModule(executable, known, None))
    raise TorchImportError(
        f"expected an nn.Module, an ExportedProgram or an ONNXProgram, found a {type(model).__name__}: give the module "
        "that it is made from"
    )


def convert_directly(program: torch.export.ExportedProgram, checks: bool = True) -> ConvertedModel:
    """Convert an exported program, or raise `UnsupportedAten` where an operator has no converter.

    Calls check, if wanted, what PyTorch refuses of data.
    """
    prepared = decomposed(program)
    return ConvertedModel(ImportedModule(*import_exported(prepared, checks=checks)), _wrapper(prepared))


def convert_exported(program: torch.export.ExportedProgram) -> ConvertedModel:
    """Convert an exported program."""
    try:
        return convert_directly(program)
    except UnsupportedAten:
        _require_inference(program)
        raise


def _wrapper(program: torch.export.ExportedProgram) -> Callable[[CompiledModel], CompiledModule]:
    """Return the function that wraps the executable of a program."""
    signature = ModuleSignature.of(program)
    held = {**dict(program.named_parameters()), **dict(program.named_buffers()), **program.constants}
    for name in written_buffers(program):
        held.pop(name)
    frozen = FrozenWeights.of(held)
    return lambda executable: CompiledModule(executable, signature, frozen)


def export(module: torch.nn.Module, example: ExampleInputs) -> torch.export.ExportedProgram:
    """Return the `ExportedProgram` of a module in evaluation mode, without decompositions."""
    import torch

    if example.args is None and not example.kwargs:
        raise TorchImportError(
            "an nn.Module needs example inputs: mirlo.compile(module, args=(tensor,)), with dynamic_shapes= for the "
            "dims that may change"
        )
    if module.training:
        raise TorchImportError("the module is in training mode: call module.eval() first")
    if not isinstance(example.args or (), tuple):
        raise TorchImportError(f"args: expected a tuple of forward's arguments, found a {type(example.args).__name__}")
    shapes = example.dynamic_shapes
    if isinstance(shapes, Mapping):
        shapes = dict(shapes)
    try:
        with torch.no_grad():
            return torch.export.export(module, example.args or (), dict(example.kwargs), dynamic_shapes=shapes)
    except Exception as error:
        raise TorchImportError(f"torch.export cannot trace {type(module).__name__}: {error}") from error


def _require_inference(program: torch.export.ExportedProgram) -> None:
    """Raise an error for an operator that draws random numbers or is in training mode, with the remedy."""
    for node in program.graph.nodes:
        if is_random(node):
            line = source_line(node)
            raise TorchImportError(
                f"operator '{node.target}' draws random numbers, which a compiled model cannot draw from PyTorch's "
                f"generator: make them an argument, or use torch.compile{f'; {line}' if line else ''}"
            )
        schema = getattr(node.target, "_schema", None)
        for index, argument in enumerate(schema.arguments if schema is not None else ()):
            if argument.name not in ("train", "training", "use_input_stats"):
                continue
            flag = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
            if flag is True:
                raise TorchImportError(
                    f"operator '{node.target}' is called with {argument.name}=True: only inference is compiled; call "
                    "eval() of its module"
                )
