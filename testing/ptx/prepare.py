"""What the steps of a kernel are made with: how operands are read and results are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mirlo.testing.ptx.errors import PtxError
from mirlo.testing.ptx.group import Group
from mirlo.testing.ptx.ranks import with_rank
from mirlo.testing.ptx.residues import HALF, Residues
from mirlo.testing.ptx.special import SPECIAL
from mirlo.testing.ptx.text import Address, Function, Imm, Negated, Operand, PtxInstruction, PtxSymbol, Reg, Vector
from mirlo.testing.ptx.types import BITS, PACKED, TYPES, Array, kept_as, seen_as, storage

Read = Callable[[Group], Array]
Write = Callable[[Group, Array], None]
Step = Callable[[Group], None]


class KernelPreparation:
    """A function whose instructions are being turned into steps."""

    def __init__(
        self, function: Function, symbols: dict[str, int], shared: frozenset[str], target: str,
        version: tuple[int, int], residues: Residues | None = None,
    ) -> None:  # fmt: skip
        self.target = target
        self.residues = residues
        """What floats are in place of their bits; None for those themselves."""
        self.function = function
        self.symbols = symbols
        """The addresses of variables in their space."""
        self._shared = shared
        """The variables in shared memory."""
        self.version = version
        """The compute capability of the chip."""
        self.numbers: dict[str, int] = {}
        """The place of each register."""
        self._kinds: dict[str, Any] = {}

    def number(self, name: str) -> int:
        """Return the index of a register."""
        if name not in self.numbers:
            self.numbers[name] = len(self.numbers)
        return self.numbers[name]

    def storage_of(self, name: str) -> Any:
        """Return the type in which a register is stored."""
        stored = self._kinds.get(name)
        if stored is None:
            registers = self.function.registers
            declared = registers.get(name) or registers.get(name.rstrip("0123456789"))
            if declared is None:
                raise PtxError(f"the register {name} is not declared")
            stored = storage(declared)
            if self.residues is not None and stored == BITS[HALF // 8]:
                stored = BITS[4]
            self._kinds[name] = stored
        return stored

    def read(self, operand: Operand, kind: str) -> Read:
        """Return the values of an operand as a type."""
        if isinstance(operand, Imm):
            value = self._constant(operand, kind)
            return lambda group: value
        if isinstance(operand, Negated):
            inner = self.read(operand.reg, kind)
            return lambda group: ~inner(group)
        if isinstance(operand, PtxSymbol):
            return self._read_symbol(operand.name, kind)
        if not isinstance(operand, Reg):
            raise PtxError(f"expected a value, found {operand}")
        if operand.name in SPECIAL:
            special = SPECIAL[operand.name]
            return lambda group: seen_as(special(group), kind)
        number, kept = self.number(operand.name), self.storage_of(operand.name)
        dtype = TYPES[kind]
        if kind not in PACKED and kept is dtype:
            return lambda group: group.regs[number]
        if kind not in PACKED and kept.itemsize == dtype.itemsize and kind != "pred":
            return lambda group: group.regs[number].view(dtype)
        if kept.itemsize < dtype.itemsize or kind == "pred" or kept == TYPES["pred"]:
            raise PtxError(f"{operand.name} has not the size of .{kind}")
        return lambda group: seen_as(group.regs[number], kind)

    def _constant(self, operand: Imm, kind: str) -> Array:
        if self.residues is not None and operand.float_width:
            return kept_as(self.residues.constant(operand), BITS[TYPES[kind].itemsize]).view(TYPES[kind])
        return _constant(operand, kind)

    def _read_symbol(self, name: str, kind: str) -> Read:
        value = _constant(Imm(32 if name == "WARP_SZ" else self._symbol(name)), kind)
        if name not in self._shared:
            return lambda group: value

        def address(group: Group) -> Array:
            return with_rank(value, group.batch.rank_of(group)) if group.batch.cluster > 1 else value

        return address

    def write(self, operand: Operand) -> Write:
        """Return the function that writes a result."""
        if operand == PtxSymbol("_"):
            return lambda group, value: None
        if not isinstance(operand, Reg):
            raise PtxError(f"expected a register, found {operand}")
        number, kept = self.number(operand.name), self.storage_of(operand.name)

        def write(group: Group, value: Array) -> None:
            group.regs[number] = value if value.dtype is kept else kept_as(value, kept)

        return write

    def parts(self, operand: Operand) -> tuple[Operand, ...]:
        """Return the parts of a vector; a single operand is its own part."""
        return operand.parts if isinstance(operand, Vector) else (operand,)

    def address(self, operand: Operand, wide: bool = True) -> Read:
        """Return the addresses of `[base + offset]`, in 64 bits; `wide`: whether the base may be a register of 64."""
        if not isinstance(operand, Address):
            raise PtxError(f"expected an address, found {operand}")
        if not isinstance(operand.base, Reg):
            base = operand.base.bits if isinstance(operand.base, Imm) else self._symbol(operand.base.name)
            value = np.array([(base + operand.offset) & ((1 << 64) - 1)], np.uint64)
            return lambda group: value
        size = self.storage_of(operand.base.name).itemsize
        read = self.read(operand.base, f"u{8 * size}")
        offset = np.uint64(operand.offset & ((1 << 64) - 1))
        if size == 8 and not operand.offset:
            return read
        return lambda group: read(group).astype(np.uint64) + offset

    def _symbol(self, name: str) -> int:
        if name not in self.symbols:
            raise PtxError(f"no variable {name!r}")
        return self.symbols[name]


def _constant(value: Imm, kind: str) -> Array:
    if kind == "pred":
        return np.array([value.bits != 0])
    if value.float_width:
        size = value.float_width // 8
        bits = np.array([value.bits], BITS[size])
        number = bits.view(f"f{size}")
        dtype = TYPES[kind]
        return number.astype(dtype) if dtype.kind == "f" or kind == "bf16" else bits.astype(BITS[dtype.itemsize])
    size = TYPES[kind].itemsize * (2 if kind in PACKED else 1)
    return seen_as(np.array([value.bits & ((1 << 8 * size) - 1)], BITS[size]), kind)


Builder = Callable[[KernelPreparation, PtxInstruction], Step]
