"""From the LLVM dialect to machine code: LLVM IR as text, optimized by llvmlite's LLVM, then an object file.

Every form of code is made here: the object files that Mirlo loads, and the LLVM IR, assembly and object files that it
writes for other tools. Object files are position independent, for the default code model: linkers make shared
libraries of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from math import gcd
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.passes.registry import PassError
from mirlo.runtime.locks import make_lock
from mirlo.runtime.records import dataclass
from mirlo.targets.host.llvm_ir import llvmlite, to_llvm_ir
from mirlo.targets.llvm.cpus import HEXAGON, X86
from mirlo.targets.llvm.loop_annotations import ONCE, SCHEDULED, TILED
from mirlo.targets.llvm.processor import Processor

if TYPE_CHECKING:
    from llvmlite.binding import ModuleRef, PassBuilder, TargetMachine
    from llvmlite.binding.newpassmanagers import FunctionPassManager

NARROW_STORE = re.compile(r"llvm\.masked\.store\.v\d+i(8|16|32)\.")
"""Matches the names of masked stores of what may have been truncated."""
_STORE = re.compile(
    r"^(?P<space>\s*)(?:tail |notail |musttail )?call void @llvm\.masked\.store\.v\d+i(?P<bits>8|16|32)\.p0\("
    r"<(?P<lanes>\d+) x i\d+> (?P<value>.+), ptr (?:[a-z_()\d]+ )*?align (?P<align>\d+) (?P<pointer>.+), "
    r"<\d+ x i1> <(?P<mask>i1 (?:true|false)(?:, i1 (?:true|false))*)>\).*$",
    re.MULTILINE,
)


def stores_of_single_lanes(text: str) -> str | None:
    """Return LLVM IR in which masked stores of one lane are stores of a scalar; None if it has none."""
    numbers = count()

    def scalar(match: re.Match[str]) -> str:
        is_on = [lane == "i1 true" for lane in match["mask"].split(", ")]
        if sum(is_on) != 1:
            return match[0]
        lane, space, kind, number = is_on.index(True), match["space"], f"i{match['bits']}", next(numbers)
        offset = lane * int(match["bits"]) // 8
        element, address = f'%"lane.{number}"', f'%"lane.{number}.address"'
        return (
            f"{space}{element} = extractelement <{match['lanes']} x {kind}> {match['value']}, i64 {lane}\n"
            f"{space}{address} = getelementptr i8, ptr {match['pointer']}, i64 {offset}\n"
            f"{space}store {kind} {element}, ptr {address}, align {gcd(int(match['align']), offset)}"
        )

    replaced = _STORE.sub(scalar, text)
    return replaced if next(numbers) else None


OBJECT, ASSEMBLY, LLVM_IR, DIALECT = FORMS = ("obj", "asm", "llvm-ir", "llvm-dialect")
"""The forms of code."""
SUFFIXES = {OBJECT: ".o", ASSEMBLY: ".s", LLVM_IR: ".ll", DIALECT: ".mlir"}
"""The ends of files' names."""

DEFAULT_LEVEL = 2
"""LLVM's level of optimization that is chosen for kernels; others are LLVM's own pipelines."""
SCHEDULED_CODE_PASSES = ("sroa", "simplify_cfg", "loop_rotate", "instruction_combine")
"""LLVM's passes for code whose loops are vectorized and unrolled already: what code generation needs of them.

It moves invariants out of loops, removes common subexpressions and chooses induction variables itself. The inner loops
of contractions are those that all passes of the default level make, or one instruction shorter.
"""
_SCHEDULED, _ONCE, _TILED = SCHEDULED.encode(), ONCE.encode(), TILED.encode()
_STRENGTH_REDUCTION = "-disable-lsr=false", "-disable-lsr=true"
"""LLVM's option, which holds for the process, with strength reduction of addresses in loops and without."""
_strength_reduction = make_lock()


@dataclass(frozen=True)
class CodeSettings:
    """The processor and the form that code is made for."""

    processor: Processor
    opt_level: int = DEFAULT_LEVEL
    form: str = OBJECT


