"""AMX's instructions as functions of plain LLVM IR, for tests on machines without them (`tiles=emulated`).

Results are the processor's, bit for bit. Each function that uses registers has them on its stack, after their
configuration. `abort` is called where the processor raises an exception: shapes that do not match, registers without a
configuration.
"""

from __future__ import annotations

import re

STATE_BYTES = 64 + 8 * 1024
"""The configuration, and 8 registers of 1 KiB."""
_NAME = r"@llvm\.x86\.(ldtilecfg|tilezero|tileloadd64|tilestored64|tdp\w+)"
_CALL = re.compile(rf"call void {_NAME}\(([^)]*)\)")
_DECLARATION = re.compile(rf"^declare void {_NAME}\(.*\n?", re.MULTILINE)
_FUNCTION = re.compile(r"^(?=define )", re.M)


def emulate_tiles(text: str) -> str:
    """Return LLVM IR in which functions compute what instructions of AMX do."""
    used: set[str] = set()
    parts = [_with_state(part, used) if part.startswith("define") else part for part in _FUNCTION.split(text)]
    if not used:
        return text
    changed = _DECLARATION.sub("", "".join(parts))
    known = "".join(line for line in changed.splitlines() if line.startswith("declare"))
    declared = [line for line in _DECLARED if f"{line.partition('@')[2].partition('(')[0]}(" not in known]
    functions = [_dot(name) if name.startswith("tdp") else _MOVES[name] for name in sorted(used)]
    return "\n".join([changed, *declared, _STATE_FUNCTIONS, *functions])


def _with_state(function: str, used: set[str]) -> str:
    """Return a function whose registers are on its stack, with calls in place of instructions."""

    def call(match: re.Match[str]) -> str:
        name, operands = match.groups()
        used.add(name)
        return f"call void @tile.{name}(ptr %tile.state, {operands})"

    changed, count = _CALL.subn(call, function)
    if not count:
        return function
    state = f"  %tile.state = alloca [{STATE_BYTES} x i8], align 64\n"
    return re.sub(r"\{\n(?:\w+:.*\n)?", lambda match: match.group(0) + state, changed, count=1)


_DECLARED = (
    "declare void @abort()",
    "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
    "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
    "declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)",
    "declare <16 x float> @llvm.fabs.v16f32(<16 x float>)",
    "declare <16 x float> @llvm.copysign.v16f32(<16 x float>, <16 x float>)",
)
_STATE_FUNCTIONS = """define internal i64 @tile.rows(ptr %s, i8 %t) alwaysinline {
  %w = zext i8 %t to i64
  %o = add i64 %w, 48
  %p = getelementptr i8, ptr %s, i64 %o
  %r = load i8, ptr %p
  %z = icmp eq i8 %r, 0
  br i1 %z, label %bad, label %good
bad:
  call void @abort()
  unreachable
good:
  %x = zext i8 %r to i64
  ret i64 %x
}
define internal i64 @tile.bytes(ptr %s, i8 %t) alwaysinline {
  %w = zext i8 %t to i64
  %d = shl i64 %w, 1
  %o = add i64 %d, 16
  %p = getelementptr i8, ptr %s, i64 %o
  %r = load i16, ptr %p
  %x = zext i16 %r to i64
  ret i64 %x
}
define internal ptr @tile.data(ptr %s, i8 %t) alwaysinline {
  %w = zext i8 %t to i64
  %k = shl i64 %w, 10
  %o = add i64 %k, 64
  %p = getelementptr i8, ptr %s, i64 %o
  ret ptr %p
}
define internal void @tile.require(i1 %ok) alwaysinline {
  br i1 %ok, label %good, label %bad
bad:
  call void @abort()
  unreachable
good:
  ret void
}
define internal <16 x float> @tile.flush(<16 x float> %x) alwaysinline {
  %a = call <16 x float> @llvm.fabs.v16f32(<16 x float> %x)
  %small = fcmp olt <16 x float> %a, splat (float 0x3810000000000000)
  %zero = call <16 x float> @llvm.copysign.v16f32(<16 x float> zeroinitializer, <16 x float> %x)
  %r = select <16 x i1> %small, <16 x float> %zero, <16 x float> %x
  ret <16 x float> %r
}
"""
_ROW_LOOP = """
define internal void @tile.{name}({parameters}) noinline {{
  %rows = call i64 @tile.rows(ptr %s, i8 %t)
  %bytes = call i64 @tile.bytes(ptr %s, i8 %t)
  %data = call ptr @tile.data(ptr %s, i8 %t)
{before}
  br label %loop
loop:
  %i = phi i64 [0, %0], [%j, %loop]
  %at = mul i64 %i, %stride
  %m = getelementptr i8, ptr %p, i64 %at
  %o = shl i64 %i, 6
  %d = getelementptr i8, ptr %data, i64 %o
  call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 %bytes, i1 false)
  %j = add i64 %i, 1
  %more = icmp ult i64 %j, %rows
  br i1 %more, label %loop, label %out
out:
  ret void
}}
"""
_CLEAR = "  call void @llvm.memset.p0.i64(ptr %data, i8 0, i64 1024, i1 false)"
_LOAD = {"parameters": "ptr %s, i8 %t, ptr %p, i64 %stride", "before": _CLEAR, "to": "%d", "source": "%m"}
_MOVES = {
    "ldtilecfg": f"""
define internal void @tile.ldtilecfg(ptr %s, ptr %c) {{
  call void @llvm.memset.p0.i64(ptr %s, i8 0, i64 {STATE_BYTES}, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr %s, ptr %c, i64 64, i1 false)
  ret void
}}""",
    "tilezero": f"""
define internal void @tile.tilezero(ptr %s, i8 %t) {{
  %rows = call i64 @tile.rows(ptr %s, i8 %t)
  %data = call ptr @tile.data(ptr %s, i8 %t)
{_CLEAR}
  ret void
}}""",
    "tileloadd64": _ROW_LOOP.format(name="tileloadd64", **_LOAD),
    "tilestored64": _ROW_LOOP.format(
        name="tilestored64", parameters="ptr %s, i8 %t, ptr %p, i64 %stride", before="", to="%m", source="%d"
    ),
}


