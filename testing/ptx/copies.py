"""`cp.async`: asynchronous copies from global to shared memory."""

from __future__ import annotations

import numpy as np

from mirlo.testing.ptx.bulk import copy_box
from mirlo.testing.ptx.errors import KernelError, PtxError
from mirlo.testing.ptx.group import Group
from mirlo.testing.ptx.prepare import Builder, KernelPreparation, Step
from mirlo.testing.ptx.text import Imm, PtxInstruction
from mirlo.testing.ptx.types import BITS

_SIZES = {"ca": (4, 8, 16), "cg": (16,)}


def _cp(p: KernelPreparation, i: PtxInstruction) -> Step:
    if i.modifiers[0] != "async":
        raise PtxError(f"'{i.opcode}' is not known")
    if i.has("bulk"):
        return copy_box(p, i)
    if p.version < (8, 0):
        raise PtxError("cp.async needs sm_80")
    if i.has("commit_group"):
        return lambda group: group.batch.copies.close(group)
    if i.has("wait_all"):
        return lambda group: group.batch.copies.wait(group, None)
    if i.has("wait_group"):
        (count,) = i.operands
        assert isinstance(count, Imm)
        left = count.bits
        return lambda group: group.batch.copies.wait(group, left)
    return _copy(p, i)


def _copy(p: KernelPreparation, i: PtxInstruction) -> Step:
    target, source = p.address(i.operands[0]), p.address(i.operands[1])
    (size_operand, *rest) = i.operands[2:]
    assert isinstance(size_operand, Imm)
    size = size_operand.bits
    if size not in _SIZES[i.modifiers[1]]:
        raise PtxError(f"copies of {size} bytes are not known")
    read_bytes = p.read(rest[0], "u32") if rest else None

    def step(group: Group) -> None:
        addresses = group.spread(source(group))
        if read_bytes is None:
            values = group.batch.memory.load(addresses, size)
        else:
            count = group.spread(read_bytes(group))
            if int(count.max()) > size:
                raise KernelError(f"{int(count.max())} bytes of {size} are to be read")
            values = np.zeros(group.size, BITS[size])
            whole = count == size
            if whole.any():
                values[whole] = group.batch.memory.load(addresses[whole], size)
            bytes_ = values.view(np.uint8).reshape(-1, size)
            for n in range(size):
                some = (count > n) & ~whole
                if some.any():
                    bytes_[some, n] = group.batch.memory.load(addresses[some] + np.uint64(n), 1)
        group.batch.copies.start(group, target(group), values, size)

    return step


COPIES: dict[str, Builder] = {"cp": _cp}