def generate(module: ir.Module, settings: CodeSettings, keep: Callable[[str], object] | None = None) -> bytes:
    """Compile a module of the LLVM dialect to a form of code; `LLVM_IR` is optimized.

    `keep` is called with its LLVM IR before that.
    """
    if settings.form == DIALECT:
        return f"{module}\n".encode()
    try:
        text = to_llvm_ir(module)
    except RuntimeError as error:
        raise PassError(f"LLVM made no code: {error}") from error
    if keep is not None:
        keep(text)
    return generate_from(text, settings)


def generate_from(text: str, settings: CodeSettings) -> bytes:
    """Compile LLVM IR that is not optimized yet to a form of code, without optimizations where no loop is in it."""
    try:
        with freed(optimized(text, settings)) as optimized_module:
            return emit(optimized_module, settings)
    except RuntimeError as error:
        raise PassError(f"LLVM made no code: {error}") from error


@contextmanager
def freed(module: ModuleRef) -> Iterator[ModuleRef]:
    """Free a module and its context after the block: Python drops an interrupt that comes while a finalizer does it."""
    try:
        yield module
    finally:
        context = module._context
        module.close()
        context.close()


def optimized(text: str, settings: CodeSettings) -> ModuleRef:
    """Parse LLVM IR and optimize it; return llvmlite's module."""
    binding, processor = llvmlite(), settings.processor
    machine = target_machine(processor, settings.opt_level)
    if processor.emulates_tiles:
        from mirlo.targets.llvm.emulated_tiles import emulate_tiles  # for tests of AMX only

        text = emulate_tiles(text)
    module = _parsed(text, processor, machine)
    opt_level = _level_of(module, settings)
    if opt_level != settings.opt_level:
        machine = target_machine(processor, opt_level)
    options = binding.create_pipeline_tuning_options(speed_level=opt_level)
    _run_passes(module, binding.create_pass_builder(machine, options), opt_level)
    if processor.arch == X86 and "bfloat" in text:
        module = _rewritten(module, hide_scalar_bits, settings)
    if processor.arch == HEXAGON:
        module = _rewritten(module, bits_of_masks, settings)
    if any(NARROW_STORE.match(function.name) for function in module.functions):
        module = _rewritten(module, stores_of_single_lanes, settings)
    return module


def _level_of(module: ModuleRef, settings: CodeSettings) -> int:
    """Return the level of optimizations of a module: none by default where all its functions are marked as `ONCE`.

    In a library the function that calls the kernels is linked to them, and they have loops.
    """
    if settings.opt_level != DEFAULT_LEVEL:
        return settings.opt_level
    defined = [function for function in module.functions if not function.is_declaration]
    is_once = bool(defined) and all(any(_ONCE in each for each in function.attributes) for function in defined)
    return 0 if is_once else settings.opt_level


def _run_passes(module: ModuleRef, builder: PassBuilder, opt_level: int) -> None:
    """Run LLVM's passes on a module.

    Most modules are one kernel, or several small ones, where no call is inlined: all functions are called from other
    modules. Simplification of each makes code that is as fast as that of the pipeline of modules, in two thirds of the
    time: loops are unrolled and vectors made before. Where that holds for all innermost loops, a few passes suffice,
    which take a quarter of the time of that simplification.
    """
    external = llvmlite().Linkage.external
    defined = [function for function in module.functions if not function.is_declaration]
    if len(defined) > 1 and any(function.linkage != external for function in defined):
        builder.getModulePassManager().run(module, builder)
        return
    for function in defined:
        is_scheduled = opt_level == DEFAULT_LEVEL and any(_SCHEDULED in each for each in function.attributes)
        passes = _scheduled_code_passes() if is_scheduled else builder.getFunctionPassManager()
        passes.run(function, builder)


def _scheduled_code_passes() -> FunctionPassManager:
    manager = llvmlite().create_new_function_pass_manager()
    for name in SCHEDULED_CODE_PASSES:
        getattr(manager, f"add_{name}_pass")()
    return manager


def _rewritten(module: ModuleRef, rewrite: Callable[[str], str | None], settings: CodeSettings) -> ModuleRef:
    """Return the module that a rewrite makes of the text of this one; the rewrite returns None if nothing changes."""
    text = rewrite(str(module))
    if text is None:
        return module
    with freed(module):
        return _parsed(text, settings.processor, target_machine(settings.processor, settings.opt_level))


def _parsed(text: str, processor: Processor, machine: TargetMachine) -> ModuleRef:
    # A context of its own, which is freed with the module: the global one keeps every type and constant.
    module = llvmlite().parse_assembly(text, llvmlite().create_context())
    module.triple, module.data_layout = processor.triple, str(machine.target_data)
    return module


