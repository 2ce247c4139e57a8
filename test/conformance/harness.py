"""Run one intrinsic, lowered by the rules of the llvm target, over numpy arrays."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mirlo.dialects.bindings import execution_engine, ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.dtypes import dtype
from mirlo.dialects.tir.intrinsics import INTRINSICS
from mirlo.passes.lower.intrinsics import Lowering
from mirlo.targets.llvm import intrinsics as _rules  # noqa: F401  (registers the rules)
from mirlo.targets.llvm.pipeline import lower_to_llvm
from mirlo.targets.llvm.processor import host_processor


@dataclass(frozen=True)
class Shape:
    """How many elements an intrinsic is applied to at once."""

    lanes: int = 16
    """0 for scalars."""
    rows: int = 1
    """More than 1 for a vector of two dimensions."""

    def of(self, element: str) -> str:
        """Return the MLIR type of an operand."""
        if not self.lanes:
            return element
        columns = f"{self.lanes // self.rows}x{element}"
        return f"vector<{self.rows}x{columns}>" if self.rows > 1 else f"vector<{columns}>"


VECTORS, SCALARS, TILES = Shape(), Shape(lanes=0), Shape(rows=2)


def loop_text(name: str, dtypes: Sequence[str], count: int, shape: Shape = VECTORS) -> str:
    """Return a function that applies `tir.<name>` to `count` elements of its buffers."""
    row = INTRINSICS[name]
    elements = [dtype(d).mlir for d in dtypes]
    result = "i1" if row.result == "bool" else elements[0]
    stored = "i8" if row.result == "bool" else result
    flat = Shape(shape.lanes)
    access = "vector" if shape.lanes else "memref"
    lines = []

    def buffer_and_value(element: str) -> str:
        return f"memref<{count}x{element}>" + (f", {flat.of(element)}" if shape.lanes else "")

    for i, element in enumerate(elements):
        lines.append(f"%x{i} = {access}.load %p{i}[%i] : {buffer_and_value(element)}")
        if shape.rows > 1:
            lines.append(f"%t{i} = vector.shape_cast %x{i} : {flat.of(element)} to {shape.of(element)}")
    prefix = "%t" if shape.rows > 1 else "%x"
    operands = ", ".join(f"{prefix}{i}" for i in range(len(elements)))
    types = ", ".join(shape.of(element) for element in elements)
    lines.append(f'%y = "tir.{name}"({operands}) : ({types}) -> {shape.of(result)}')
    value = "%y"
    if stored != result:
        lines.append(f"%z = arith.extui %y : {shape.of(result)} to {shape.of(stored)}")
        value = "%z"
    if shape.rows > 1:
        lines.append(f"%flat = vector.shape_cast {value} : {shape.of(stored)} to {flat.of(stored)}")
        value = "%flat"
    lines.append(f"{access}.store {value}, %out[%i] : {buffer_and_value(stored)}")
    parameters = ", ".join(f"%p{i}: memref<{count}x{e}>" for i, e in enumerate(elements))
    body = "\n    ".join(lines)
    return f"""
func.func @apply({parameters}, %out: memref<{count}x{stored}>) attributes {{no_inline}} {{
  %zero = arith.constant 0 : index
  %step = arith.constant {shape.lanes or 1} : index
  %count = arith.constant {count} : index
  scf.for %i = %zero to %count step %step {{
    {body}
  }}
  return
}}"""


def lowered(text: str) -> Any:
    """Return the module of this text in the LLVM dialect, with the context current."""
    module = ir.Module.parse(text)
    Lowering(("llvm", "default")).run(module.operation)
    lower_to_llvm(module, host_processor())
    return module


class Compiled:
    """`tir.<name>` over arrays of one length."""

    def __init__(self, name: str, dtypes: Sequence[str], count: int, shape: Shape = VECTORS, keep_object: bool = False):
        row = INTRINSICS[name]
        self.count = count
        self.dtypes = [dtype(d).to_numpy() for d in dtypes]
        self.out_dtype = np.dtype(np.bool_) if row.result == "bool" else self.dtypes[0]
        self._context = make_context()
        with self._context, ir.Location.unknown():
            module = lowered(loop_text(name, dtypes, count, shape))
            self._engine = execution_engine.ExecutionEngine(module, opt_level=2, enable_object_dump=keep_object)
        function: Callable[..., Any] = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._engine.raw_lookup("apply"))
        self._function = function

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        out = np.empty(self.count, self.out_dtype)
        self.into(out, *arrays)
        return out

    def into(self, out: np.ndarray, *arrays: np.ndarray) -> None:
        for array, wanted in zip(arrays, self.dtypes, strict=True):
            if array.dtype != wanted or array.shape != (self.count,) or not array.flags.c_contiguous:
                expected = f"{self.count} contiguous elements of {wanted}"
                raise ValueError(f"expected {expected}, got {array.dtype}{array.shape}")
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*arrays, out)]
        packed = (ctypes.c_void_p * len(pointers))(*(ctypes.addressof(p) for p in pointers))
        self._function(ctypes.addressof(packed))

    def object_file(self, path: Path) -> bytes:
        """Return the object code, of one compiled with `keep_object`."""
        self._engine.dump_to_object_file(str(path))
        return path.read_bytes()


def undefined_symbols(elf: bytes) -> list[str]:
    """Names that 64-bit little-endian ELF object code takes from elsewhere: the functions that it calls."""
    section_offset = struct.unpack_from("<Q", elf, 0x28)[0]
    entry_size, count = struct.unpack_from("<HH", elf, 0x3A)
    sections = [struct.unpack_from("<IIQQQQII", elf, section_offset + i * entry_size) for i in range(count)]
    found = []
    for _, kind, _, _, offset, size, link, _ in sections:
        if kind != 2:  # the symbol table
            continue
        names = sections[link][4]
        for at in range(offset + 24, offset + size, 24):
            name, _, _, section = struct.unpack_from("<IBBH", elf, at)
            if section == 0:
                found.append(elf[names + name : elf.index(b"\0", names + name)].decode())
    return found
