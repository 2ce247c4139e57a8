"""Products on several cores: each computes rows of the result; one reads the right operand and broadcasts it.

Operands are in DRAM. A core reads its rows of the left operand once, those of images before the first product. The
right operand comes in panels, columns that are summed together, to one of three buffers of each core, while another one
is multiplied. The first core reads a panel in pieces, and broadcasts each piece when it is there, while it reads the
next panel. A panel is overwritten once all cores have unpacked it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mirlo.extend.target import rv32
from mirlo_tensix import riscv
from mirlo_tensix.products import BUFFERS, FREE, PANELS, ROWS, Product
from mirlo_tensix.riscv import TAGS, WRITES_ACKNOWLEDGED, Requests, store, wait_for

MOST = 8
"""The cores of a row of the chip."""
PIECE = 8192
"""Bytes of a request."""
SLOTS = 0x100
"""Where the first core has for each core how many panels it has unpacked: 16 bytes each."""
DRAM = ((16, 16), (17, 16), (16, 17), (17, 17), (16, 18), (17, 18))
DRAM_PLACES = ((0, 11), (0, 5), (5, 1), (5, 2), (5, 8), (5, 5))
"""The tiles of DRAM, and their places in the network."""
DRAM_BASE = 0x1000
MOVER_BYTES = 0x8000
"""Bytes of L1 after the tensors of a product for the program that moves data."""


@dataclass(frozen=True)
class SharedProduct:
    """A product whose rows are those of several cores."""

    part: Product
    """What each core computes."""
    cores: int

    @property
    def places(self) -> list[tuple[int, int]]:
        return [(18 + i, 18) for i in range(self.cores)]

    @property
    def limit(self) -> int:
        return self.part.limit + sum(self.part.tensor_bytes[:2]) * (1 + self.panels // BUFFERS) // 4

    def __str__(self) -> str:
        return f"{self.part} on each of {self.cores} cores"

    @property
    def panels(self) -> int:
        return self.part.n // self.part.best[1]

    @property
    def row_blocks(self) -> int:
        """Return in how many parts a core reads its rows."""
        return 1 if self.part.windows else self.part.m // self.part.best[0]

    def movers(self, places: Sequence[int]) -> list[list[int]]:
        """Return the programs of the cores that move data."""
        return [self._mover(core, places) for core in range(self.cores)]

    def _mover(self, core: int, places: Sequence[int]) -> list[int]:
        mover = _Mover(self, core, places[0], places[1])
        if core == 0:
            mover.read_panel(0)
        mover.read_rows(0)
        if core == 0:
            mover.read_panel(1)
            mover.broadcast_panel(0)
        for block in range(1, self.row_blocks):
            mover.read_rows(block)
        for panel in range(1, self.panels):
            if core == 0:
                mover.read_panel(panel + 1)
                mover.broadcast_panel(panel)
            else:
                mover.free_panel(panel)
        return [*mover.code, rv32.STAY]

    def dram_offset(self, core: int) -> int:
        """Return the offset in DRAM of the left operand of a core."""
        return core // 4 * self.part.tensor_bytes[0]

    def panels_of(self, right: bytes) -> bytes:
        """Return the right operand, tiles in row-major order, as panels."""
        tile, (_, columns) = self.part.kind.tile_bytes, self.part.best
        tiles = [right[at : at + tile] for at in range(0, len(right), tile)]
        n = self.part.n
        order = (z * n + j + i for j in range(0, n, columns) for z in range(self.part.depth) for i in range(columns))
        return b"".join(tiles[i] for i in order)

    def content(self, left: bytes, right: bytes) -> list[tuple[tuple[int, int], int, bytes]]:
        """Return the contents of DRAM: the rows of each core, and panels in pieces that alternate between two tiles."""
        size = self.part.tensor_bytes[0]
        rows = [
            (DRAM[2 + i % 4], DRAM_BASE + self.dram_offset(i), left[i * size : (i + 1) * size])
            for i in range(self.cores)
        ]
        panels = self.panels_of(right)
        return [*rows, *((DRAM[i], DRAM_BASE, panels) for i in range(2))]


@dataclass
class _Mover:
    """Builds the program of the core that moves data."""

    product: SharedProduct
    core: int
    rows_at: int
    panels_at: int
    code: list[int] = field(default_factory=list)
    requests: Requests = field(default_factory=Requests)
    acknowledged: int = 0

    @property
    def place(self) -> int:
        return riscv.place((self.core + 1, 1))

    def read(self, dram: int, at: int, to: int, size: int, tag: int) -> None:
        source = DRAM_BASE + at, riscv.place(DRAM_PLACES[dram])
        self.code += self.requests.words(riscv.READ, source, (to, self.place), size, tag)

    def broadcast(self, at: int, size: int) -> None:
        """Copy bytes to the same addresses of the other cores."""
        cores = self.product.cores
        if cores > 1:
            others = riscv.place((cores, 1), (2, 1))
            self.code += self.requests.words(riscv.BROADCAST, (at, self.place), (at, others), size)
            self.acknowledged += cores - 1

    def read_rows(self, block: int) -> None:
        """Read the rows of the left operand that a block of the result needs."""
        size = self.product.part.tensor_bytes[0] // self.product.row_blocks
        for at, piece in _pieces(size):
            where = block * size + at
            source = self.product.dram_offset(self.core) + where
            self.read(2 + self.core % 4, source, self.rows_at + where, piece, 0)
        self.code += [*riscv.wait_for_reads(0), *store(ROWS, block + 1)]

    def read_panel(self, panel: int) -> None:
        """Start reading a panel, if one is left, after all cores have unpacked the panel that it overwrites."""
        if panel == self.product.panels:
            return
        if panel >= BUFFERS:
            for core in range(self.product.cores):
                self.code += wait_for(SLOTS + 16 * core if core else FREE, panel - BUFFERS + 1)
        size = self.product.part.panel_bytes
        for number, (at, piece) in enumerate(_pieces(size)):
            to = self.panels_at + panel % BUFFERS * size + at
            self.read(number % 2, panel * size + at, to, piece, _tag(panel, number))

    def broadcast_panel(self, panel: int) -> None:
        """Broadcast the pieces of a panel as they arrive."""
        size = self.product.part.panel_bytes
        to = self.panels_at + panel % BUFFERS * size
        for number, (at, piece) in enumerate(_pieces(size)):
            self.code += riscv.wait_for_reads(_tag(panel, number))
            self.broadcast(to + at, piece)
        self.code += [*wait_for(WRITES_ACKNOWLEDGED, self.acknowledged), *store(PANELS, panel + 1)]
        self.broadcast(PANELS, 16)

    def free_panel(self, panel: int) -> None:
        """Report the number of unpacked panels to the first core, before it reads the next one."""
        if panel >= BUFFERS:
            target = SLOTS + 16 * self.core, riscv.place((1, 1))
            self.code += [
                *wait_for(FREE, panel - BUFFERS + 1),
                *self.requests.words(riscv.WRITE, (FREE, self.place), target, 16),
            ]


def _pieces(size: int) -> list[tuple[int, int]]:
    return [(at, min(PIECE, size - at)) for at in range(0, size, PIECE)]


def _tag(panel: int, number: int) -> int:
    """Return the tag of a piece: two panels are in flight at a time."""
    half = (TAGS - 1) // 2
    return 1 + panel % 2 * half + number % half
