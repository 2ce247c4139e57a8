"""Moving, choosing, comparing and converting: sections 9.7.6 and 9.7.9 of the PTX manual."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mirlo.testing.ptx.convert import convert_builder
from mirlo.testing.ptx.errors import PtxError
from mirlo.testing.ptx.group import Group
from mirlo.testing.ptx.memory import UNDEFINED
from mirlo.testing.ptx.prepare import Builder, KernelPreparation, Read, Step
from mirlo.testing.ptx.special import SPECIAL
from mirlo.testing.ptx.text import Operand, Pair, PtxInstruction, Reg, Vector
from mirlo.testing.ptx.types import BITS, FLOATS, PACKED, TYPES, Array

WINDOWS = {"shared": 0x7100 << 32, "local": 0x7200 << 32}
"""Where generic addresses of a block's and of a thread's own memory begin: no other memory is there."""

_COMPARE: dict[str, Callable[[Any, Any], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
_JOIN = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _comparison(name: str, is_float: bool) -> Callable[[Array, Array], Array]:
    if name == "num":
        return lambda a, b: ~(np.isnan(a) | np.isnan(b))
    if name == "nan":
        return lambda a, b: np.isnan(a) | np.isnan(b)
    if is_float and name.endswith("u") and name[:-1] in _COMPARE:
        ordered = _COMPARE[name[:-1]]
        return lambda a, b: ordered(a, b) | np.isnan(a) | np.isnan(b)
    if is_float and name == "ne":
        return lambda a, b: (a != b) & ~np.isnan(a) & ~np.isnan(b)
    return _COMPARE[name]


def _setp(p: KernelPreparation, i: PtxInstruction) -> Step:
    if i.has("ftz"):
        raise PtxError("setp with .ftz is not known")
    compare = _comparison(i.modifiers[0], i.kind in FLOATS)
    join = _JOIN.get(i.modifiers[1]) if len(i.modifiers) > 2 else None
    a, b = (p.read(operand, i.kind) for operand in i.operands[1:3])
    third = p.read(i.operands[3], "pred") if join is not None else None
    target = i.operands[0]
    yes = p.write(target.first if isinstance(target, Pair) else target)
    no = p.write(target.second) if isinstance(target, Pair) else None
    is_packed = i.kind in PACKED

    def step(group: Group) -> None:
        holds = compare(a(group), b(group))
        # Of packed values the second predicate is that of the upper ones.
        holds, other = (holds[:, 0], holds[:, 1]) if is_packed else (holds, ~holds)
        if join is not None and third is not None:
            c = third(group)
            holds, other = join(holds, c), join(other, c)
        yes(group, holds)
        if no is not None:
            no(group, other)

    if join is None and no is None and not is_packed:
        return lambda group: yes(group, compare(a(group), b(group)))
    return step


def _selp(p: KernelPreparation, i: PtxInstruction) -> Step:
    kind = f"b{8 * TYPES[i.kind].itemsize}"
    a, b = (_read_or_undefined(p, operand, i.kind) for operand in i.operands[1:3])
    chosen = p.read(i.operands[3], "pred")
    write, dtype = p.write(i.operands[0]), TYPES[kind]
    return lambda group: write(group, np.where(chosen(group), a(group).view(dtype), b(group).view(dtype)))


def _read_or_undefined(p: KernelPreparation, operand: Operand, kind: str) -> Read:
    """Read an operand that may never have been written: LLVM selects before it tests whether the value is used."""
    read = p.read(operand, kind)
    if not isinstance(operand, Reg) or operand.name in SPECIAL:
        return read
    number, undefined = p.number(operand.name), np.full(TYPES[kind].itemsize, UNDEFINED, np.uint8).view(TYPES[kind])
    return lambda group: undefined if group.regs[number] is None else read(group)


def _slct(p: KernelPreparation, i: PtxInstruction) -> Step:
    a, b = (p.read(operand, i.modifiers[-2]) for operand in i.operands[1:3])
    c, write = p.read(i.operands[3], i.kind), p.write(i.operands[0])
    return lambda group: write(group, np.where(c(group) >= 0, a(group), b(group)))


def _mov(p: KernelPreparation, i: PtxInstruction) -> Step:
    target, source = i.operands
    if isinstance(source, Vector):
        return _pack(p, i, source)
    if isinstance(target, Vector):
        return _unpack(p, i, target)
    write = p.write(target)
    read = p.read(source, i.kind)
    return lambda group: write(group, read(group))


def _pack(p: KernelPreparation, i: PtxInstruction, source: Vector) -> Step:
    size = TYPES[i.kind].itemsize
    count = len(source.parts)
    part = f"b{8 * size // count}"
    reads, write = [p.read(one, part) for one in source.parts], p.write(i.operands[0])

    def step(group: Group) -> None:
        values = np.broadcast_arrays(*(read(group) for read in reads))
        write(group, np.stack(values, 1).view(BITS[size]).reshape(-1))

    return step


def _unpack(p: KernelPreparation, i: PtxInstruction, target: Vector) -> Step:
    size = TYPES[i.kind].itemsize // len(target.parts)
    read, writes = p.read(i.operands[1], i.kind), [p.write(one) for one in target.parts]

    def step(group: Group) -> None:
        parts = np.ascontiguousarray(read(group)).view(BITS[size]).reshape(-1, len(writes))
        for n, write in enumerate(writes):
            write(group, np.ascontiguousarray(parts[:, n]))

    return step


def _cvta(p: KernelPreparation, i: PtxInstruction) -> Step:
    """Convert to and from generic addresses, which equal those of global memory, constants and parameters."""
    space = next(m for m in i.modifiers if m.partition("::")[0] in ("global", "shared", "local", "const", "param"))
    base = np.uint64(WINDOWS.get(space.partition("::")[0], 0))
    read, write = p.read(i.operands[1], "u64"), p.write(i.operands[0])
    if i.has("to"):
        return lambda group: write(group, read(group) - base)
    return lambda group: write(group, read(group) + base)


def _isspacep(p: KernelPreparation, i: PtxInstruction) -> Step:
    base = np.uint64(WINDOWS[i.modifiers[0]])
    read, write = p.read(i.operands[1], "u64"), p.write(i.operands[0])
    return lambda group: write(group, read(group) >> np.uint64(32) == base >> np.uint64(32))


def _logic(p: KernelPreparation, i: PtxInstruction) -> Step:
    write = p.write(i.operands[0])
    if i.name == "not":
        (only,) = (p.read(operand, "pred") for operand in i.operands[1:])
        return lambda group: write(group, ~only(group))
    join = _JOIN[i.name]
    a, b = (p.read(operand, "pred") for operand in i.operands[1:])
    return lambda group: write(group, join(a(group), b(group)))


_TABLE: dict[str, Builder] = {
    "setp": _setp, "selp": _selp, "slct": _slct, "mov": _mov, "cvta": _cvta, "isspacep": _isspacep,
}  # fmt: skip


def move_builder(name: str, kind: str) -> Builder | None:
    """Return the function that prepares a step of one of these instructions; None for others."""
    if name == "cvt":
        return convert_builder
    if kind == "pred" and (name in _JOIN or name == "not"):
        return _logic
    return _TABLE.get(name)
