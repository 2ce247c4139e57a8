"""What the target is: its place before `llvm`, the pipeline of `llvm` with its own steps, the code of `llvm`.

It compiles whole models, `--target npu`, and takes parts of models for another target, `--targets npu,llvm`.
"""

from dataclasses import replace

from mirlo.extend import Pipeline, Target, find_target


def pipeline(options):
    """Return the CPU's pipeline, with products claimed first and the rules of this target."""
    edited = Pipeline.named("llvm", options).for_target("npu")
    return str(edited.insert_before("legalize", "npu-claim,remove-dead"))


def emit(module, options):
    """Machine code of the CPU, which calls the unit's driver."""
    return replace(find_target("llvm").emit(module, options), target="npu", loader="npu")


TARGET = Target(
    name="npu",
    help="an imaginary matrix unit, the CPU for the rest",
    parent="llvm",
    rule_modules=("mirlo_npu.rules",),
    pipeline=pipeline,
    emit=emit,
    codegen="mirlo_npu.generator:Npu",
)
