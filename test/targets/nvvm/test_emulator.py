"""The emulator of PTX: instructions with a catch, against what the manual says or the arithmetic of whole numbers."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mirlo.testing.ptx import KernelError, PtxError, run_kernel

HEAD = ".version 8.4\n.target {target}\n.address_size 64\n"
REGISTERS = ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<99>; .reg .b64 %d<99>;"
LOADS = {2: "b16 %h", 4: "b32 %r", 8: "b64 %d"}


def kernel(body: str, arrays: int = 2, shared: str = "", target: str = "sm_90a") -> str:
    """Return a kernel on arrays whose addresses are in `%d90` and so on, with the thread's index in `%r90`."""
    params = ", ".join(f".param .u64 p{i}" for i in range(arrays))
    loads = " ".join(f"ld.param.u64 %d{90 + i}, [p{i}];" for i in range(arrays))
    head = f"{HEAD.format(target=target)}{shared}\n.visible .entry k({params})"
    return f"{head}\n{{\n{REGISTERS}\n{loads}\nmov.u32 %r90, %tid.x;\n{body}\nret;\n}}\n"


def apply(text: str, *arrays: Any, result: Any = np.uint32, target: str = "sm_90a") -> np.ndarray:
    """Apply an instruction elementwise: `$0` is the result, `$1` ... the operands in registers of their sizes."""
    given = [np.asarray(array) for array in arrays]
    made = np.zeros(len(given[0]), result)
    body = []
    for i, array in enumerate([made, *given]):
        size, number = array.dtype.itemsize, f"{i}"
        kind, prefix = LOADS[size].split()
        text = text.replace(f"${i}", prefix + number)
        body.append(f"mul.wide.u32 %d{80 + i}, %r90, {size}; add.u64 %d{80 + i}, %d{80 + i}, %d{90 + i};")
        if i:
            body.append(f"ld.global.{kind} {prefix}{number}, [%d{80 + i}];")
    kind, prefix = LOADS[made.dtype.itemsize].split()
    ptx = kernel("\n".join([*body, text, f"st.global.{kind} [%d80], {prefix}0;"]), 1 + len(given), target=target)
    run_kernel(ptx, "k", 1, len(made), [made, *given])
    return made


def numbers(kind: Any, *values: int) -> np.ndarray:
    return np.array(values, kind)


RANDOM = np.random.default_rng(7)
A32, B32, C32 = (RANDOM.integers(0, 1 << 32, 64, dtype=np.uint32) for _ in range(3))
A64, B64 = (RANDOM.integers(0, 1 << 64, 64, dtype=np.uint64) for _ in range(2))


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