def _picks(step: int, first: int) -> str:
    """Return the positions of an element of each of 16 groups."""
    return ", ".join(f"i32 {step * lane + first}" for lane in range(16))


def _dot(name: str) -> str:
    """Return the function of a product: loops over rows and groups of K, a vector of the columns.

    bf16: even and odd elements are summed apart by fused multiply-adds from zero, added to each other, then to the
    total; subnormal operands and results are zero. int8: exact, modulo 2^32.
    """
    is_float = name == "tdpbf16ps"
    if is_float:
        kind, carried = "<16 x float>", ["%even", "%odd"]
        step = f"""
  %ap = load <2 x i16>, ptr %ak, align 1
  %a0 = extractelement <2 x i16> %ap, i32 0
  %a1 = extractelement <2 x i16> %ap, i32 1
  %bp = load <32 x i16>, ptr %bk, align 1
  %b0 = shufflevector <32 x i16> %bp, <32 x i16> poison, <16 x i32> <{_picks(2, 0)}>
  %b1 = shufflevector <32 x i16> %bp, <32 x i16> poison, <16 x i32> <{_picks(2, 1)}>
"""
        for i in (0, 1):
            step += f"""
  %wa{i} = zext i16 %a{i} to i32
  %sa{i} = shl i32 %wa{i}, 16
  %ia{i} = insertelement <16 x i32> poison, i32 %sa{i}, i32 0
  %va{i} = shufflevector <16 x i32> %ia{i}, <16 x i32> poison, <16 x i32> zeroinitializer
  %fa{i} = bitcast <16 x i32> %va{i} to <16 x float>
  %za{i} = call <16 x float> @tile.flush(<16 x float> %fa{i})
  %wb{i} = zext <16 x i16> %b{i} to <16 x i32>
  %sb{i} = shl <16 x i32> %wb{i}, splat (i32 16)
  %fb{i} = bitcast <16 x i32> %sb{i} to <16 x float>
  %zb{i} = call <16 x float> @tile.flush(<16 x float> %fb{i})
  %r{i} = call <16 x float> @llvm.fma.v16f32(<16 x float> %za{i}, <16 x float> %zb{i}, <16 x float> {carried[i]})
  %n{i} = call <16 x float> @tile.flush(<16 x float> %r{i})
"""
        phis = "\n".join(f"  {c} = phi {kind} [zeroinitializer, %row], [%n{i}, %inner]" for i, c in enumerate(carried))
        last = """
  %both = fadd <16 x float> %n0, %n1
  %bothz = call <16 x float> @tile.flush(<16 x float> %both)
  %oldz = call <16 x float> @tile.flush(<16 x float> %old)
  %sum = fadd <16 x float> %oldz, %bothz
  %new = call <16 x float> @tile.flush(<16 x float> %sum)
"""
    else:
        kind = "<16 x i32>"
        sign = {"s": "sext", "u": "zext"}
        ea, eb = sign[name[4]], sign[name[5]]  # tdpb<a><b>d
        step = "  %ap = load <4 x i8>, ptr %ak, align 1\n  %bp = load <64 x i8>, ptr %bk, align 1\n"
        total = "%part"
        for i in range(4):
            step += f"""
  %a{i} = extractelement <4 x i8> %ap, i32 {i}
  %wa{i} = {ea} i8 %a{i} to i32
  %ia{i} = insertelement <16 x i32> poison, i32 %wa{i}, i32 0
  %va{i} = shufflevector <16 x i32> %ia{i}, <16 x i32> poison, <16 x i32> zeroinitializer
  %b{i} = shufflevector <64 x i8> %bp, <64 x i8> poison, <16 x i32> <{_picks(4, i)}>
  %wb{i} = {eb} <16 x i8> %b{i} to <16 x i32>
  %m{i} = mul <16 x i32> %va{i}, %wb{i}
  %n{i} = add <16 x i32> {total}, %m{i}
"""
            total = f"%n{i}"
        phis = f"  %part = phi {kind} [%old, %row], [%n3, %inner]"
        last = "  %new = freeze <16 x i32> %n3\n"
    return f"""
define internal void @tile.{name}(ptr %s, i8 %c, i8 %a, i8 %b) noinline {{
entry:
  %rows = call i64 @tile.rows(ptr %s, i8 %c)
  %rowsa = call i64 @tile.rows(ptr %s, i8 %a)
  %rowsb = call i64 @tile.rows(ptr %s, i8 %b)
  %columns = call i64 @tile.bytes(ptr %s, i8 %c)
  %columnsb = call i64 @tile.bytes(ptr %s, i8 %b)
  %deep = call i64 @tile.bytes(ptr %s, i8 %a)
  %groups = lshr i64 %deep, 2
  %ok1 = icmp eq i64 %rows, %rowsa
  call void @tile.require(i1 %ok1)
  %ok2 = icmp eq i64 %columns, %columnsb
  call void @tile.require(i1 %ok2)
  %ok3 = icmp eq i64 %groups, %rowsb
  call void @tile.require(i1 %ok3)
  %pc = call ptr @tile.data(ptr %s, i8 %c)
  %pa = call ptr @tile.data(ptr %s, i8 %a)
  %pb = call ptr @tile.data(ptr %s, i8 %b)
  %lanes = lshr i64 %columns, 2
  %lanes32 = trunc i64 %lanes to i32
  %il = insertelement <16 x i32> poison, i32 %lanes32, i32 0
  %vl = shufflevector <16 x i32> %il, <16 x i32> poison, <16 x i32> zeroinitializer
  %mask = icmp ult <16 x i32> <{_picks(1, 0)}>, %vl
  br label %row
row:
  %i = phi i64 [0, %entry], [%ni, %rowend]
  %o = shl i64 %i, 6
  %cp = getelementptr i8, ptr %pc, i64 %o
  %ar = getelementptr i8, ptr %pa, i64 %o
  %old = load {kind}, ptr %cp, align 64
  br label %inner
inner:
  %k = phi i64 [0, %row], [%nk, %inner]
{phis}
  %ko = shl i64 %k, 2
  %ak = getelementptr i8, ptr %ar, i64 %ko
  %bo = shl i64 %k, 6
  %bk = getelementptr i8, ptr %pb, i64 %bo
{step}
  %nk = add i64 %k, 1
  %mk = icmp ult i64 %nk, %groups
  br i1 %mk, label %inner, label %rowend
rowend:
{last}
  %kept = select <16 x i1> %mask, {kind} %new, {kind} zeroinitializer
  store {kind} %kept, ptr %cp, align 64
  %ni = add i64 %i, 1
  %mi = icmp ult i64 %ni, %rows
  br i1 %mi, label %row, label %out
out:
  ret void
}}"""
