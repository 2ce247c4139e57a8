"""The emulation of AMX's registers (`tiles=emulated`) computes what its instructions are declared to mean, exactly.

Its floats are those of the processor: products of bf16 run on integers, for which they are exact.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import mirlo
from mirlo import T
from mirlo.dialects.core.types import TensorType
from mirlo.passes.exact.commands import compare_program
from mirlo.passes.schedule.primitives.command_intrin import CommandIntrin
from mirlo.passes.schedule.primitives.commands import CommandMemory, CommandProgram, TileCommand
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.tensorize import INTRINSICS
from mirlo.runtime.object_loader import compile_llvm
from mirlo.targets.llvm.emulated_tiles import emulate_tiles

ROWS, COLUMNS, GROUPS = 16, 16, 16
SIZE = (35, 40, 27)
"""Rows, columns and groups of a product in tiles of 16 or less."""
INSTRUCTIONS = {"tdpbf16ps": ("bf16", "bf16"), "tdpbssd": ("i8", "i8"), "tdpbsud": ("i8", "u8"),
                "tdpbusd": ("u8", "i8"), "tdpbuud": ("u8", "u8")}  # fmt: skip
"""The element types of the factors."""
_CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_void_p, ctypes.c_int64] * 3)


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


def multiply(tile: tuple[int, int, int], kinds: tuple[str, str]) -> Any:
    """Return a product of matrices, of groups of elements along K."""
    rows, columns, groups = tile
    width, total = (2, T.f32) if kinds[0] == "bf16" else (4, T.i32)
    left, right = (getattr(T, kind) for kind in kinds)

    @mirlo.prim_func
    def multiply(
        x: T.Buffer[(rows, groups, width), left],
        w: T.Buffer[(groups, columns, width), right],
        y: T.Out[(rows, columns), total],
    ):
        for i, j, g, k in T.grid(rows, columns, groups, width):
            with T.block("multiply"):
                vi, vj, vg, vk = T.axes("SSRR", i, j, g, k)
                with T.init():
                    y[vi, vj] = 0
                y[vi, vj] += x[vi, vg, vk].cast(total) * w[vg, vj, vk].cast(total)

    return multiply


def configuration(rows: int, columns: int, groups: int) -> np.ndarray:
    """Return the rows and the bytes of a row of the three registers."""
    content = np.zeros(64, np.uint8)
    content[0] = 1
    content[16:22].view(np.uint16)[:] = 4 * columns, 4 * groups, 4 * columns
    content[48:51] = rows, rows, groups
    return content


def program(name: str, text: str) -> CommandProgram:
    """Return a product in tiles, each of which emulated instructions compute."""
    kinds = INSTRUCTIONS[name]
    intrin = CommandIntrin(f"amx.{name}", multiply((ROWS, COLUMNS, GROUPS), kinds))
    INTRINSICS[intrin.name] = intrin
    width = 2 if kinds[0] == "bf16" else 4
    s = Schedule.of(
        multiply(SIZE, kinds), TensorType.of((SIZE[0], SIZE[2], width), kinds[0]),
        TensorType.of((SIZE[2], SIZE[1], width), kinds[1]),
    )  # fmt: skip
    i, j, g, k = s.loops("multiply")
    outer = s.tile((i, j, g), (ROWS, COLUMNS, GROUPS))
    s.reorder(*outer, k)
    s.tensorize(outer[3], intrin.name)
    code = compile_llvm(text)

    def execute(commands: Sequence[TileCommand], memory: CommandMemory) -> None:
        x, w, y = (np.ascontiguousarray(memory.array(each)) for each in "xwy")
        for command in commands:
            rows, columns, groups, _ = command.extents
            (a, b), (c,) = command.reads, command.writes
            if command.is_first:
                start = c.address // 4
                for row in range(rows):
                    y[start + row * SIZE[1] : start + row * SIZE[1] + columns] = 0
            registers = configuration(rows, columns, groups)
            _CALL(code.address("multiply"))(
                registers.ctypes.data, x.ctypes.data + a.address, a.strides[0], w.ctypes.data + b.address,
                b.strides[2], y.ctypes.data + c.address, c.strides[0],
            )  # fmt: skip
        memory.set_array("y", y)

    rng = np.random.default_rng(0)
    inputs = {}
    if kinds[0] == "bf16":
        shapes = {"x": (SIZE[0], SIZE[2], width), "w": (SIZE[2], SIZE[1], width)}
        inputs = {each: rng.integers(-128, 129, size) for each, size in shapes.items()}
    return CommandProgram(name, s, execute, inputs)


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    known = dict(INTRINSICS)
    yield
    INTRINSICS.clear()
    INTRINSICS.update(known)


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_instructions_are_equal_to_what_they_mean(name: str) -> None:
    verdict = compare_program(program(name, emulate_tiles(module_of(name))))
    assert verdict.status == "equal", verdict


SIGNS, OTHER = {"s": "sext", "u": "zext"}, {"s": "u", "u": "s"}
FAULTS = [
    ("tdpbf16ps", "%a1 = extractelement <2 x i16> %ap, i32 1", "%a1 = extractelement <2 x i16> %ap, i32 0"),
    ("tdpbf16ps", "fadd <16 x float> %n0, %n1", "fadd <16 x float> %n0, %n0"),
    ("tdpbf16ps", "fadd <16 x float> %oldz, %bothz", "fadd <16 x float> %bothz, %bothz"),
    ("tdpbf16ps", "phi <16 x float> [zeroinitializer, %row], [%n1", "phi <16 x float> [%old, %row], [%n1"),
    *((name, "%pb, i64 %bo", "%pa, i64 %bo") for name in INSTRUCTIONS),
    *((name, "%groups = lshr i64 %deep, 2", "%groups = lshr i64 %deep, 3") for name in INSTRUCTIONS),
    *((name, "%o = shl i64 %i, 6\n  %cp", "%o = shl i64 %i, 5\n  %cp") for name in INSTRUCTIONS),
    *((name, "add <16 x i32> %n1, %m2", "add <16 x i32> %n0, %m2") for name in list(INSTRUCTIONS)[1:]),
    *((f"tdpb{a}{b}d", f"%wb3 = {SIGNS[b]}", f"%wb3 = {SIGNS[OTHER[b]]}") for a in "su" for b in "su"),
    *((f"tdpb{a}{b}d", f"%wa0 = {SIGNS[a]}", f"%wa0 = {SIGNS[OTHER[a]]}") for a in "su" for b in "su"),
]  # fmt: skip
"""Faults: the instruction, and what of its emulation is replaced by what."""


@pytest.mark.parametrize(("name", "right", "wrong"), FAULTS)
def test_a_fault_of_the_emulation_is_found(name: str, right: str, wrong: str) -> None:
    text = emulate_tiles(module_of(name))
    assert right in text
    faulty = text.replace("call void @tile.require", "; require").replace(right, wrong)
    assert compare_program(program(name, faulty)).status == "different"
