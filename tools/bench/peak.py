"""The most multiply-adds that one core of this machine does: a loop of independent ones, measured."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mirlo.dialects.bindings import execution_engine, ir
from mirlo.dialects.context import make_context
from mirlo.targets.llvm.machine import host_machine
from mirlo.targets.llvm.pipeline import lower_to_llvm

TRIPS = 60_000


@dataclass(frozen=True)
class Peak:
    """Call it to do `flops` floating-point operations as fast as the core can."""

    run: Callable[[], None]
    flops: int
    keep: Any


def make_peak() -> Peak:
    """A loop over as many sums in vectors as the registers hold."""
    machine = host_machine()
    lanes, sums = machine.lanes(4), machine.vector_registers - 8
    kind = f"vector<{lanes}xf32>"
    carried = ", ".join(f"%a{i} = %v" for i in range(sums))
    kinds = ", ".join([kind] * sums)
    body = "\n".join(f"%r{i} = vector.fma %v, %w, %a{i} : {kind}" for i in range(sums))
    total = "\n".join(f"%t{i + 1} = arith.addf %t{i}, %s#{i} : {kind}" for i in range(sums))
    text = f"""
      func.func @peak(%p: memref<{lanes}xf32>) {{
        %c0 = arith.constant 0 : index
        %c1 = arith.constant 1 : index
        %n = arith.constant {TRIPS} : index
        %v = vector.load %p[%c0] : memref<{lanes}xf32>, {kind}
        %w = arith.constant dense<0.5> : {kind}
        %s:{sums} = scf.for %i = %c0 to %n step %c1 iter_args({carried}) -> ({kinds}) {{
          {body}
          scf.yield {", ".join(f"%r{i}" for i in range(sums))} : {kinds}
        }}
        %t0 = arith.constant dense<0.0> : {kind}
        {total}
        vector.store %t{sums}, %p[%c0] : memref<{lanes}xf32>, {kind}
        return
      }}"""
    context = make_context()
    with context, ir.Location.unknown():
        module = ir.Module.parse(text)
        lower_to_llvm(module)
        engine = execution_engine.ExecutionEngine(module, opt_level=2)
    function: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.raw_lookup("peak"))
    buffer = (ctypes.c_float * lanes)(*([1.0] * lanes))
    pointer = ctypes.c_void_p(ctypes.addressof(buffer))
    packed = (ctypes.c_void_p * 1)(ctypes.addressof(pointer))
    address = ctypes.addressof(packed)

    def run() -> None:
        function(address)

    return Peak(run, TRIPS * sums * lanes * 2, (context, engine, buffer, pointer, packed))
