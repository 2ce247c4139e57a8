"""The pass pipelines of target `llvm`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import arith, ir, passmanager
from mirlo.dialects.core.value import integer_of
from mirlo.passes.options import quote
from mirlo.targets.emulated_floats import KINDS, emulate_floats, move_as_integers, round_once, used_floats
from mirlo.targets.host.llvm_ir import has_complex_vectors, has_expanded, has_transfers, lower_pipeline
from mirlo.targets.llvm.flat_views import flatten_views
from mirlo.targets.llvm.intrinsics.amx import MATRIX_UNIT
from mirlo.targets.llvm.loop_annotations import annotate_branches
from mirlo.targets.llvm.options import (
    is_invariant,
    largest_winograd_tile,
    planning_options,
    reduces_range,
    saves_memory,
    thread_work_of,
    threads_of,
)
from mirlo.targets.llvm.outer_loops import hide_outer_indices
from mirlo.targets.llvm.processor import Processor
from mirlo.targets.pipelines import FUSE_WIDENED, SIMPLIFY

if TYPE_CHECKING:
    from mirlo.passes.targets import CompileOptions

GRAPH = ("canonicalize", "cse")


def compile_pipeline(options: CompileOptions | None = None) -> str:
    """Return the pipeline from relax to buffers, the input of `emit`."""
    threads = f"threads={threads_of(options)}"
    shares, work = threads_of(options) > 1, thread_work_of(options)
    described = planning_options(getattr(options, "target_options", ""))
    machine = f"machine={quote(described)}" if described else ""
    tuned = f"target-options={quote(described)}" if described else ""
    largest = largest_winograd_tile(options)
    is_tuned = not is_invariant(options)
    tile = "" if largest is None else f"tile={largest}"
    passes = [
        *([_step("reduce-range", machine)] if reduces_range(options) else []),
        *SIMPLIFY,
        _step("tile-batch", threads, machine),
        "view-rows",
        _step("pack-nbits", machine),
        *([] if saves_memory(options) else ["fold-constant{all=true packed=true widens=true}"]),
        "cse",
        "remove-dead",
        *([_step("apply-tuning", "target=llvm", threads, "operators=relax.conv", tuned)] if is_tuned else []),
        # The weights of Winograd's algorithm are up to four times as large.
        *([] if saves_memory(options) else [_step("winograd", machine, tile)]),
        "group-images",
        _step("pack-trees", machine),
        "legalize{target=llvm}",
        *FUSE_WIDENED,
        "elide-copies",
        "merge-prims",
        *([_step("apply-tuning", "target=llvm", threads, tuned)] if is_tuned else []),
        _step("pack-weights", machine),
        "remove-dead",
        _step("schedule", "target=llvm", threads, machine),
        "lower-loops",
        _step("lower-intrinsics", "target=llvm", machine),
        "verify-bounds{guard=true}",
        "plan-memory{aliases=true}",
        *([_step("outline-parallel", threads, "" if work is None else f"work={work}")] if shares else []),
    ]
    return f"builtin.module({','.join(passes)})"


def _step(name: str, *options: str) -> str:
    """Return the text of a pass with those of its options that are not empty."""
    joined = " ".join(filter(None, options))
    return f"{name}{{{joined}}}" if joined else name


def lower_to_llvm(
    module: ir.Module, processor: Processor, verify: bool = True, calls_kernels: bool = False, text: str = ""
) -> None:
    """Lower a module of buffers, loops and vectors to the LLVM dialect, for a processor.

    `text` is what the module was parsed from, where there is one: to look for types and operations, it is printed
    otherwise.
    """
    # What few processors and units need is imported where it is needed: eight modules that others do not load.
    text = text or module.operation.get_asm(assume_verified=True)
    if any(MATRIX_UNIT in function.attributes for function in module.body.operations):
        from mirlo.targets.llvm.tile_configuration import configure_tiles

        configure_tiles(module)
    if processor.flushes_denormals:
        from mirlo.targets.llvm.flushed_denormals import flush_denormals

        flush_denormals(module, processor)
    used = used_floats(text)
    unused = [kind for kind in KINDS if kind not in used]
    emulated = [kind for kind in processor.emulated_floats if kind in used]
    # To walk through a module takes longer than to search its text.
    expanded = [kind for kind in processor.expanded_fma if kind not in unused]
    if expanded:
        from mirlo.targets.llvm.fma import expand_fma

        expand_fma(module, expanded)
    emulate_floats(module, emulated)
    round_once(module, [kind for kind in processor.rounds_f64_twice if kind in used])
    if not processor.rounds_to_integers:
        from mirlo.targets.llvm.rounding import expand_rounding

        expand_rounding(module)
    shift_quotients(module)
    hide_outer_indices(module)
    is_apart = _are_apart(module, calls_kernels)
    is_rewritten = bool(emulated or expanded) or not processor.rounds_to_integers
    vectors, arithmetic = bool(emulated) or has_complex_vectors(text), is_rewritten or has_expanded(text)
    views = flatten_views(module, text)
    pipeline = lower_pipeline(calls_kernels, has_transfers(text), views, vectors, arithmetic, "affine." in text)
    manager = passmanager.PassManager.parse(pipeline)
    manager.enable_verifier(verify)
    manager.run(module.operation)
    annotate_branches(module, is_apart)
    if processor.sve_bits:
        fix_vector_length(module, processor.sve_bits)
    if emulated:
        move_as_integers(module, emulated)


def _are_apart(module: ir.Module, calls_kernels: bool) -> bool:
    """Return whether no function of a module is called in it: kernels are called from other modules, helpers here."""
    defined = [
        op.operation for op in module.body.operations if len(op.operation.regions) and op.operation.regions[0].blocks
    ]
    return len(defined) == 1 or not (calls_kernels or any("sym_visibility" in each.attributes for each in defined))


def fix_vector_length(module: ir.Module, bits: int) -> None:
    """Set the length of scalable vectors in which LLVM computes vectors longer than 128 bits."""
    count = bits // 128
    with module.context:
        length = ir.Attribute.parse(f"#llvm.vscale_range<minRange = {count} : i32, maxRange = {count} : i32>")
    for op in module.body.operations:
        if op.operation.name == "llvm.func":
            op.operation.attributes["vscale_range"] = length


def shift_quotients(module: ir.Module) -> None:
    """Replace the floor divisions by powers of two outside of loops, where sizes are computed, by shifts."""
    for function in module.body.operations:
        for region in function.operation.regions:
            for block in region.blocks:
                for op in list(block.operations):
                    if isinstance(op, arith.FloorDivSIOp):
                        _shift(op.operation)


def _shift(division: ir.Operation) -> None:
    dividend, divisor = division.operands
    number = integer_of(divisor)
    if number is None or number <= 0 or number & (number - 1):
        return
    with ir.InsertionPoint(division), division.location:
        places = ir.IntegerAttr.get(divisor.type, number.bit_length() - 1)
        shifted = arith.ShRSIOp(dividend, arith.ConstantOp(divisor.type, places).result).result
    division.results[0].replace_all_uses_with(shifted)
    division.erase()
