"""The emitter of target `c`: a planned module becomes C source, or an object file that the system's compiler makes."""

from __future__ import annotations

from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.passes.byoc.codegen import generator_of
from mirlo.passes.code_forms import KernelText
from mirlo.passes.targets import CompileOptions
from mirlo.runtime.artifact import Artifact
from mirlo.runtime.loaders import llvm_host
from mirlo.runtime.names import POLLS
from mirlo.targets.c.compiler import compile_object, find_compiler
from mirlo.targets.c.generator import CGenerator
from mirlo.targets.c.model import ENTRY, HEAD, print_model
from mirlo.targets.c.processor import CProcessor
from mirlo.targets.c.products import kernel_memory
from mirlo.targets.c.whole import processor_of
from mirlo.targets.planned import add_polls, add_ticks, cpu_facts, kernel_rows, planned_entry, signature_of

SOURCE = "source"
"""The form of code, and the loader, of C source."""
PROCESSOR = "processor"
"""The key of metadata about the processor without an operating system that source is for."""
LOADED_ENTRY = "mirlo_loaded_entry"


def emit(module: ir.Module, options: CompileOptions) -> Artifact:
    """Print a module that went through the target's pipeline, and compile the text unless `form` asks for it alone.

    The module is consumed.
    """
    main = planned_entry(module)
    signature, kernels, facts = signature_of(main), kernel_rows(main, module), cpu_facts(main, module)
    polls = False
    if options.form != SOURCE:
        polls = add_polls(module)
        add_ticks(main, module, len(kernels))
    processor = processor_of(options)
    prelude = f"{processor.prelude}\n" if processor is not None else ""
    memory = kernel_memory(main, module, kernels) if processor is not None and options.form == SOURCE else []
    text = prelude + _text_of(module, processor, options.lowered)
    metadata: dict[str, Any]
    if options.form == SOURCE:
        code, metadata = text.encode(), {"triple": "any", "features": []}
        if processor is not None:
            metadata |= {PROCESSOR: {"name": processor.name, "flags": list(processor.flags), "kernels": memory}}
    else:
        chosen = generator_of("c", options.target_options if options.target == "c" else "")
        assert isinstance(chosen, CGenerator)
        exported = f"void {LOADED_ENTRY}(void **tensors, void **params, void *arena, uint64_t *profile) {{"
        whole = f"{HEAD}\n{text}\n{exported}\n  {ENTRY}(tensors, params, arena, profile);\n}}\n"
        code = compile_object(whole, find_compiler(chosen.compiler), options.opt_level, chosen.flags)
        metadata = {"triple": llvm_host()["triple"], "features": []}
    return Artifact(
        target="c", loader=SOURCE if options.form == SOURCE else "llvm", code=code,
        entry=ENTRY if options.form == SOURCE else LOADED_ENTRY, inputs=signature["inputs"],
        outputs=signature["outputs"], params=signature["params"], arena_bytes=signature["arena"],
        kernels=tuple(kernels), metadata={**metadata, **facts, **({POLLS: True} if polls else {})},
    )  # fmt: skip


def _text_of(module: ir.Module, processor: CProcessor | None, lowered: dict[object, str] | None) -> str:
    """Return the functions of a module, which is consumed; `lowered` has those of modules that other levels printed."""
    if lowered is None:
        return print_model(module, processor=processor).text
    source = str(module.operation.get_asm(assume_verified=True))
    if source not in lowered:
        lowered[source] = print_model(module, processor=processor).text
    return lowered[source]


def kernel_code(module: ir.Module, options: CompileOptions) -> list[KernelText]:
    """Return the C text of each kernel of a planned module, and of the function that calls them.

    The module is consumed.
    """
    kernels = print_model(module, processor=processor_of(options)).kernels
    return [kernel for kernel in kernels if options.kernel in ("", kernel.function)]
