"""Code generators whose regions are native code, for tests: a unit for products, and loops in C for the rest.

`unit` makes bytes for a driver, or functions in C or object code, as its option says; `shifter` makes C source.
"""

from __future__ import annotations

import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mirlo.extend.codegen import CodeGenerator, ExternalModule, is_op, wildcard
from mirlo.extend.runtime import NativeCode
from mirlo.extend.target import Target, option, register_target
from mirlo.passes.byoc.view import ExternalFunction
from mirlo.targets.c.compiler import find_compiler
from mirlo.targets.llvm.library.sources import RUN_TIME_FOLDER
from mirlo.targets.llvm.processor import host_processor

DRIVER = Path(__file__).with_name("unit_driver.c").read_text(encoding="utf-8")
"""A driver that computes on the processor: `unit_run`."""
DRIVER_NAME = "unit_run"


def program_of(function: ExternalFunction, constants: list[str]) -> bytes:
    """Return a region as commands of the unit: each multiplies two tensors of rank 2, and may clip the result."""
    places = {value: i for i, value in enumerate(function.inputs)}
    places |= {v: -1 - constants.index(v.constant) for v in function.constants if v.constant is not None}
    count = len(function.inputs)
    outputs = {value: count + i for i, value in enumerate(function.outputs)}
    commands, scratch = [], 0
    for step in function.steps:
        lhs, rhs = step.nodes[0].inputs
        result = step.nodes[-1].output
        inner, columns = lhs.type.shape[1], rhs.type.shape[1]
        place = outputs.get(result)
        if place is None:
            place, scratch = 1000 + scratch, scratch + columns
        places[result] = place
        commands.append((places[lhs], places[rhs], place, len(step.nodes) - 1, inner, columns))
    words = [len(commands), scratch, count + len(outputs), *(word for command in commands for word in command)]
    return struct.pack(f"<{len(words)}i", *words)


@dataclass(frozen=True)
class Unit(CodeGenerator):
    """Products of f32, with a relu after them, of any number of rows."""

    name = "unit"
    guarded = False
    form: str = option("driver", "driver, shipped (with its driver), source, object or python")
    damage: str = option("", "what is wrong with the code: symbol, triple, size")

    def patterns(self):
        matmul = is_op("relax.matmul")(wildcard(), wildcard()).has_dtype("f32").named("matmul")
        return [("matmul_relu", is_op("relax.relu")(matmul), fits), ("matmul", matmul, fits)]

    def codegen(self, module: ExternalModule) -> NativeCode:
        constants = list(module.constants)
        programs = {function.name: program_of(function, constants) for function in module.functions}
        workspaces = {}
        for function in module.functions:
            inside = [s.nodes[-1].output for s in function.steps if s.nodes[-1].output not in function.outputs]
            if inside:
                workspaces[function.name] = sum(4 * v.type.shape[0] * v.type.shape[1] for v in inside)
        if self.damage == "size":
            workspaces = dict.fromkeys(module.names, "rows*4")
        code = {"programs": programs, "workspaces": workspaces, "params": constants, "errors": {77: "the unit is off"}}
        if self.form == "driver":
            return NativeCode(driver=DRIVER_NAME, simulator={"driver.c": DRIVER}, **code)
        if self.form == "shipped":
            return NativeCode(driver=DRIVER_NAME, sources={"driver.c": DRIVER}, **code)
        entries = "".join(
            f"int {name}(const mirlo_region *r, DLTensor **t, int64_t n) {{ return unit_run(r, t, n); }}\n"
            for name in module.names
        )
        text = DRIVER.replace("int unit_run(", "static int unit_run(", 1) + entries
        if self.damage == "symbol":
            text = text.replace("int unit_0(", "int other_0(")
        if self.form == "source":
            return NativeCode(sources={"unit.c": text}, **code)
        triple = "riscv64-unknown-linux-gnu" if self.damage == "triple" else host_processor().triple
        return NativeCode(objects={"unit.o": compile_object(text)}, triple=triple, **code)


def fits(match) -> bool:
    """Take products of matrices whose inner dims are static."""
    matmul = match.op("matmul")
    shapes = (matmul.lhs.shape, matmul.rhs.shape)
    static = all(isinstance(dim, int) for dim in (shapes[0][1:] + shapes[1]))
    return static and len(shapes[0]) == len(shapes[1]) == 2 and not (matmul.transpose_lhs or matmul.transpose_rhs)


def compile_object(text: str, command: tuple[str, ...] = ()) -> bytes:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "unit.c").write_text(text)
        compiler = command or (find_compiler(),)
        flags = ["-O1", "-fPIC", f"-I{RUN_TIME_FOLDER}", "-c", "unit.c", "-o", "unit.o"]
        subprocess.run([*compiler, *flags], cwd=folder, check=True)
        return (folder / "unit.o").read_bytes()


@dataclass(frozen=True)
class Shifter(CodeGenerator):
    """Negations, as loops in C: a function for each region, of any shape."""

    name = "shifter"
    guarded = False

    def patterns(self):
        return [("negate", is_op("relax.negative")(wildcard()).has_dtype("f32"))]

    def codegen(self, module: ExternalModule) -> NativeCode:
        text = '#include "shifter.h"\n'
        for function in module.functions:
            sign = (-1) ** len(function.nodes)
            text += (
                f"int {function.name}(const mirlo_region *region, DLTensor **tensors, int64_t count) {{\n"
                f"  (void)region;\n  return scale(tensors[0], tensors[count - 1], {sign});\n}}\n"
            )
        return NativeCode(sources={"shifter.c": text, "shifter.h": SCALE})


SCALE = """#include "mirlo.h"
static int scale(const DLTensor *from, DLTensor *to, float factor) {
  const float *x = (const float *)((const char *)from->data + from->byte_offset);
  float *y = (float *)((char *)to->data + to->byte_offset);
  int64_t count = 1, i;
  for (i = 0; i < from->ndim; ++i) count *= from->shape[i];
  for (i = 0; i < count; ++i) y[i] = factor * x[i];
  return 0;
}
"""

UNIT = Target("unit", "a unit for products", codegen=Unit)
SHIFTER = Target("shifter", "loops in C", codegen=Shifter)


def register_units() -> None:
    """Register both targets."""
    register_target(UNIT)
    register_target(SHIFTER)
