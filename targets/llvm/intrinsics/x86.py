"""x86 instructions without an upstream operation."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import call_intrinsic, compare, create
from mirlo.passes.schedule.vectors import pick_lanes, shuffle
from mirlo.runtime.host_cpu import AMX
from mirlo.targets.llvm.cpus import X86
from mirlo.targets.llvm.processor import Processor

if TYPE_CHECKING:
    from mirlo.passes.lower.values import Num, ValueBuilder

_REGISTERS = {"f32": (16, "ps.512"), "f64": (8, "pd.512")}
"""By element type: the lanes of a register, and the suffix of intrinsic names."""
_CURRENT_ROUNDING = 4
_SMALLER_WITH_SIGN_OF_FIRST = 0b0010
"""Immediate of `vrange`: the operand with the smaller magnitude, with the sign of the first one."""
_TO_EVEN_QUIETLY = 0b1000
"""Immediate of `vreduce`: subtract the nearest integer, halves to even, without exceptions."""


def fills_registers(b: ValueBuilder, kind: str) -> bool:
    """Return whether the functions here are one instruction per register for such vectors."""
    if kind not in _REGISTERS or b.shape is None or len(b.shape) != 1:
        return False
    return b.shape[0] % _REGISTERS[kind][0] == 0


def scale_by_power(b: ValueBuilder, x: Num, whole: Num) -> Num:
    """Emit x · 2^whole, rounded once; underflow and overflow cost nothing extra."""

    def call(x: ir.Value, whole: ir.Value) -> ir.Value:
        return _call("scalef", x, [whole, x, *_every_lane(x)])

    return _by_register(b, call, x, whole)


def limited_size(b: ValueBuilder, x: Num, limit: float) -> Num:
    """Emit x clamped to ±limit; for NaN, the limit."""

    def call(x: ir.Value, bound: ir.Value) -> ir.Value:
        control = _constant(ir.IntegerType.get_signless(32), _SMALLER_WITH_SIGN_OF_FIRST)
        return _call("range", x, [bound, control, x, *_every_lane(x)])

    return _by_register(b, call, x, b.constant(x.kind, limit))


def fraction_to_nearest(b: ValueBuilder, x: Num) -> Num:
    """Emit x minus the nearest integer (halves: the even one); 0 for infinities."""

    def call(x: ir.Value) -> ir.Value:
        control = _constant(ir.IntegerType.get_signless(32), _TO_EVEN_QUIETLY)
        return _call("reduce", x, [control, x, *_every_lane(x)])

    return _by_register(b, call, x)


_DOTS = {
    "vpdpbusd": dict.fromkeys((128, 256, 512), "llvm.x86.avx512.vpdpbusd.{bits}"),
    "vdpbf16ps": dict.fromkeys((128, 256, 512), "llvm.x86.avx512bf16.dpbf16ps.{bits}"),
    "vpmaddubsw": {
        128: "llvm.x86.ssse3.pmadd.ub.sw.128",
        256: "llvm.x86.avx2.pmadd.ub.sw",
        512: "llvm.x86.avx512.pmaddubs.w.512",
    },
    "vpmaddwd": {128: "llvm.x86.sse2.pmadd.wd", 256: "llvm.x86.avx2.pmadd.wd", 512: "llvm.x86.avx512.pmaddw.d.512"},
}
"""Dot-product instructions, by width in bits: of adjacent unsigned and signed int8, bf16, and int16;
`vpmaddubsw` has sums of two products of int8 in 16 bits, which saturate."""


_NEEDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"(ldtilecfg|tile\w+)$", ("amx-tile",)),
    (r"tdpbf16ps$", ("amx-bf16",)),
    (r"tdpb[su][su]d$", ("amx-int8",)),
    (r"avx512bf16\.\S*\.512", ("avx512bf16",)),
    (r"avx512bf16\.", ("avx512bf16", "avx512vl")),
    (r"avx512\.vpdpbusd\.512", ("avx512vnni",)),
    (r"avx512\.vpdpbusd\.", ("avx512vnni", "avx512vl")),
    (r"avx512\.(pmadd|pshuf)", ("avx512bw",)),
    (r"avx512\.mask\.(range|reduce)\.", ("avx512dq",)),
    (r"avx512\.", ("avx512f",)),
    (r"avx2\.", ("avx2",)),
    (r"ssse3\.", ("ssse3",)),
    (r"", ()),
)
"""Features of the processor by the names of intrinsics after `llvm.x86.`; the first pattern that matches counts."""
_CALL = re.compile(r'"llvm\.x86\.([\w.]+)"')


def missing_instruction(text: str, processor: Processor) -> tuple[str, str] | None:
    """Return an intrinsic in a module's text that a processor lacks, and the features that it needs.

    None if there is none. LLVM ends the process where it is to select such an instruction.
    """
    if '"llvm.x86.' not in text:
        return None
    for name in sorted(set(_CALL.findall(text))):
        needed = next(features for pattern, features in _NEEDS if re.match(pattern, name))
        if processor.emulates_tiles and set(needed) <= AMX and needed:
            continue
        has_vex = name.startswith("avx512.vpdpbusd.") and not name.endswith(".512") and processor.has("avxvnni")
        if processor.arch != X86 or not has_vex and not processor.has(*needed):
            return f"llvm.x86.{name}", " and ".join(needed) or X86
    return None


def has_dot(instruction: str, total: ir.Value) -> bool:
    """Return whether there is such an instruction for accumulators of this many lanes."""
    return total.type.shape[0] * 32 in _DOTS[instruction]


def call_dot(instruction: str, total: ir.Value, first: ir.Value, second: ir.Value) -> ir.Value:
    """Emit `total + sums of the products of adjacent elements`, for a 128, 256 or 512 bit vector of i32 or f32.

    `vpmaddubsw` returns the sums alone, of as many bits as the total has.
    """
    bits = total.type.shape[0] * 32
    name = _DOTS[instruction][bits].format(bits=bits)
    if instruction == "vpmaddubsw":
        return call_intrinsic(name, ir.VectorType.get([bits // 16], ir.IntegerType.get_signless(16)), first, second)
    if instruction != "vpmaddwd":
        return call_intrinsic(name, total.type, total, first, second)
    result = call_intrinsic(name, total.type, first, second)
    return create("arith.addi", total.type, total, result)


def call_permute(table: ir.Value, words: ir.Value) -> ir.Value:
    """Emit the element of a table of 16 floats that the lowest 4 bits of each of 16 lanes name."""
    return call_intrinsic("llvm.x86.avx512.permvar.sf.512", table.type, table, words)


def call_permute_two(tables: tuple[ir.Value, ir.Value], words: ir.Value) -> ir.Value:
    """Emit the element of two tables of 16 floats that the lowest 5 bits of each of 16 lanes name."""
    return call_intrinsic("llvm.x86.avx512.vpermi2var.ps.512", tables[0].type, tables[0], words, tables[1])


def call_permute_halves(halves: tuple[ir.Value, ir.Value], words: ir.Value) -> ir.Value:
    """Emit the element of a table of 16 floats, in halves, that the lowest 4 bits of each of 8 lanes name."""
    low, high = (call_intrinsic("llvm.x86.avx2.permps", half.type, half, words) for half in halves)
    kind = words.type.element_type
    bits, zero = (
        create(
            "arith.constant",
            words.type,
            value=ir.DenseElementsAttr.get_splat(words.type, ir.IntegerAttr.get(kind, number)),
        )
        for number in (28, 0)
    )
    is_high = compare("lt", create("arith.shli", words.type, words, bits), zero)
    return create("arith.select", low.type, is_high, high, low)


_LOOKUPS = {256: "llvm.x86.avx2.pshuf.b", 512: "llvm.x86.avx512.pshuf.b.512"}


def call_lookup(table: ir.Value, codes: ir.Value) -> ir.Value:
    """Emit the byte of a table of 16, repeated in each 128 bits, that each byte from 0 to 15 names."""
    return call_intrinsic(_LOOKUPS[codes.type.shape[0] * 8], codes.type, table, codes)


def _by_register(b: ValueBuilder, function: Callable[..., ir.Value], *operands: Num) -> Num:
    """Apply `function` to each part of the operands that fills a register."""
    assert b.shape is not None
    lanes = _REGISTERS[operands[0].kind][0]
    parts = [
        function(*(pick_lanes(x.value, range(at, at + lanes)) for x in operands)) for at in range(0, b.shape[0], lanes)
    ]
    joined = parts[0]
    for at, part in enumerate(parts[1:], 1):
        wide = shuffle(part, part, [min(i, lanes - 1) for i in range(lanes * at)]) if at > 1 else part
        joined = shuffle(joined, wide, [*range(lanes * at), *range(lanes * at, lanes * (at + 1))])
    return b.num(joined)


def _every_lane(x: ir.Value) -> list[ir.Value]:
    """Return the last operands of the intrinsics: a mask with all lanes on, the current rounding mode."""
    mask_type, i32 = ir.IntegerType.get_signless(x.type.shape[0]), ir.IntegerType.get_signless(32)
    return [_constant(mask_type, -1), _constant(i32, _CURRENT_ROUNDING)]


def _call(name: str, x: ir.Value, others: list[ir.Value]) -> ir.Value:
    suffix = _REGISTERS[str(x.type.element_type)][1]
    return call_intrinsic(f"llvm.x86.avx512.mask.{name}.{suffix}", x.type, x, *others)


def _constant(kind: ir.Type, number: int) -> ir.Value:
    return create("llvm.mlir.constant", kind, value=ir.IntegerAttr.get(kind, number))
