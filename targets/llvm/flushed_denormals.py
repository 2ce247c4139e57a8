"""Kernels that treat subnormal numbers as zeros: `llvm{denormals=flush}`.

A product with a subnormal number takes some 150 cycles on x86, and states of recurrent networks decay to them. Each
kernel, and each function that computes a chunk of a parallel loop, sets the processor's mode where it begins and
restores the caller's where it returns: packed functions and the caller never run in it.
"""

from __future__ import annotations

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core.symbols import ENTRY_NAME, symbol_name
from mirlo.dialects.core.walk import walk
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.memory.names import SIZES_SUFFIX
from mirlo.targets.llvm.cpus import ARM, X86
from mirlo.targets.llvm.processor import Processor

MODES = {X86: 0x8040, ARM: 1 << 24}
"""By architecture: the bits that make subnormal results and operands zeros (FTZ and DAZ; FZ)."""

CALLERS = (ENTRY_NAME, ENTRY_NAME + SIZES_SUFFIX)
"""The functions that call kernels, and packed functions."""


def flush_denormals(module: ir.Module, processor: Processor) -> None:
    """Set the mode at the start of each function of kernels, and restore the caller's at its end."""
    for function in (each.operation for each in module.body.operations):
        if function.name != "func.func" or symbol_name(function) in CALLERS or not function.regions[0].blocks:
            continue
        with function.location:
            with ir.InsertionPoint.at_block_begin(function.regions[0].blocks[0]):
                saved = _ControlWord(processor.arch)
            for op in _returns(function):
                with ir.InsertionPoint(op):
                    saved.restore()


def _returns(function: ir.Operation) -> list[ir.Operation]:
    returns: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "func.return":
            returns.append(op)
        return ir.WalkResult.ADVANCE

    walk(function, visit)
    return returns


class _ControlWord:
    """The caller's mode, which emitted code saves, and then sets to flush subnormal numbers."""

    def __init__(self, arch: str) -> None:
        self.arch = arch
        self.value: ir.Value
        if arch == ARM:
            word = ir.IntegerType.get_signless(64)
            self.value = _intrinsic("aarch64.get.fpcr", word).results[0]
            bits = create("arith.constant", word, value=ir.IntegerAttr.get(word, MODES[arch]))
            _intrinsic("aarch64.set.fpcr", None, create("arith.ori", word, self.value, bits))
            return
        word = ir.IntegerType.get_signless(32)
        memory = memref.AllocaOp(ir.MemRefType.get([1], word), [], []).result
        self.address = _address(memory)
        _intrinsic("x86.sse.stmxcsr", None, self.address)
        zero = create("arith.constant", ir.IndexType.get(), value=ir.IntegerAttr.get(ir.IndexType.get(), 0))
        self.value = memref.LoadOp(memory, [zero]).result
        bits = create("arith.constant", word, value=ir.IntegerAttr.get(word, MODES[arch]))
        memref.StoreOp(create("arith.ori", word, self.value, bits), memory, [zero])
        _intrinsic("x86.sse.ldmxcsr", None, self.address)
        memref.StoreOp(self.value, memory, [zero])

    def restore(self) -> None:
        """Emit code that restores the caller's mode."""
        if self.arch == ARM:
            _intrinsic("aarch64.set.fpcr", None, self.value)
        else:
            _intrinsic("x86.sse.ldmxcsr", None, self.address)


def _address(memory: ir.Value) -> ir.Value:
    wide = ir.IntegerType.get_signless(64)
    place = create("memref.extract_aligned_pointer_as_index", ir.IndexType.get(), memory)
    return create("llvm.inttoptr", ir.Type.parse("!llvm.ptr"), create("arith.index_cast", wide, place))


def _intrinsic(name: str, result: ir.Type | None, *operands: ir.Value) -> ir.Operation:
    sizes = ir.DenseI32ArrayAttr.get
    attributes = {
        "intrin": ir.StringAttr.get(f"llvm.{name}"),
        "op_bundle_sizes": sizes([]),
        "operandSegmentSizes": sizes([len(operands), 0]),
    }
    results = [] if result is None else [result]
    return ir.Operation.create("llvm.call_intrinsic", results=results, operands=list(operands), attributes=attributes)
