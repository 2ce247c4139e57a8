"""From a module of PyTorch to a program that shares its weights: relax, or ONNX where an operator has no converter."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mirlo.frontends.foreign import CompiledModel, ConvertedModel, ExampleInputs, ImportedModule, require_package
from mirlo.frontends.torch.compiled import CompiledModule
from mirlo.frontends.torch.decompose import decomposed
from mirlo.frontends.torch.draws import is_random
from mirlo.frontends.torch.errors import TorchImportError, UnsupportedAten
from mirlo.frontends.torch.frozen import FrozenWeights
from mirlo.frontends.torch.importer import import_exported
from mirlo.frontends.torch.locations import source_line
from mirlo.frontends.torch.onnx_program import shared_model
from mirlo.frontends.torch.signature import ModuleSignature, require_no_writes, written_buffers

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
    """Convert an exported program, through ONNX where an operator has no converter."""
    try:
        return convert_directly(program)
    except UnsupportedAten as problem:
        reason = problem
    _require_inference(program)
    program = functional(program)
    require_no_writes(program, f"and is converted through ONNX, {_OF_ONNX}; {reason}")
    wrap = _wrapper(program)
    warnings.warn(f"mirlo: the program is converted through ONNX: {reason}", stacklevel=2)
    try:
        return ConvertedModel(shared_model(to_onnx(program)), wrap)
    except TorchImportError as problem:
        raise TorchImportError(f"{reason}; through ONNX: {problem}") from problem


def _wrapper(program: torch.export.ExportedProgram) -> Callable[[CompiledModel], CompiledModule]:
    """Return what wraps the executable of a program."""
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
    """Raise an error for an operator that computes as in training: the exporter would make it one of inference.

    Random numbers of ONNX are not those of PyTorch's generators.
    """
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
            given = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
            if given is True:
                raise TorchImportError(
                    f"operator '{node.target}' is called with {argument.name}=True: only inference is compiled; call "
                    "eval() of its module"
                )


def functional(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return a program without operators that write their operands: its signature says what it writes."""
    for node in program.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if schema is not None and schema.is_mutable:
            try:
                return program.run_decompositions({})
            except Exception as error:
                raise TorchImportError(f"PyTorch cannot decompose the program: {error}") from error
    return program


def to_onnx(program: torch.export.ExportedProgram) -> torch.onnx.ONNXProgram:
    """Return the `ONNXProgram` of an exported program."""
    require_package("onnxscript", "torch")
    import torch

    with warnings.catch_warnings(), _quiet("torch.onnx"), _without_constant_results(program):
        warnings.simplefilter("ignore")
        try:
            # Mirlo optimizes by itself; the exporter's own rules copy weights, and some change their types.
            result = torch.onnx.export(program, dynamo=True, verbose=False, optimize=False)
        except Exception as error:
            raise TorchImportError(f"torch.onnx cannot convert the program: {_cause(error, program)}") from error
    if result is None:
        raise TorchImportError("torch.onnx returned no program")
    return result


@contextmanager
def _quiet(logger: str) -> Iterator[None]:
    """Log errors only: what the exporter warns of is handled here."""
    found = logging.getLogger(logger)
    level = found.level
    found.setLevel(logging.ERROR)
    try:
        yield
    finally:
        found.setLevel(level)


@contextmanager
def _without_constant_results(program: torch.export.ExportedProgram) -> Iterator[None]:
    """Let a program return None in place of numbers, which the exporter does not take; the signature keeps them."""
    from torch.export.graph_signature import ConstantArgument, OutputSpec
    from torch.fx import Node

    node, signature = program.graph.output_node(), program.graph_signature
    results, specs = node.args, list(signature.output_specs)
    node.args = (tuple(value if isinstance(value, Node) else None for value in results[0]),)
    signature.output_specs[:] = [
        OutputSpec(spec.kind, ConstantArgument(spec.arg.name, None), spec.target)
        if isinstance(spec.arg, ConstantArgument)
        else spec
        for spec in specs
    ]
    try:
        yield
    finally:
        node.args = results
        signature.output_specs[:] = specs


_NODE = re.compile(r"Error when translating node %(\w+) ")


def _cause(error: BaseException, program: torch.export.ExportedProgram) -> str:
    """Return what stopped the exporter: the operator, and the user's line that calls it."""
    cause, name = error, None
    while cause.__cause__ is not None:
        cause = cause.__cause__
        match = _NODE.search(str(cause))
        name = match[1] if match is not None else name
    text = " ".join(str(cause).split()) or type(cause).__name__
    line = None if name is None else _line_of(name, program)
    return text if line is None else f"{text}; {line}"


def _line_of(name: str, program: torch.export.ExportedProgram) -> str | None:
    """Return the line of the user's code that a node of the decomposed program comes from, if PyTorch decomposes it."""
    try:
        nodes = program.run_decompositions().graph.nodes
    except Exception:  # of several kinds, as torch.export has them
        return None
    return next((source_line(node) for node in nodes if node.name == name), None)