WHOLE: dict[str, tuple[str, Callable[..., int]]] = {
    "mul.hi.u32": ("mul.hi.u32 $0, $1, $2;", lambda a, b, c: a * b >> 32),
    "mul.hi.s32": ("mul.hi.s32 $0, $1, $2;", lambda a, b, c: signed(a, 32) * signed(b, 32) >> 32),
    "mad.lo": ("mad.lo.s32 $0, $1, $2, $3;", lambda a, b, c: a * b + c),
    "shf.l": ("shf.l.wrap.b32 $0, $1, $2, $3;", lambda a, b, c: ((b << 32 | a) << c % 32) >> 32),
    "shf.r": ("shf.r.wrap.b32 $0, $1, $2, $3;", lambda a, b, c: (b << 32 | a) >> c % 32),
    "lop3": ("lop3.b32 $0, $1, $2, $3, 0x96;", lambda a, b, c: a ^ b ^ c),
    "bfe.u32": ("bfe.u32 $0, $1, 5, 9;", lambda a, b, c: a >> 5 & 511),
    "bfe.s32": ("bfe.s32 $0, $1, 5, 9;", lambda a, b, c: signed(a >> 5 & 511, 9)),
    "bfe.s32 beyond": ("bfe.s32 $0, $1, 28, 9;", lambda a, b, c: signed(a, 32) >> 28),
    "bfi": ("bfi.b32 $0, $1, $2, 7, 8;", lambda a, b, c: b & ~(255 << 7) | (a & 255) << 7),
    "prmt": ("prmt.b32 $0, $1, $2, 0x0617;",
             lambda a, b, c: int.from_bytes([(a | b << 32) >> 8 * n & 255 for n in (7, 1, 6, 0)], "little")),
    "prmt of one operand": ("prmt.b32 $0, $1, %r50, 0x0000;", lambda a, b, c: (a & 255) * 0x01010101),
    "prmt sign": ("prmt.b32 $0, $1, $2, 0x9991;",
                  lambda a, b, c: (a >> 8 & 255) | (0xFFFFFF00 if a >> 15 & 1 else 0)),
    "min.relu": ("min.relu.s32 $0, $1, $2;", lambda a, b, c: max(min(signed(a, 32), signed(b, 32)), 0)),
    "max.relu": ("max.relu.s32 $0, $1, $2;", lambda a, b, c: max(signed(a, 32), signed(b, 32), 0)),
    "popc": ("popc.b32 $0, $1;", lambda a, b, c: a.bit_count()),
    "clz": ("clz.b32 $0, $1;", lambda a, b, c: 32 - a.bit_length()),
    "brev": ("brev.b32 $0, $1;", lambda a, b, c: int(f"{a:032b}"[::-1], 2)),
    "shl beyond": ("shl.b32 $0, $1, 40;", lambda a, b, c: 0),
    "shr.s beyond": ("shr.s32 $0, $1, 40;", lambda a, b, c: -1 if a >> 31 else 0),
    "carry": ("add.cc.u32 %r50, $1, $2; addc.u32 $0, $3, 0;", lambda a, b, c: c + (a + b >> 32)),
    "borrow": ("sub.cc.u32 %r50, $1, $2; subc.u32 $0, $3, 0;", lambda a, b, c: c - (a < b)),
    "dp4a": ("dp4a.s32.u32 $0, $1, $2, $3;",
             lambda a, b, c: c + sum(signed(a >> 8 * n & 255, 8) * (b >> 8 * n & 255) for n in range(4))),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers(name: str) -> None:
    text, meaning = WHOLE[name]
    found = apply(text, A32, B32, C32)
    wanted = [meaning(*map(int, row)) & 0xFFFFFFFF for row in zip(A32, B32, C32, strict=True)]
    assert found.tolist() == wanted


def test_products_of_64_bits() -> None:
    rows = list(zip(A64.tolist(), B64.tolist(), strict=True))
    assert apply("mul.hi.u64 $0, $1, $2;", A64, B64, result=np.uint64).tolist() == [a * b >> 64 for a, b in rows]
    wanted = [(signed(a, 64) * signed(b, 64) >> 64) & (1 << 64) - 1 for a, b in rows]
    assert apply("mul.hi.s64 $0, $1, $2;", A64, B64, result=np.uint64).tolist() == wanted


def test_quotients_go_to_zero() -> None:
    a, b = numbers(np.int32, -7, 7, -7, 7, -8), numbers(np.int32, 2, -2, -2, 2, 4)
    assert apply("div.s32 $0, $1, $2;", a, b, result=np.int32).tolist() == [-3, -3, 3, 3, -2]
    assert apply("rem.s32 $0, $1, $2;", a, b, result=np.int32).tolist() == [-1, 1, -1, 1, 0]


@pytest.mark.parametrize(("kind", "dtype", "digits"), [("f32", np.float32, 24), ("f64", np.float64, 53)])
def test_products_with_a_sum_are_rounded_once(kind: str, dtype: Any, digits: int) -> None:
    tiny = 2.0 ** (1 - digits)
    x = np.array([1 + tiny, 1 + tiny, 3.0, 1 - tiny / 2], dtype)
    y = np.array([1 - tiny, 1 + tiny, 1 / 3, 1 - tiny / 2], dtype)
    z = np.array([-1.0, -1 - 2 * tiny, -1.0, tiny - 1], dtype)
    exact = [Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)) for a, b, c in zip(x, y, z, strict=True)]
    found = apply(f"fma.rn.{kind} $0, $1, $2, $3;", x, y, z, result=dtype)
    assert [Fraction(float(v)) for v in found] == exact, "all of these are numbers of the format"


def test_pairs_of_f32() -> None:
    x, y = (np.random.default_rng(seed).standard_normal(8, np.float32) for seed in range(2))
    found = apply(
        "fma.rn.f32x2 $0, $1, $2, $2;", x.view(np.uint64), y.view(np.uint64), result=np.uint64, target="sm_100"
    )
    wanted = (x.astype(np.float64) * y + y).astype(np.float32)
    np.testing.assert_allclose(found.view(np.float32), wanted, rtol=1e-7)
    with pytest.raises(PtxError, match="needs sm_100"):
        apply("add.rn.f32x2 $0, $1, $1;", x.view(np.uint64), result=np.uint64)


