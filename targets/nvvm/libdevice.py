"""NVIDIA's math library, on request: `nvvm{libdevice=true}`, or its file instead of `true`.

The library is LLVM bitcode that is part of CUDA and of the wheels `nvidia-nvvm` and `nvidia-cuda-nvcc-cu12`.
Functions that a model calls are linked into its code (`libraries.py`).
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import arith, func, ir
from mirlo.passes.lower.calls import find
from mirlo.passes.lower.intrinsics import CUSTOM_RULES
from mirlo.passes.registry import Pass, register_pass
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.outline import ON_DEVICE
from mirlo.targets.nvvm.chips import ChipError

if TYPE_CHECKING:
    from mirlo.passes.session import Session

PREFIX = "__nv_"
_SEARCH_PATHS = ("/usr/local/cuda/nvvm/libdevice", "/usr/lib/cuda/nvvm/libdevice", "/opt/cuda/nvvm/libdevice")
FUNCTIONS = {
    "exp": "exp", "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10", "log1p": "log1p", "cbrt": "cbrt",
    "rsqrt": "rsqrt", "sin": "sin", "cos": "cos", "tan": "tan", "asin": "asin", "acos": "acos", "atan": "atan",
    "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "erf": "erf",
    "erfc": "erfc", "pow": "pow", "atan2": "atan2", "fmod": "fmod", "remainder": "remainder", "hypot": "hypot",
}  # fmt: skip
"""Its f64 functions by intrinsic; the f32 ones end with an f. Intrinsics with an instruction are not listed."""


@register_pass
@dataclass(frozen=True)
class CallLibdevice(Pass):
    """Lower intrinsics on scalars to libdevice calls; f16 and bf16 are computed in f32.

    Intrinsics with rules given by the caller, and those missing in the library, are left alone.
    """

    name = "call-libdevice"
    contained = True

    def run(self, op: ir.OpView, session: Session) -> None:
        own = {name.removeprefix("tir.") for name in session.options.get(CUSTOM_RULES) or {}}
        body = op.operation.regions[0].blocks[0]
        declared: set[str] = set()
        for name, function in FUNCTIONS.items():
            for call in find(op, f"tir.{name}") if name not in own else ():
                if isinstance(call.results[0].type, ir.FloatType):
                    _call(call, function, body, declared)


def _call(op: ir.Operation, function: str, body: ir.Block, declared: set[str]) -> None:
    stored = op.results[0].type
    kind = stored if stored.width == 64 else ir.F32Type.get()
    name = PREFIX + (function if stored.width == 64 else f"{function}f")
    operands = list(op.operands)
    if name not in declared:
        declared.add(name)
        with ir.InsertionPoint.at_block_begin(body), op.location:
            new_function = func.FuncOp(name, ir.FunctionType.get([kind] * len(operands), [kind]), visibility="private")
            new_function.operation.attributes[ON_DEVICE] = ir.UnitAttr.get()
    with ir.InsertionPoint(op), op.location:
        if kind != stored:
            operands = [arith.ExtFOp(kind, value).result for value in operands]
        value: ir.Value = func.CallOp([kind], ir.FlatSymbolRefAttr.get(name), operands).results[0]
        if kind != stored:
            value = arith.TruncFOp(stored, value).result
    op.results[0].replace_all_uses_with(value)
    op.erase()


def find_libdevice(wanted: str) -> Path:
    """Return the library's file: the named one, or for `true` that of CUDA or a wheel."""
    if wanted != "true":
        path = Path(wanted)
        if not path.is_file():
            raise ChipError(f"libdevice of target 'nvvm': there is no file '{wanted}'")
        return path
    libdevice = _find_library()
    if libdevice is None:
        raise ChipError(
            "libdevice of target 'nvvm' is not on this machine: pip install nvidia-nvvm, install CUDA, or name it, "
            "nvvm{libdevice=/path/to/libdevice.10.bc}; without the option Mirlo's own functions are used"
        )
    return libdevice


@cache
def _find_library() -> Path | None:
    folders = [Path(place) for place in _SEARCH_PATHS]
    folders += [p for entry in sys.path for p in sorted(Path(entry or ".").glob("nvidia/*/nvvm/libdevice"))]
    return next((file for folder in folders for file in sorted(folder.glob("libdevice*.bc"))), None)
