"""From buffers and loops to the LLVM dialect, and to LLVM IR."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir, translate_to_llvm_ir
from mirlo.runtime import system
from mirlo.targets.llvm_guard import require_translated
from mirlo.targets.llvm_text import readable_by_older

if TYPE_CHECKING:
    from types import ModuleType

TRANSFERS_TO_LOOPS = "convert-vector-to-scf{full-unroll=true target-rank=1}"
EXPAND_VIEWS = "expand-strided-metadata"
EXPAND_ARITHMETIC = "arith-expand"
LOWER_AFFINE = "lower-affine"
VECTORS_TO_LLVM = "convert-vector-to-llvm{enable-x86=true reassociate-fp-reductions=true}"
TO_LLVM = (
    EXPAND_ARITHMETIC,
    TRANSFERS_TO_LOOPS,
    "convert-scf-to-cf",
    EXPAND_VIEWS,
    LOWER_AFFINE,
    "cse",
    VECTORS_TO_LLVM,
    "convert-func-to-llvm{use-bare-ptr-memref-call-conv=1}",
    # All other dialects at once: one by one, casts between them would outnumber the operations.
    "convert-to-llvm{allow-pattern-rollback=false}",
    "reconcile-unrealized-casts",
)
"""Upstream passes from loops and vectors to the LLVM dialect."""


_SIMPLE = ("bitcast", "broadcast", "extract", "fma", "insert", "load", "maskedload", "maskedstore", "shuffle", "store")
"""Operations on vectors of one dim that `convert-to-llvm` converts as `VECTORS_TO_LLVM` does."""
_COMPLEX = re.compile(rf"vector(?:\.(?!(?:{'|'.join(_SIMPLE)})\b)[a-z_]|<(?:\d+x[\d\[]|[\[a-z]))")
"""Matches the name of another operation of the vector dialect, and a vector of another number of dims than one, or of
any length. That it begins with a fixed text makes the search fast."""
_EXPANDED = (
    "arith.ceildiv", "arith.extf", "arith.floordiv", "arith.maximumf", "arith.maxnumf", "arith.minimumf",
    "arith.minnumf", "arith.scaling_", "arith.truncf",
)  # fmt: skip
"""The beginnings of the names of operations that `EXPAND_ARITHMETIC` may expand."""


def has_complex_vectors(text: str) -> bool:
    """Return whether the text of a module has operations that `VECTORS_TO_LLVM` rewrites before it converts them."""
    return _COMPLEX.search(text) is not None


def has_expanded(text: str) -> bool:
    """Return whether the text of a module has operations that `EXPAND_ARITHMETIC` may expand."""
    return any(map(text.__contains__, _EXPANDED))


def has_transfers(text: str) -> bool:
    """Return whether the text of a module has operations that `TRANSFERS_TO_LOOPS` lowers."""
    return "vector.transfer_" in text or "vector.print" in text


def lower_pipeline(
    calls_kernels: bool = False,
    transfers: bool = True,
    views: bool = True,
    vectors: bool = True,
    arithmetic: bool = True,
    affine: bool = True,
) -> str:
    """Return the pipeline from buffers to the LLVM dialect for hosts with instructions for all types.

    `lower_to_llvm` of target `llvm` serves all hosts. A function that `calls_kernels` is canonicalized: for thousands
    of arguments LLVM takes far longer to find that only the pointer of a descriptor is used. Without `transfers` of
    vectors, which schedules do not emit, `views` of buffers, complex `vectors`, `arithmetic` that is expanded or
    `affine` operations, the passes that lower them would only traverse the module. Transfers become views, and these
    affine operations.
    """
    tidying = ("canonicalize", "cse") if calls_kernels else ("cse",)
    needless = {
        TRANSFERS_TO_LOOPS: not transfers,
        EXPAND_VIEWS: not (views or transfers),
        VECTORS_TO_LLVM: not (vectors or transfers),
        EXPAND_ARITHMETIC: not arithmetic,
        LOWER_AFFINE: not (affine or views or transfers),
    }
    passes = [step for step in TO_LLVM if not needless.get(step)]
    return f"builtin.module({','.join((*passes, *tidying))})"


def to_llvm_ir(module: ir.Module) -> str:
    """Translate a module of the LLVM dialect to LLVM IR that llvmlite's LLVM reads."""
    require_translated(module.operation)
    return readable_by_older(translate_to_llvm_ir(module.operation))


INSTRUCTION_ORDER = "-pre-RA-sched=source"
"""Instructions of a block begin in the order of the program, as they do for processors whose machine scheduler orders
them later. WebAssembly has none: LLVM's other order multiplies all rows of a register tile with one vector of columns
before the next, and engines spill the rows. In V8 14.6 the encoder of Whisper takes 0.90 of the time, MobileNetV2
0.86."""


@cache
def llvmlite() -> ModuleType:
    """Return llvmlite's bindings with all of its back ends."""
    import llvmlite.binding as binding

    binding.set_option("mirlo", INSTRUCTION_ORDER)
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    result: ModuleType = binding
    system.register_code(Path(binding.__file__).parent)
    return result