def test_sums_of_narrow_numbers() -> None:
    x, y = np.array([1.5, -2.25], np.float16), np.array([2.0**-20, 1e9], np.float32)
    found = apply("add.rn.f32.f16 $0, $1, $2;", x, y, result=np.float32, target="sm_100")
    assert found.tolist() == [1.5 + 2.0**-20, np.float32(1e9 - 2.25)]
    with pytest.raises(PtxError, match="needs sm_100"):
        apply("add.rn.f32.f16 $0, $1, $2;", x, y, result=np.float32)
    with pytest.raises(PtxError, match=".rp of add is not known"):
        apply("add.rp.f32 $0, $1, $1;", y, result=np.float32)


def test_extremes() -> None:
    nan = np.nan
    a, b = np.array([nan, 1, -0.0, 0.0, nan], np.float32), np.array([2, nan, 0.0, -0.0, nan], np.float32)
    small = apply("min.f32 $0, $1, $2;", a, b, result=np.float32)
    large = apply("max.f32 $0, $1, $2;", a, b, result=np.float32)
    np.testing.assert_array_equal(small, np.array([2, 1, -0.0, -0.0, nan], np.float32))
    assert np.signbit(small[2:4]).all() and not np.signbit(large[2:4]).any()
    assert np.isnan(apply("min.NaN.f32 $0, $1, $2;", a, b, result=np.float32)[:2]).all()


def test_comparisons_with_nan() -> None:
    a, b = np.array([np.nan, 1, 2], np.float32), np.array([1, 1, 1], np.float32)
    table = {"lt": [0, 0, 0], "ltu": [1, 0, 0], "ne": [0, 0, 1], "neu": [1, 0, 1], "nan": [1, 0, 0]}
    for name, wanted in table.items():
        found = apply(f"setp.{name}.f32 %p1, $1, $2; selp.b32 $0, 1, 0, %p1;", a, b)
        assert found.tolist() == wanted, name
    x, y = np.array([1, 3, 2, np.nan], np.float16), np.array([2, 3, 5, 5], np.float16)
    for name, pairs in {"lt": [1, 1], "ge": [2, 0], "geu": [2, 2]}.items():
        text = f"setp.{name}.f16x2 %p1|%p2, $1, $2; selp.b32 %r50, 1, 0, %p1; selp.b32 %r51, 2, 0, %p2;"
        found = apply(text + "or.b32 $0, %r50, %r51;", x.view(np.uint32), y.view(np.uint32))
        assert found.tolist() == pairs, name


