"""Code of operations that LLVM may not know: made in a fork, where LLVM ends the process instead of failing.

The translation to LLVM IR crashes on an intrinsic that does not exist, and a back end ends the process on one of
another architecture. Mirlo's own rules emit only what exists; operations from files and from rules of users are tried.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.walk import walk
from mirlo.passes.made_by import take_marks
from mirlo.passes.registry import PassError

Made = TypeVar("Made")

_EVERYWHERE = (
    r"read(?:cycle|steady)counter|(fabs|sqrt|floor|ceil|trunc|roundeven|copysign|fma|exp2)\.(f16|bf16|f32|f64)"
)
_ON_CPUS = (
    r"x86\.(ldtilecfg|tile(zero|loadd64|stored64)|tdp(bf16ps|b[su][su]d)|avx512\.(vpdpbusd\.\d+|permvar\.sf\.512|vpermi2var\.ps\.512|pmaddw\.d\.512|pmaddubs\.w\.512|pshuf\.b\.512)"
    r"|avx512\.mask\.(scalef|range|reduce)\.p[sd]\.512|avx512bf16\.dpbf16ps\.\d+"
    r"|sse2\.pmadd\.wd|ssse3\.pmadd\.ub\.sw\.128|avx2\.(pmadd\.(wd|ub\.sw)|pshuf\.b|permps))"
    r"|aarch64\.neon\.(?:(?:[su]|us)(?:dot|mmla)\.v4i32\.v16i8|bfdot\.v4f32\.v8bf16|bfmmla|tbl1\.v16i8)"
)
"""The intrinsics that Mirlo's rules call; the emitter checks that the processor has them."""
_KNOWN = re.compile(rf"llvm\.({_EVERYWHERE})")
_KNOWN_ON_CPUS = re.compile(rf"llvm\.({_EVERYWHERE}|{_ON_CPUS})")
_NAMES = re.compile(r'"(llvm\.[\w.]+)"')


def suspects_in_text(text: str) -> set[str]:
    """Return the operations and intrinsics in the text of a module for a CPU that LLVM may not know."""
    if '"llvm.' not in text:
        return set()
    context = ir.Context.current
    names = set(_NAMES.findall(text))
    return {name for name in names if not (_KNOWN_ON_CPUS.fullmatch(name) or context.is_registered_operation(name))}


def suspects_in(root: ir.Operation) -> set[str]:
    """Return the operations and intrinsics in a module for a device that LLVM may not know."""
    suspects: set[str] = set()

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name.startswith("llvm."):
            name = ir.StringAttr(op.attributes["intrin"]).value if op.name == "llvm.call_intrinsic" else op.name
            suspects.add(name)
        return ir.WalkResult.ADVANCE

    walk(root, visit)
    registered = root.context.is_registered_operation
    return {name for name in suspects if not (_KNOWN.fullmatch(name) or registered(name))}


def make_guarded(root: ir.Operation, suspects: Iterable[str], make: Callable[[], Made]) -> Made:
    """Return the result of `make` for a module: in a fork, if it contains operations that LLVM may not know."""
    suspects = sorted(suspects)
    if not suspects:
        return make()
    from mirlo.passes.byoc.generator_errors import Crash
    from mirlo.passes.byoc.guard import guarded

    emitted_by = take_marks(root)
    try:
        result: Made = guarded(make, quiet=True)
    except Crash as crash:
        raise PassError(f"LLVM made no code: {_cause(crash)}{_blamed(suspects, emitted_by)}") from crash
    return result


_TRANSLATED = frozenset(
    ("amx", "arm_neon", "arm_sme", "arm_sve", "builtin", "gpu", "llvm", "nvvm", "rocdl", "vcix", "x86vector")
)
"""The dialects that MLIR translates to LLVM IR; an operation of another one ends the process."""


def is_translated(op: ir.Operation) -> bool:
    """Return whether an operation of a lowered module can be translated to LLVM IR."""
    return op.name.partition(".")[0] in _TRANSLATED and op.name != "builtin.unrealized_conversion_cast"


def require_translated(root: ir.Operation) -> None:
    """Raise an error unless all operations of a lowered module can be translated to LLVM IR."""
    left: list[str] = []
    translated: set[str] = set()

    def visit(op: ir.Operation) -> ir.WalkResult:
        name = op.name
        if name in translated:
            return ir.WalkResult.ADVANCE
        if is_translated(op):
            translated.add(name)
            return ir.WalkResult.ADVANCE
        left.append(name)
        return ir.WalkResult.INTERRUPT

    walk(root, visit)
    if left:
        advice = ": the pass lower-intrinsics lowers it" if left[0].startswith("tir.") else ""
        raise PassError(f"'{left[0]}' is not lowered to the LLVM dialect{advice}")


def _cause(crash: Exception) -> str:
    """Return LLVM's own message, without positions in the text of the unit."""
    stderr = getattr(crash, "said", "")
    lines = [re.sub(r"^loc\([^)]*\): |^(LLVM )?(ERROR|error): ", "", line).strip() for line in stderr.splitlines()]
    lines = [line.removeprefix("error: ") for line in lines if line and "PLEASE submit" not in line]
    return lines[0] if lines else f"it {crash}"


def _blamed(suspects: Iterable[str], emitted_by: dict[str, set[str]]) -> str:
    """Return the origins of operations that LLVM does not know, as lines of a message."""
    lines = []
    for name in suspects:
        rules = sorted(emitted_by.get(name, ()))
        lines += [f"\n  '{name}' was emitted by rule '{rule}'" for rule in rules] or [f"\n  '{name}' is in the IR"]
    return "".join(lines)
