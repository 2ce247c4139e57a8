"""PTX as Python values: a module of functions, which are lists of instructions. Nothing is understood here."""

from __future__ import annotations

from mirlo.runtime.records import dataclass, field


@dataclass(frozen=True)
class Reg:
    """A register, or one of the special ones (`%tid.x`)."""

    name: str


@dataclass(frozen=True)
class Imm:
    """A number, as its bits in 64 bits; floating-point ones (`0f`, `0d`) know how many bits they have."""

    bits: int
    float_width: int = 0


@dataclass(frozen=True)
class PtxSymbol:
    """A label, a variable, a parameter."""

    name: str


@dataclass(frozen=True)
class Address:
    """`[base + offset]`."""

    base: Reg | PtxSymbol | Imm
    offset: int = 0


@dataclass(frozen=True)
class Vector:
    """`{a, b, ...}`."""

    parts: tuple[Operand, ...]


@dataclass(frozen=True)
class Negated:
    """`!%p`."""

    reg: Reg


@dataclass(frozen=True)
class Pair:
    """The operand pair `%r|%p`: a result and a predicate."""

    first: Operand
    second: Operand


@dataclass(frozen=True)
class Bracket:
    """What stands between brackets in several parts: `[map, {x, y}]`."""

    parts: tuple[Operand, ...]


Operand = Reg | Imm | PtxSymbol | Address | Vector | Negated | Pair | Bracket


@dataclass(frozen=True)
class PtxInstruction:
    """One instruction; `name` is what stands before the first dot, `modifiers` the rest."""

    name: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Reg | Negated | None
    line: int

    @property
    def opcode(self) -> str:
        """Return the opcode as it is written."""
        return ".".join((self.name, *self.modifiers))

    @property
    def kind(self) -> str:
        """Return the type, which is the last modifier."""
        return self.modifiers[-1] if self.modifiers else ""

    def has(self, modifier: str) -> bool:
        """Return whether it has a modifier."""
        return modifier in self.modifiers


@dataclass
class PtxVariable:
    """Memory with a name: of a module, of a block of threads, of a thread, or a parameter."""

    name: str
    space: str
    size: int
    alignment: int
    initial: bytes = b""
    offset: int = 0
    """Where it is in its space, once that is laid out."""


@dataclass
class Function:
    """A kernel, or a function of the device."""

    name: str
    entry: bool
    params: list[PtxVariable] = field(default_factory=list)
    results: list[PtxVariable] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    """The type of each declared one; of `%r<9>` under the name without a number."""
    variables: list[PtxVariable] = field(default_factory=list)
    body: list[PtxInstruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Of branches by index: their labels."""
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """`maxntid`, `reqnctapercluster`, `maxnreg` ..."""


@dataclass
class Module:
    """What a file of PTX has."""

    version: tuple[int, int] = (0, 0)
    target: str = ""
    functions: dict[str, Function] = field(default_factory=dict)
    variables: list[PtxVariable] = field(default_factory=list)
