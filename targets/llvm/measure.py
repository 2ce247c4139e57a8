"""Measurements of this machine's processor: rates of caches, memory and instructions, for `mirlo doctor --measure`."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Iterator

import numpy as np

from mirlo.runtime.container import empty_aligned
from mirlo.runtime.object_loader import compile_llvm
from mirlo.runtime.system import moving_among_cores
from mirlo.targets.llvm.cpus import X86
from mirlo.targets.llvm.machine import Machine, Rates
from mirlo.targets.llvm.processor import Processor
from mirlo.targets.llvm.schedule.cost import LINE_BYTES

SECONDS = 0.3
"""Time in which each rate is measured over and over: the best counts, as other processes only make it worse."""
SUMS = 12
"""Accumulators in flight: more than the latency of products needs, fewer than any processor has registers."""
UNROLLED = 8
"""Vectors that an iteration reads or writes."""
CHAIN = 16
"""Pairs of dependent instructions, of a cycle each, of an iteration."""
STEPS = 20_000
L2_SIZES = 8
"""Sizes of the L2 cache that are read from the L3 cache."""
MEMORY_BYTES = 32 << 20
EXCHANGED_BYTES = 256 << 10


def measure(processor: Processor, machine: Machine) -> Rates:
    """Measure the rates of this machine's processor, in about two seconds."""
    code = _Code(processor, machine)
    cycle = code.seconds_of_cycle()
    l3_bytes = L2_SIZES * machine.l2_bytes
    has_l3 = l3_bytes <= machine.l3_bytes // 2
    return Rates(
        fma_per_cycle=code.products_per_cycle("fma", cycle),
        bf16_dot_rate=code.dot_rate(),
        l2_bytes_per_cycle=_digits(code.bytes_read(machine.l2_bytes // 2, cycle)),
        l3_bytes_per_cycle=_digits(code.bytes_read(l3_bytes, cycle)) if has_l3 else None,
        memory_bytes_per_cycle=_digits(code.bytes_from_memory(cycle)),
        exchanged_bytes_per_cycle=_digits(code.bytes_exchanged(cycle)),
    )


def _digits(value: float | None) -> float | None:
    """Round a rate to two digits, so that repeated measurements give the same code."""
    return None if value is None else float(f"{value:.2g}")


class _Code:
    """The loops that are timed, compiled for a processor."""

    def __init__(self, processor: Processor, machine: Machine):
        self.processor = processor
        self.has_dots = processor.has("avx512bf16", "avx512vl") and machine.vector_bytes == 64
        self.vector_bytes = machine.vector_bytes
        self.code = compile_llvm("\n".join(self._texts(machine.lanes(4))))
        self.operands = empty_aligned(np.dtype(np.float32), (1024,))
        self.operands[:] = 0.0

    def _texts(self, lanes: int) -> Iterator[str]:
        vector, words = f"<{lanes} x float>", f"<{lanes} x i32>"
        fused = f"call {vector} @llvm.fma.v{lanes}f32({vector} %x, {vector} %y, {vector} %s{{0}})"
        if self.processor.has_fma:
            yield f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})"
            yield _products("fma", vector, vector, fused)
        if self.has_dots:
            pair = f"<{2 * lanes} x bfloat>"
            name = "@llvm.x86.avx512bf16.dpbf16ps.512"
            yield f"declare {vector} {name}({vector}, {pair}, {pair})"
            yield _products("dot", vector, pair, f"call {vector} {name}({vector} %s{{0}}, {pair} %x, {pair} %y)")
        yield _reader(words, self.vector_bytes)
        yield _writer(words, self.vector_bytes)
        yield _chain()
        if self.processor.arch == X86:
            yield "declare void @llvm.x86.sse2.clflush(ptr)"
            flush = "call void @llvm.x86.sse2.clflush(ptr %at)"
            yield _loop(
                "flush", "ptr %p, i64 %count", LINE_BYTES, f"  %at = getelementptr i8, ptr %p, i64 %i\n  {flush}"
            )
        width = f'"prefer-vector-width"="{8 * self.vector_bytes}"'
        yield (
            f'attributes #0 = {{ nounwind "target-cpu"="{self.processor.cpu}" '
            f'"target-features"="{self.processor.llvm_features}" {width} }}'
        )

    def _timed(self, name: str, *arguments: int, before: Callable[[], object] | None = None) -> float:
        """Return the least seconds of a call."""
        function = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(arguments))(self.code.address(name))
        best, end = math.inf, time.perf_counter() + SECONDS
        while best == math.inf or time.perf_counter() < end:
            if before is not None:
                before()
            start = time.perf_counter_ns()
            function(*arguments)
            best = min(best, (time.perf_counter_ns() - start) / 1e9)
        return best

    def _products(self, name: str) -> float:
        """Return the seconds of an instruction that multiplies, of many that do not wait for each other."""
        return self._timed(name, self.operands.ctypes.data, STEPS) / (STEPS * SUMS)

    def seconds_of_cycle(self) -> float:
        """Return the seconds of a cycle while vectors are multiplied, which may lower the frequency."""
        if self.processor.has_fma:
            self._products("fma")
        return self._timed("chain", self.operands.ctypes.data, STEPS) / (STEPS * CHAIN * 2)

    def products_per_cycle(self, name: str, cycle: float) -> float | None:
        """Return the instructions of a cycle: a power of two, as the frequency was measured at another time."""
        if not self.processor.has_fma:
            return None
        return 2.0 ** round(math.log2(cycle / self._products(name)))

    def dot_rate(self) -> float | None:
        """Return how many products of bf16 take the time of one of f32, to a quarter."""
        if not self.has_dots:
            return None
        return max(0.25, round(8 * self._products("fma") / self._products("dot")) / 4)

    def bytes_read(self, size: int, cycle: float) -> float:
        """Return the bytes per cycle that are read of an array of this size, over and over."""
        array = _touched(size)
        return size * cycle / self._timed("read", array.ctypes.data, size)

    def bytes_from_memory(self, cycle: float) -> float | None:
        """Return the bytes per cycle that are read of an array that no cache holds."""
        if self.processor.arch != X86:
            return None
        array = _touched(MEMORY_BYTES)
        flush = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 2)(self.code.address("flush"))
        at = array.ctypes.data
        return MEMORY_BYTES * cycle / self._timed("read", at, MEMORY_BYTES, before=lambda: flush(at, MEMORY_BYTES))

    def bytes_exchanged(self, cycle: float) -> float | None:
        """Return the bytes per cycle that are read of an array that another core has just written."""
        array = _touched(EXCHANGED_BYTES)
        at = array.ctypes.data
        write = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 2)(self.code.address("write"))
        with moving_among_cores() as move:
            if move is None:
                return None

            def written_elsewhere() -> None:
                move(1)
                write(at, EXCHANGED_BYTES)
                move(0)

            return EXCHANGED_BYTES * cycle / self._timed("read", at, EXCHANGED_BYTES, before=written_elsewhere)


