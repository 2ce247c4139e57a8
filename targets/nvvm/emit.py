"""Emission of an artifact from a planned module: PTX and the host program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import ENTRY_NAME
from mirlo.passes.code_forms import KernelText
from mirlo.runtime.artifact import Artifact
from mirlo.runtime.cache import Cache
from mirlo.targets.gpu.host_functions import build_host_program
from mirlo.targets.gpu.kernels import kernel_launchers, pack
from mirlo.targets.gpu.program import HostProgram
from mirlo.targets.nvvm.chips import Chip
from mirlo.targets.nvvm.cubin import to_cubin
from mirlo.targets.nvvm.libraries import DeviceLibrary, open_library
from mirlo.targets.nvvm.ptx import assemble, lower_to_nvvm, optimized, to_ptx, translate
from mirlo.targets.planned import kernel_rows, planned_entry, run_time_facts, signature_of

PTX, DIALECT = "ptx", "nvvm-dialect"
"""Forms of code, beside LLVM IR."""


def emit(
    module: ir.Module,
    chip: Chip,
    opt_level: int = 3,
    cubin: bool = False,
    libraries: Sequence[str] = (),
    cache: Cache | None = None,
) -> Artifact:
    """Make the artifact of a module that went through the target's pipeline. The module is consumed.

    With `cubin` the PTX is assembled too; `libraries` are the files of functions that kernels may call.
    """
    main = planned_entry(module)
    signature = signature_of(main)
    rows = kernel_rows(main, module)
    program, facts = build_host_program(module, main), run_time_facts(main, module)
    opened = [open_library(name) for name in libraries]
    kernels = to_ptx(module, chip, opt_level, opened, blocks_of(program))
    if cubin:
        kernels = [replace(kernel, binary=to_cubin(kernel.code, chip, cache)) for kernel in kernels]
    code, table = pack(kernels, program)
    return Artifact(
        target="nvvm", loader="cuda", code=code, entry=ENTRY_NAME, inputs=signature["inputs"],
        outputs=signature["outputs"], params=signature["params"], arena_bytes=0, kernels=tuple(rows),
        metadata={**facts, "chip": chip.name, **table},
    )  # fmt: skip


def kernel_code(
    module: ir.Module, chip: Chip, form: str, opt_level: int = 3, libraries: Sequence[str] = (), only: str = ""
) -> list[KernelText]:
    """Return the code of each kernel of a planned module in a form, or of one function's. The module is consumed."""
    launchers = kernel_launchers(module)
    blocks = blocks_of(build_host_program(module, planned_entry(module)))
    opened = [open_library(name) for name in libraries]
    lowered = lower_to_nvvm(module, chip, blocks)
    if lowered is None:
        return []
    kernels = lowered.functions()
    for kernel in kernels.values():
        kernel.detach_from_parent()
    body = lowered.whole.regions[0].blocks[0]
    texts = []
    for name, kernel in kernels.items():
        if only not in ("", name, launchers.get(name)):
            continue
        body.append(kernel)
        if form == DIALECT:
            code = f"{lowered.whole}\n"
        else:
            code = translate(lowered.whole, lambda text: _form_of(text, form, chip, opt_level, opened), opened)
        kernel.detach_from_parent()
        texts.append(KernelText(name, launchers.get(name, name), code.encode()))
    return texts


def _form_of(text: str, form: str, chip: Chip, opt_level: int, libraries: Sequence[DeviceLibrary]) -> str:
    emitter = assemble if form == PTX else optimized
    return str(emitter(text, chip, opt_level, libraries))


def blocks_of(program: HostProgram) -> dict[str, int]:
    """Return the largest grid each kernel is launched with, where it is static."""
    sizes: dict[str, int | None] = {}
    for command in program.commands:
        site, grid = program.sites[command.site], command.words[:3]
        if "kernel" in site:
            known = [words for words in grid if words is not None]
            before = sizes.get(site["kernel"], 0)
            sizes[site["kernel"]] = max(before, prod(known)) if before is not None and len(known) == 3 else None
    return {name: blocks for name, blocks in sizes.items() if blocks is not None}
