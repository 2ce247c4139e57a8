"""Run one intrinsic, lowered by the rules of the llvm target, over numpy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mirlo.dialects.bindings import execution_engine, ir, passmanager
from mirlo.dialects.context import make_context
from mirlo.dialects.core.dtypes import dtype
from mirlo.dialects.tir.intrinsics import INTRINSICS
from mirlo.passes.lower.intrinsics import Lowering
from mirlo.targets.llvm import intrinsics as _rules  # noqa: F401  (registers the rules)

LANES = 16

TO_LLVM = (
    "builtin.module(convert-vector-to-scf,convert-scf-to-cf,convert-vector-to-llvm,convert-math-to-llvm,"
    "finalize-memref-to-llvm,convert-func-to-llvm{use-bare-ptr-memref-call-conv=1},convert-arith-to-llvm,"
    "convert-index-to-llvm,convert-cf-to-llvm,convert-ub-to-llvm,reconcile-unrealized-casts,canonicalize,cse)"
)


def loop_text(name: str, dtypes: Sequence[str], count: int, lanes: int = LANES) -> str:
    """A function that applies `tir.<name>` to `count` elements of its buffers; `lanes` 0 means scalars."""
    row = INTRINSICS[name]
    elements = [dtype(d).mlir for d in dtypes]
    result = "i1" if row.result == "bool" else elements[0]
    stored = "i8" if row.result == "bool" else result

    def shaped(element: str) -> str:
        return f"vector<{lanes}x{element}>" if lanes else element

    parameters = ", ".join(f"%p{i}: memref<{count}x{e}>" for i, e in enumerate(elements))
    verb = "vector" if lanes else "memref"

    def typed(element: str) -> str:
        return f"memref<{count}x{element}>" + (f", {shaped(element)}" if lanes else "")

    loads = "\n".join(f"    %x{i} = {verb}.load %p{i}[%i] : {typed(e)}" for i, e in enumerate(elements))
    operands = ", ".join(f"%x{i}" for i in range(len(elements)))
    types = ", ".join(shaped(e) for e in elements)
    widened = f"    %z = arith.extui %y : {shaped('i1')} to {shaped('i8')}\n" if stored != result else ""
    value = "%z" if widened else "%y"
    return f"""
func.func @apply({parameters}, %out: memref<{count}x{stored}>) attributes {{no_inline}} {{
  %zero = arith.constant 0 : index
  %step = arith.constant {lanes or 1} : index
  %count = arith.constant {count} : index
  scf.for %i = %zero to %count step %step {{
{loads}
    %y = "tir.{name}"({operands}) : ({types}) -> {shaped(result)}
{widened}    {verb}.store {value}, %out[%i] : {typed(stored)}
  }}
  return
}}"""


def lowered(text: str) -> Any:
    """The module of this text in the LLVM dialect, with the context current."""
    module = ir.Module.parse(text)
    Lowering(("llvm", "default")).run(module.operation)
    passmanager.PassManager.parse(TO_LLVM).run(module.operation)
    return module


class Compiled:
    """`tir.<name>` over arrays of one length."""

    def __init__(self, name: str, dtypes: Sequence[str], count: int, lanes: int = LANES):
        row = INTRINSICS[name]
        self.count = count
        self.dtypes = [dtype(d).to_numpy() for d in dtypes]
        self.out_dtype = np.dtype(np.bool_) if row.result == "bool" else self.dtypes[0]
        self._context = make_context()
        with self._context, ir.Location.unknown():
            module = lowered(loop_text(name, dtypes, count, lanes))
            self._engine = execution_engine.ExecutionEngine(module, opt_level=2)
        function: Callable[..., Any] = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._engine.raw_lookup("apply"))
        self._function = function

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        out = np.empty(self.count, self.out_dtype)
        self.into(out, *arrays)
        return out

    def into(self, out: np.ndarray, *arrays: np.ndarray) -> None:
        for array, wanted in zip(arrays, self.dtypes, strict=True):
            if array.dtype != wanted or array.shape != (self.count,) or not array.flags.c_contiguous:
                expected = f"{self.count} contiguous elements of {wanted}"
                raise ValueError(f"expected {expected}, got {array.dtype}{array.shape}")
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*arrays, out)]
        packed = (ctypes.c_void_p * len(pointers))(*(ctypes.addressof(p) for p in pointers))
        self._function(ctypes.addressof(packed))

    def object_file(self, path: Path) -> bytes:
        """The object code, for a look at its symbols."""
        self._engine.dump_to_object_file(str(path))
        return path.read_bytes()
