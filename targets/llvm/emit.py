"""Emission of an artifact from a planned module: signature, kernels, object code."""

from __future__ import annotations

from functools import partial
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import rename_symbol, symbol_name
from mirlo.dialects.tir.view import is_prim_func
from mirlo.passes.code_forms import KernelText
from mirlo.passes.entry import name_entry
from mirlo.passes.memory.names import SIZES_SUFFIX
from mirlo.passes.memory.packed import RECORD_WORDS
from mirlo.passes.targets import CompileOptions
from mirlo.runtime import archive
from mirlo.runtime.artifact import Artifact, KernelInfo
from mirlo.runtime.host_cpu import AMX
from mirlo.runtime.names import POLLS
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.compile_ahead import CompileAhead, build, code_settings
from mirlo.targets.llvm.machine_code import SUFFIXES
from mirlo.targets.llvm.object_code import ENTRY, SIZES, EntryInterface
from mirlo.targets.llvm.options import threads_of
from mirlo.targets.llvm.processes import helpers
from mirlo.targets.llvm.processor import Processor
from mirlo.targets.llvm.units import split
from mirlo.targets.planned import (
    ModelSignature,
    add_polls,
    add_ticks,
    cpu_facts,
    kernel_rows,
    planned_entry,
    signature_of,
)


def emit(module: ir.Module, options: CompileOptions) -> Artifact:
    """Compile a module that went through the target's pipeline. The module is consumed.

    Kernels in the cache are not compiled again; up to `jobs` processes (None: as many as useful) compile the others.
    `while_compiling` is called with the names of the weights when the worker processes have started.
    """
    settings = code_settings(options)
    prepared = prepare_module(module)
    signature, facts = prepared.signature, prepared.facts
    ahead = options.prepared if isinstance(options.prepared, CompileAhead) else None
    similar, shared = None if ahead is None else ahead.similar, options.cache is not None or helpers(options.jobs) > 0
    units = split(module, prepared.entry, settings, similar=similar, shared=shared)
    weights = [spec.name for spec in signature["params"]]
    settle = None if options.while_compiling is None else partial(options.while_compiling, weights)
    # Levels of optimization share what is lowered here: workers began with one of them.
    started = ahead.compilation if ahead is not None and options.lowered is None else None
    objects = build(units, settings, options.cache, options.jobs, settle, started, options.lowered)
    code = archive.pack(
        [(f"{unit.name}{SUFFIXES[settings.form]}", content) for unit, content in zip(units, objects, strict=True)]
    )
    loadable = loadable_on(settings.processor, any(unit.uses_matrix_unit for unit in units))
    return Artifact(
        target="llvm", loader="llvm", code=code, entry=ENTRY, inputs=signature["inputs"], outputs=signature["outputs"],
        params=signature["params"], arena_bytes=signature["arena"], kernels=prepared.kernels,
        threads=threads_of(options),
        metadata={**loadable, **facts, **({POLLS: True} if prepared.polls else {})},
    )  # fmt: skip


def kernel_code(module: ir.Module, options: CompileOptions) -> list[KernelText]:
    """Return the code of each kernel of a planned module, and of the function that calls them, in `options.form`.

    The module is consumed.
    """
    settings = code_settings(options)
    units = split(module, prepare_module(module).entry, settings, apart=True)
    wanted = [unit for unit in units if options.kernel in ("", unit.name)]
    result = build(wanted, settings, options.cache, options.jobs)
    return [KernelText(unit.symbol, unit.name, code) for unit, code in zip(wanted, result, strict=True)]


@dataclass(frozen=True)
class PreparedModule:
    """The interface of a planned module, before it is divided into units."""

    signature: ModelSignature
    kernels: tuple[KernelInfo, ...]
    facts: dict[str, Any]
    polls: bool
    entry: EntryInterface


def prepare_module(module: ir.Module | ir.OpView) -> PreparedModule:
    """Add what callers of a planned module need, drop what does not affect code, and return its interface."""
    main = planned_entry(module)
    _name_functions(module, main)
    signature = signature_of(main)
    kernels = kernel_rows(main, module)
    polls = add_polls(module)
    facts = cpu_facts(main, module)
    add_ticks(main, module, len(kernels))
    _drop_argument_facts(module)
    functions = tuple(facts.get("packed", ()))
    inputs, outputs, params = (len(signature[name]) for name in ("inputs", "outputs", "params"))
    words = RECORD_WORDS + len(facts["symbols"]) + len(facts["sizes"]) if "sizes" in facts else None
    entry = EntryInterface(inputs + outputs, params, functions, bool(kernels), words)
    return PreparedModule(signature, tuple(kernels), facts, polls, entry)


def _name_functions(module: ir.Module | ir.OpView, main: ir.Operation) -> None:
    """Give functions that programs call their names in object code."""
    symbols, sizes = ir.SymbolTable(module.operation), symbol_name(main) + SIZES_SUFFIX
    name_entry(module, main)
    if sizes != SIZES and sizes in symbols:
        rename_symbol(symbols[sizes], SIZES)


def loadable_on(processor: Processor, with_tiles: bool) -> dict[str, list[str] | str]:
    """Return the metadata that the loader compares with the machine: the features of a processor that the code uses.

    Code without AMX needs no permission to use its registers.
    """
    features = [feature for feature in processor.features if with_tiles or feature not in AMX]
    return {"triple": processor.triple, "features": features}


def _drop_argument_facts(module: ir.Module | ir.OpView) -> None:
    """Drop the names and types of the user's tensors, which do not affect the code: models then share cached code."""
    for op in module.body.operations:
        attributes = op.operation.attributes
        if op.operation.name == "func.func" and not is_prim_func(op) and "arg_attrs" in attributes:
            kept = [
                {named.name: named.attr for named in ir.DictAttr(entry) if not named.name.startswith("relax.")}
                for entry in ir.ArrayAttr(attributes["arg_attrs"])
            ]
            attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(entry) for entry in kept])
