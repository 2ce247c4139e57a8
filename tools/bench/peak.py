"""The peak of this machine: multiply-adds in registers, and copies, on as many cores as kernels run on.

Both are loops of LLVM IR that the thread pool of compiled models runs in chunks, as a loop in Python, with its lock,
would not measure the machine.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from mirlo.runtime import threads as pool
from mirlo.runtime.names import PARALLEL
from mirlo.runtime.object_loader import compile_llvm
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.options import host_machine
from mirlo.targets.llvm.processor import host_processor

TRIPS = 60_000
"""Iterations of a chunk of multiply-adds, some 80 us."""
CHUNKS = 8
"""Chunks of each thread: one that starts late leaves its part to the others."""


@dataclass(frozen=True)
class Peak:
    """Call `run` to do `flops` floating-point operations as fast as the cores can."""

    run: Callable[[], None]
    flops: int


def flops_per_cycle() -> float:
    """Return the multiplications and additions of a core in a cycle at its peak."""
    machine = host_machine()
    return 2 * machine.fma_per_cycle * machine.lanes(4)


def peak_loop(threads: int = 1) -> Peak:
    """Return a loop over as many accumulators in vectors as the registers hold."""
    machine = host_machine()
    lanes, sums = machine.lanes(4), machine.vector_registers - 8
    kind = f"<{lanes} x float>"
    phis = "\n".join(f"  %a{i} = phi {kind} [ %v, %entry ], [ %r{i}, %loop ]" for i in range(sums))
    body = "\n".join(_multiply_add(i, lanes) for i in range(sums))
    total = "\n".join(f"  %t{i + 1} = fadd {kind} %{f't{i}' if i else 'v'}, %r{i}" for i in range(sums))
    text = f"""
declare {kind} @llvm.fma.v{lanes}f32({kind}, {kind}, {kind})
define internal void @chunk(ptr %arguments, i32 %chunk, i32 %chunks) #0 {{
entry:
  %v = load {kind}, ptr %arguments, align 4
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{phis}
{body}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, {TRIPS}
  br i1 %more, label %loop, label %out
out:
{total}
  %wide = zext i32 %chunk to i64
  %one = add i64 %wide, 1
  %place = getelementptr {kind}, ptr %arguments, i64 %one
  store {kind} %t{sums}, ptr %place, align 4
  ret void
}}
"""
    chunks = CHUNKS * threads
    arguments = np.full(lanes * (chunks + 1), 1e-3, np.float32)
    return Peak(_runner(text, arguments, chunks, threads), TRIPS * sums * lanes * 2 * chunks)


def _multiply_add(i: int, lanes: int) -> str:
    kind = f"<{lanes} x float>"
    if not host_processor().has_fma:
        return f"  %p{i} = fmul {kind} %v, %v\n  %r{i} = fadd {kind} %p{i}, %a{i}"
    return f"  %r{i} = call {kind} @llvm.fma.v{lanes}f32({kind} %v, {kind} %v, {kind} %a{i})"


def copy_loop(size: int, again: int, threads: int = 1) -> Callable[[], None]:
    """Return a copy that reads and writes `size` bytes in all, a part on each thread, `again` times."""
    part = max(size // 2 // threads, 1)
    arrays = [np.ones(part, np.uint8) for _ in range(2 * threads)]
    text = f"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define internal void @chunk(ptr %arguments, i32 %chunk, i32 %chunks) #0 {{
entry:
  %wide = zext i32 %chunk to i64
  %first = shl i64 %wide, 1
  %second = add i64 %first, 1
  %from = getelementptr ptr, ptr %arguments, i64 %first
  %to = getelementptr ptr, ptr %arguments, i64 %second
  %source = load ptr, ptr %from
  %target = load ptr, ptr %to
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 {part}, i1 true)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, {again}
  br i1 %more, label %loop, label %out
out:
  ret void
}}
"""
    run = _runner(text, np.array([array.ctypes.data for array in arrays], np.uintp), threads, threads)

    def copy(keep: object = arrays) -> None:
        run()

    return copy


def _runner(text: str, arguments: np.ndarray, chunks: int, threads: int) -> Callable[[], None]:
    """Return a call of `@chunk` for every chunk, by the pool where there are several threads."""
    if threads > 1:
        pool.ensure(threads)
        call = f"  call void @{PARALLEL}(ptr @chunk, ptr %arguments, i32 {chunks}, i32 {threads})"
        text += f"declare void @{PARALLEL}(ptr, ptr, i32, i32)\n"
    else:
        call = "\n".join(f"  call void @chunk(ptr %arguments, i32 {i}, i32 {chunks})" for i in range(chunks))
    text += f"define void @run(ptr %arguments) {{\n{call}\n  ret void\n}}\n"
    text += f'attributes #0 = {{ "target-features"="{host_processor().llvm_features}" }}\n'
    code = compile_llvm(text)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address("run"))
    address = arguments.ctypes.data

    def run(keep: object = (code, arguments)) -> None:
        function(address)

    return run