def emit(module: ModuleRef, settings: CodeSettings) -> bytes:
    """Return the code of llvmlite's module in the form of the settings."""
    if settings.form == LLVM_IR:
        return str(module).encode()
    level = _level_of(module, settings)
    machine = target_machine(settings.processor, level)
    with _addresses_as_written(not _needs_strength_reduction(module, settings.processor, level)):
        result: bytes = (
            machine.emit_object(module) if settings.form == OBJECT else machine.emit_assembly(module).encode()
        )
    return result


def _needs_strength_reduction(module: ModuleRef, processor: Processor, level: int) -> bool:
    """Return whether LLVM chooses induction variables for the addresses in loops: a fourth of code generation.

    On x86 an address is a sum of two registers and a number, and loops without register tiles wait for memory: they
    take the same time without.
    """
    is_default = processor.arch == X86 and level == DEFAULT_LEVEL
    return not is_default or any(_TILED in each for function in module.functions for each in function.attributes)


@contextmanager
def _addresses_as_written(is_so: bool) -> Iterator[None]:
    """Generate code in the block without strength reduction, if `is_so`; code of other threads waits."""
    with _strength_reduction:
        if not is_so:
            yield
            return
        reduced, as_written = _STRENGTH_REDUCTION
        llvmlite().set_option("mirlo", as_written)
        try:
            yield
        finally:
            llvmlite().set_option("mirlo", reduced)


@cache
def target_machine(processor: Processor, opt_level: int) -> TargetMachine:
    """Return LLVM's back end for a processor."""
    target = llvmlite().Target.from_triple(processor.triple)
    return target.create_target_machine(
        cpu=processor.base, features=processor.llvm_features, opt=opt_level, reloc="pic", codemodel="default"
    )


_MASK_BITS = re.compile(
    r"^(?P<space>\s*)(?P<name>%\S+) = bitcast <(?P<lanes>\d+) x i1> (?P<mask>%\S+) to i(?P<bits>\d+)$", re.MULTILINE
)


def bits_of_masks(text: str) -> str | None:
    """Return LLVM IR in which masks become integers by arithmetic; None if none does.

    LLVM 22's back end for Hexagon ends the process at such a bitcast (an assertion on the sizes of registers).
    """
    declarations: dict[str, None] = {}

    def summed(match: re.Match[str]) -> str:
        lanes, space, name = int(match["lanes"]), match["space"], match["name"]
        kind = f"i{max(8, lanes)}"
        vector, base = f"<{lanes} x {kind}>", name.strip('%"')
        powers = ", ".join(f"{kind} {1 << i}" for i in range(lanes))
        function = f"{kind} @llvm.vector.reduce.or.v{lanes}{kind}"
        declarations[f"declare {function}({vector})"] = None
        parts = f'call {function}({vector} %"{base}.powers")'
        chosen = f'{space}%"{base}.powers" = select <{lanes} x i1> {match["mask"]}, {vector} <{powers}>, {vector} '
        if lanes >= 8:
            return f"{chosen}zeroinitializer\n{space}{name} = {parts}"
        wide = f'{space}%"{base}.wide" = {parts}\n{space}{name} = trunc i8 %"{base}.wide" to i{lanes}'
        return f"{chosen}zeroinitializer\n{wide}"

    replaced = _MASK_BITS.sub(summed, text)
    added = [each for each in declarations if each.partition("(")[0].rpartition(" ")[2] + "(" not in text]
    return "\n".join([replaced, *added]) if declarations else None


_BITS = re.compile(r"^(\s*)(%\S+) = (bitcast bfloat \S+ to i16)", re.MULTILINE)


def hide_scalar_bits(text: str) -> str | None:
    """Return optimized LLVM IR for x86 in which the bits of scalars of bf16 are hidden; None if it has none."""
    hidden, count = _BITS.subn(_hidden, text)
    return hidden if count else None


def _hidden(match: re.Match[str]) -> str:
    space, name, bits = match.groups()
    bits_name = '%"' + name.strip('%"') + '.bits"'
    return f'{space}{bits_name} = {bits}\n{space}{name} = call i16 asm "", "=r,0"(i16 {bits_name})'
