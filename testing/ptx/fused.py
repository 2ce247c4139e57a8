"""Fused multiply-add, rounded once: LLVM's `fma` on this machine, over arrays."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from mirlo.testing.ptx.types import Array

_LOOP = """
define void @{name}(ptr noalias %a, ptr noalias %b, ptr noalias %c, ptr noalias %out, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %pa = getelementptr {type}, ptr %a, i64 %i
  %pb = getelementptr {type}, ptr %b, i64 %i
  %pc = getelementptr {type}, ptr %c, i64 %i
  %po = getelementptr {type}, ptr %out, i64 %i
  %x = load {type}, ptr %pa
  %y = load {type}, ptr %pb
  %z = load {type}, ptr %pc
  %r = call {type} @llvm.fma.{short}({type} %x, {type} %y, {type} %z)
  store {type} %r, ptr %po
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}
declare {type} @llvm.fma.{short}({type}, {type}, {type})
"""


@cache
def _functions() -> dict[Any, Any]:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    text = "".join(
        _LOOP.format(name=f"fma_{short}", type=type_, short=short)
        for type_, short in (("float", "f32"), ("double", "f64"))
    )
    module = llvm.parse_assembly(text)
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64)
    result: dict[Any, Any] = {
        np.dtype(dtype): kind(engine.get_function_address(f"fma_{short}"))
        for dtype, short in ((np.float32, "f32"), (np.float64, "f64"))
    }
    result["engine"] = engine
    return result


def _place(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def fma(a: Array, b: Array, c: Array) -> Array:
    """Return `a * b + c` in f32 or f64, rounded once."""
    shape = max(a.shape, b.shape, c.shape)
    operands = [x if x.shape == shape and x.flags.c_contiguous else np.ascontiguousarray(np.broadcast_to(x, shape))
             for x in (a, b, c)]  # fmt: skip
    result = np.empty(shape, a.dtype)
    _functions()[a.dtype](*map(_place, operands), _place(result), result.size)
    return result


def fma_narrow(a: Array, b: Array, c: Array) -> Array:
    """Return `a * b + c` for formats of up to 16 bits: the exact product's sum is rounded to odd, then once more."""
    wide = np.float64
    product, addend = a.astype(wide) * b.astype(wide), c.astype(wide)
    total = product + addend
    # What the sum lost (Knuth); to odd: the bit that the second rounding must know of.
    part = total - product
    lost = (product - (total - part)) + (addend - part)
    bits = np.atleast_1d(total).view(np.int64)
    toward = np.where((lost > 0) == (total > 0), 1, -1)
    odd = np.where((lost != 0) & (bits & 1 == 0) & np.isfinite(total), bits + toward, bits).view(wide)
    return odd.reshape(total.shape).astype(a.dtype)
