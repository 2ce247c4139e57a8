"""What the target is: its place before `llvm`, the pipeline of `llvm` with its own steps, the code of `llvm`.

It compiles whole models, `--target npu`, and takes parts of models for another target, `--targets npu,llvm`.
"""

import re
from dataclasses import replace

from mirlo.extend.target import CodeForm, Pipeline, Target, find_target

CALLS = CodeForm("npu-calls", ".txt", "#", "calls of the unit's driver")


class NpuTarget(Target):
    """The CPU with an imaginary matrix unit."""

    def pipeline(self, options):
        """Return the CPU's pipeline, with products claimed first and the rules of this target."""
        edited = Pipeline.named("llvm", options).for_target("npu")
        return str(edited.insert_before("legalize", "npu-claim,remove-dead"))

    def emit(self, module, options):
        """Machine code of the CPU, which calls the unit's driver."""
        return replace(find_target("llvm").emit(module, options), target="npu", loader="npu")

    def instructions(self):
        """Return the instructions of the unit, and a program of them."""
        from mirlo_npu.instructions import INSTRUCTIONS, program

        return (*INSTRUCTIONS, program())

    def code(self, module, options):
        """Return the CPU's code of kernels, or the lines of it that call the unit's driver."""
        if options.form != CALLS.name:
            return find_target("llvm").code(module, options)
        texts = find_target("llvm").code(module, replace(options, form="llvm-ir"))
        return [replace(text, code=b"\n".join(re.findall(rb".*@Npu.*", text.code))) for text in texts]


TARGET = NpuTarget(
    name="npu",
    help="an imaginary matrix unit, the CPU for the rest",
    parent="llvm",
    rule_modules=("mirlo_npu.rules",),
    forms=(*find_target("llvm").forms, CALLS),
    codegen="mirlo_npu.generator:Npu",
)