def _touched(size: int) -> np.ndarray:
    array = empty_aligned(np.dtype(np.uint8), (size,))
    array[:] = 1
    return array


def _loop(name: str, parameters: str, step: int, body: str, values: str = "", after: str = "") -> str:
    """Return a function with a loop over `%i` from 0 to `%count`."""
    return f"""
define void @{name}({parameters}) #0 {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{values}
{body}
  %next = add i64 %i, {step}
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %done
done:
{after}
  ret void
}}"""


def _carried(count: int, kind: str, start: str) -> str:
    return "\n".join(f"  %s{k} = phi {kind} [ {start}, %entry ], [ %t{k}, %loop ]" for k in range(count))


def _stored(count: int, kind: str, operation: str) -> str:
    """Return code that stores the sums, so that they are needed."""
    lines, total = [], "%t0"
    for k in range(1, count):
        lines.append(f"  %u{k} = {operation} {kind} {total}, %t{k}")
        total = f"%u{k}"
    return "\n".join([*lines, f"  store {kind} {total}, ptr %p, align 4"])


def _products(name: str, vector: str, operand: str, instruction: str) -> str:
    loads = [f"  %{x} = load volatile {operand}, ptr %p, align 4" for x in "xy"]
    body = "\n".join([*loads, *(f"  %t{k} = {instruction.format(k)}" for k in range(SUMS))])
    values = _carried(SUMS, vector, "zeroinitializer")
    return _loop(name, "ptr %p, i64 %count", 1, body, values, _stored(SUMS, vector, "fadd"))


def _reader(words: str, vector_bytes: int) -> str:
    lines = []
    for k in range(UNROLLED):
        lines += [
            f"  %o{k} = add i64 %i, {k * vector_bytes}",
            f"  %a{k} = getelementptr i8, ptr %p, i64 %o{k}",
            f"  %v{k} = load {words}, ptr %a{k}, align {vector_bytes}",
            f"  %t{k} = xor {words} %s{k}, %v{k}",
        ]
    values, after = _carried(UNROLLED, words, "zeroinitializer"), _stored(UNROLLED, words, "xor")
    return _loop("read", "ptr %p, i64 %count", UNROLLED * vector_bytes, "\n".join(lines), values, after)


def _writer(words: str, vector_bytes: int) -> str:
    lines = []
    for k in range(UNROLLED):
        lines += [
            f"  %o{k} = add i64 %i, {k * vector_bytes}",
            f"  %a{k} = getelementptr i8, ptr %p, i64 %o{k}",
            f"  store {words} zeroinitializer, ptr %a{k}, align {vector_bytes}",
        ]
    return _loop("write", "ptr %p, i64 %count", UNROLLED * vector_bytes, "\n".join(lines))


def _chain() -> str:
    lines, last = [], "%s0"
    for k in range(CHAIN):
        result = "%t0" if k == CHAIN - 1 else f"%b{k}"
        lines += [f"  %a{k} = xor i64 {last}, %i", f"  {result} = add i64 %a{k}, %i"]
        last = result
    return _loop("chain", "ptr %p, i64 %count", 1, "\n".join(lines), _carried(1, "i64", "1"), _stored(1, "i64", "add"))