CONVERSIONS = {
    "cvt.rni.s32.f32": ([2.5, 3.5, -2.5, 3e9, -3e9, np.nan], np.int32, [2, 4, -2, 2**31 - 1, -(2**31), 0]),
    "cvt.rzi.s32.f32": ([2.9, -2.9, 1e30], np.int32, [2, -2, 2**31 - 1]),
    "cvt.rmi.f32.f32": ([2.5, -2.5], np.float32, [2, -3]),
    "cvt.rpi.u32.f32": ([2.1, -0.9, -5.0], np.uint32, [3, 0, 0]),
    "cvt.sat.f32.f32": ([-1.0, 0.5, 7.0, np.nan], np.float32, [0, 0.5, 1, 0]),
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_conversions(name: str) -> None:
    values, kind, wanted = CONVERSIONS[name]
    assert apply(f"{name} $0, $1;", np.array(values, np.float32), result=kind).tolist() == wanted


def test_integers_that_no_wider_float_has() -> None:
    """Rounded once, also where 64 bits go to 16 by way of nothing."""
    values = np.array([2**24 + 1, 2**25 + 2, 2**53 + 1, -(2**62) - 2**38], np.int64)
    found = apply("cvt.rn.f32.s64 $0, $1;", values, result=np.float32)
    assert found.tolist() == [2.0**24, 2.0**25, 2.0**53, -(2.0**62)]
    halves = apply("cvt.rn.f16.s32 $0, $1;", np.array([2049, 2051, 70000], np.int32), result=np.float16)
    assert halves.tolist() == [2048, 2052, np.inf]


def test_pairs() -> None:
    """The first operand is the upper half."""
    a, b = np.array([1.5, -70000], np.float32), np.array([-2.25, 3], np.float32)
    found = apply("cvt.rn.f16x2.f32 $0, $1, $2;", a, b).view(np.float16).reshape(-1, 2)
    np.testing.assert_array_equal(found, np.array([[-2.25, 1.5], [3, -np.inf]], np.float16))
    bytes_ = apply("cvt.rn.satfinite.e4m3x2.f32 $0, $1, $2;", a, b, result=np.uint16).view(ml_dtypes.float8_e4m3fn)
    assert bytes_.astype(np.float32).tolist() == [-2.25, 1.5, 3, -448]
    x, y = np.array([65535, 40000], np.uint16).view(np.uint32), np.array([2, 30000], np.uint16).view(np.uint32)
    for name, wanted in {"min.s16x2": [65535, 40000], "min.u16x2": [2, 30000], "add.s16x2": [1, 4464]}.items():
        assert apply(f"{name} $0, $1, $2;", x, y).view(np.uint16).tolist() == wanted, name


def test_largest_of_three() -> None:
    a, b = np.array([1, np.nan, 3], np.float32), np.array([2, 5, -1], np.float32)
    found = apply("max.NaN.f32 $0, $1, $2, 0f40200000;", a, b, result=np.float32, target="sm_100")
    np.testing.assert_array_equal(found, np.array([2.5, np.nan, 3], np.float32))


SHUFFLES = {
    "bfly": ("shfl.sync.bfly.b32 $0|%p1, $1, 5, 31, -1;", lambda lane: lane ^ 5),
    "up": ("shfl.sync.up.b32 $0|%p1, $1, 3, 0, -1;", lambda lane: lane - 3 if lane >= 3 else lane),
    "down, in eights": ("shfl.sync.down.b32 $0, $1, 2, 0x181f, -1;", lambda lane: lane + 2 * (lane % 8 < 6)),
    "idx": ("shfl.sync.idx.b32 $0, $1, 9, 31, -1;", lambda lane: 9),
}


@pytest.mark.parametrize("name", SHUFFLES)
def test_shuffles(name: str) -> None:
    text, source = SHUFFLES[name]
    values = np.arange(100, 164, dtype=np.uint32)
    wanted = [100 + lane // 32 * 32 + source(lane % 32) for lane in range(64)]
    assert apply(text, values).tolist() == wanted


def test_votes_and_reductions() -> None:
    values = np.arange(64, dtype=np.uint32)
    odd = "and.b32 %r50, $1, 1; setp.ne.b32 %p1, %r50, 0; vote.sync.ballot.b32 $0, %p1, -1;"
    assert set(apply(odd, values).tolist()) == {0xAAAAAAAA}
    assert apply("redux.sync.max.u32 $0, $1, -1;", values).tolist() == [31] * 32 + [63] * 32
    found = apply("shr.u32 %r50, $1, 2; match.any.sync.b32 $0, %r50, -1;", values)
    assert found[:6].tolist() == [0xF] * 4 + [0xF0] * 2


DIVERGED = """
and.b32 %r1, %r90, 1; setp.eq.b32 %p1, %r1, 0;
mov.b32 %r2, 0; mov.b32 %r3, 0;
LOOP: add.u32 %r3, %r3, %r2; add.u32 %r2, %r2, 1; setp.le.u32 %p2, %r2, %r90; @%p2 bra LOOP;
@%p1 bra EVEN;
mul.lo.u32 %r3, %r3, 3; bra JOIN;
EVEN: add.u32 %r3, %r3, 1000;
JOIN: shfl.sync.bfly.b32 %r4, %r3, 1, 31, -1;
mul.wide.u32 %d1, %r90, 4; add.u64 %d1, %d1, %d90; st.global.u32 [%d1], %r4;
"""


def test_threads_that_part_meet_again() -> None:
    found = np.zeros(64, np.uint32)
    run_kernel(kernel(DIVERGED, 1), "k", 1, 64, [found])
    mine = [t * (t + 1) // 2 * 3 if t % 2 else t * (t + 1) // 2 + 1000 for t in range(64)]
    assert found.tolist() == [mine[t ^ 1] for t in range(64)]


PLACE = "mul.wide.u32 %d1, %r90, 4; add.u64 %d2, %d1, %d90; cvt.u32.u64 %r91, %d1;\n"
"""`%d2` is the thread's element of the array, `%r91` of what is shared."""
SHARED = ".shared .align 16 .b8 s[256];"
IN_SHARED = "mov.u32 %r92, s; add.u32 %r91, %r91, %r92;\n"


def broken(body: str, shared: str = "", **more: Any) -> str:
    """Return the error of a wrong kernel."""
    text = PLACE + (IN_SHARED if shared else "") + body
    with pytest.raises((KernelError, PtxError)) as raised:
        run_kernel(kernel(text, 1, shared, **more), "k", 1, 64, [np.zeros(64, np.uint32)])
    return str(raised.value)


WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p1, [s], 0; @!%p1 bra W;"
SOME = "setp.lt.u32 %p1, %r90, 40; @%p1 bra GO; ret; GO: "
WRONG = {
    "beyond": ("st.global.u32 [%d2+4], 1;", "", "st.global.u32: 4 bytes at"),
    "beyond an argument": ("st.global.u32 [%d2+4], 1;", "", "4 bytes beyond the end of argument 0"),
    "not aligned": ("st.global.v2.u32 [%d2], {%r90, %r90};", "", "is not aligned"),
    "no value": ("add.u32 %r8, %r7, 1;", "", "%r7 is read before it is written"),
    "not written": ("ld.shared.u32 %r1, [%r91];", SHARED, "were never written"),
    "beyond what is shared": ("ld.shared.u32 %r1, [%r91+4];", SHARED, "outside of the 256 bytes of shared memory"),
    "some come": (SOME + "bar.sync 0;", "", "at barrier 0, to which 40 of 64 threads have come"),
    "a lane that ended": (SOME + "shfl.sync.idx.b32 %r1, %r90, 9, 31, -1;", "", "wait for the rest of their warps"),
    "nobody arrives": (
        "setp.eq.u32 %p2, %r90, 0; @%p2 mbarrier.init.shared.b64 [s], 1; bar.sync 0;" + WAIT, SHARED,
        "misses 1 of 1 arrivals",
    ),
    "unknown": ("frobnicate.u32 %r1, %r2;", "", "'frobnicate.u32' is not known"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told(name: str) -> None:
    body, shared, message = WRONG[name]
    assert message in broken(body, shared)


def test_what_a_chip_lacks() -> None:
    assert "try_wait needs sm_90" in broken(WAIT, SHARED, target="sm_80")


def test_unwritten_values_that_are_not_used() -> None:
    """LLVM loads from local memory and selects values that it uses only where they were written."""
    text = """mul.wide.u32 %d1, %r90, 8; add.u64 %d2, %d1, %d90;
.local .align 4 .b8 l[4]; mov.u32 %r1, l; setp.ge.u32 %p1, %r90, 32; @%p1 bra READ;
st.local.u32 [%r1], %r90;
READ: ld.local.u32 %r2, [%r1]; selp.b32 %r3, %r2, %r9, %p1; selp.b32 %r4, 7, %r2, %p1;
st.global.v2.u32 [%d2], {%r3, %r4};
"""
    found = np.zeros(128, np.uint32)
    run_kernel(kernel(text, 1), "k", 1, 64, [found])
    assert found[0::2].tolist() == [0xFFFFFFFF] * 64
    assert found[1::2].tolist() == [*range(32), *[7] * 32]


def test_copies_are_waited_for() -> None:
    start = "cp.async.ca.shared.global [%r91], [%d2], 4; cp.async.commit_group;"
    assert "are still being copied to" in broken(start + "ld.shared.u32 %r1, [%r91];", SHARED)
    assert "are still being copied to" in broken(start + "cp.async.wait_group 1; ld.shared.u32 %r1, [%r91];", SHARED)
    text = PLACE + IN_SHARED + start
    text += "cp.async.wait_group 0; ld.shared.u32 %r1, [%r91]; add.u32 %r1, %r1, 1; st.global.u32 [%d2], %r1;"
    found = np.arange(64, dtype=np.uint32)
    run_kernel(kernel(text, 1, SHARED), "k", 1, 64, [found])
    assert found.tolist() == list(range(1, 65))
