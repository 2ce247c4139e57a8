"""Products of matrices by AMX's instructions, emulated: `mirlo check-target` compares them with what these mean.

The emulation (`tiles=emulated`) is plain LLVM IR, which is compiled for this machine. Products of bf16 run on integers,
for which floats are exact.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.dtypes import DType, dtype
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.compute import PrimBuilder
from mirlo.dialects.tir.view import NAMES
from mirlo.passes.schedule.primitives.command_intrin import command_intrin
from mirlo.passes.schedule.primitives.commands import CommandMemory, CommandProgram, TileCommand
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.runtime.host_cpu import host_cpu
from mirlo.runtime.object_loader import compile_llvm
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.emulated_tiles import emulate_tiles

ROWS, COLUMNS, GROUPS = 16, 16, 16
SIZE = (35, 40, 27)
"""Rows, columns and groups of a product in tiles of 16 or less."""
FACTORS = {"tdpbf16ps": ("bf16", "bf16"), "tdpbssd": ("i8", "i8"), "tdpbsud": ("i8", "u8"),
           "tdpbusd": ("u8", "i8"), "tdpbuud": ("u8", "u8")}  # fmt: skip
"""The element types of the factors of each instruction."""
_CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_void_p, ctypes.c_int64] * 3)


@dataclass(frozen=True)
class ProductParameter:
    """A parameter of a product: a factor, or the result."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    is_output: bool = False

    @property
    def type(self) -> TensorType:
        return TensorType(self.shape, self.dtype)


@dataclass(frozen=True)
class TileProduct:
    """A product of matrices of groups of elements along K: the description of an instruction."""

    instruction: str
    rows: int
    columns: int
    groups: int

    is_template = False
    numbers = ()

    @property
    def name(self) -> str:
        return f"{self.instruction}_product"

    @property
    def width(self) -> int:
        """Return the elements of a group: those of four bytes."""
        return 4 // dtype(FACTORS[self.instruction][0]).bytes

    @property
    def parameters(self) -> tuple[ProductParameter, ...]:
        left, right = map(dtype, FACTORS[self.instruction])
        return (
            ProductParameter("x", (self.rows, self.groups, self.width), left),
            ProductParameter("w", (self.groups, self.columns, self.width), right),
            ProductParameter("y", (self.rows, self.columns), self.total, is_output=True),
        )

    @property
    def total(self) -> DType:
        return dtype("f32" if self.instruction == "tdpbf16ps" else "i32")

    def build(
        self, symbols: Mapping[str, int], name: str, strides: Mapping[str, Sequence[int]] | None = None
    ) -> ir.OpView:
        """Return the prim function of one block."""
        *inputs, _ = self.parameters
        prim = PrimBuilder(name, [each.type for each in inputs], ir.Location.unknown())
        x, w = prim.inputs
        y = prim.reduce(
            "add", (self.rows, self.columns), (self.groups, self.width),
            lambda i, j, g, k: x[i, g, k].cast(self.total) * w[g, j, k].cast(self.total), name="multiply",
        )  # fmt: skip
        names = ir.ArrayAttr.get([ir.StringAttr.get(each.name) for each in self.parameters])
        return prim.finish(y, attributes={NAMES: names})

    def specialize(
        self, inputs: Sequence[TensorType], outputs: Sequence[TensorType] | None, name: str,
        attributes: Mapping[str, object] | None = None,
    ) -> tuple[ir.OpView, list[TensorType]]:  # fmt: skip
        *_, result = self.parameters
        return self.build({}, name), [result.type]

    def why_loops(self, *inputs: TensorType) -> str | None:
        return None


INTRINSICS = {
    name: command_intrin(f"amx.{name}", TileProduct(name, ROWS, COLUMNS, GROUPS)) for name in FACTORS
}  # fmt: skip


def module_of(name: str) -> str:
    """Return a function that adds a product of tiles to another tile, by instructions of AMX."""
    tiles = ("c", 0), ("a", 1), ("b", 2)
    loads = "\n".join(
        f"  call void @llvm.x86.tileloadd64(i8 {number}, ptr %{tile}, i64 %l{tile})" for tile, number in tiles
    )
    return f"""
declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tileloadd64(i8, ptr, i64)
declare void @llvm.x86.tilestored64(i8, ptr, i64)
declare void @llvm.x86.{name}(i8, i8, i8)
define void @multiply(ptr %cfg, ptr %a, i64 %la, ptr %b, i64 %lb, ptr %c, i64 %lc) {{
  call void @llvm.x86.ldtilecfg(ptr %cfg)
{loads}
  call void @llvm.x86.{name}(i8 0, i8 1, i8 2)
  call void @llvm.x86.tilestored64(i8 0, ptr %c, i64 %lc)
  ret void
}}
"""


def _configuration(rows: int, columns: int, groups: int) -> np.ndarray:
    """Return the rows and the bytes of a row of the three registers."""
    content = np.zeros(64, np.uint8)
    content[0] = 1
    content[16:22].view(np.uint16)[:] = 4 * columns, 4 * groups, 4 * columns
    content[48:51] = rows, rows, groups
    return content


def tile_program(name: str, text: str) -> CommandProgram:
    """Return a product in tiles, each of which the function of `text` computes."""
    product = TileProduct(name, *SIZE)
    with make_context(), ir.Location.unknown():
        module = ir.Module.create()
        function = product.build({}, product.name)
        module.body.append(function.operation)
        s = Schedule(function, module)
        i, j, g, k = s.loops("multiply")
        outer = s.tile((i, j, g), (ROWS, COLUMNS, GROUPS))
        s.reorder(*outer, k)
        s.tensorize(outer[3], INTRINSICS[name].name)

    def execute(commands: Sequence[TileCommand], memory: CommandMemory) -> None:
        code = compile_llvm(text)
        x, w, y = (np.ascontiguousarray(memory.array(each)) for each in "xwy")
        for command in commands:
            rows, columns, groups, _ = command.extents
            (a, b), (c,) = command.reads, command.writes
            if command.is_first:
                start = c.address // 4
                for row in range(rows):
                    y[start + row * SIZE[1] : start + row * SIZE[1] + columns] = 0
            registers = _configuration(rows, columns, groups)
            _CALL(code.address("multiply"))(
                registers.ctypes.data, x.ctypes.data + a.address, a.strides[0], w.ctypes.data + b.address,
                b.strides[2], y.ctypes.data + c.address, c.strides[0],
            )  # fmt: skip
        memory.set_array("y", y)

    rng = np.random.default_rng(0)
    factors = product.parameters[:2] if product.total.is_float else ()
    return CommandProgram(name, s, execute, {each.name: rng.integers(-128, 129, each.shape) for each in factors})


def tile_programs() -> tuple[CommandProgram, ...]:
    """Return a program for each instruction, if this machine runs their emulation."""
    if not {"avx2", "fma"} <= set(host_cpu().features):
        return ()
    return tuple(tile_program(name, emulate_tiles(module_of(name))) for name in FACTORS)
