"""Random prim functions: raised to blocks, fused and scheduled, or kept as loops, they compute the same."""

from __future__ import annotations

import random

import numpy as np
import pytest

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import PrimView
from mirlo.frontends.script.same import same_ir

ROWS, COLUMNS = 6, 20


class _Generator:
    """Text of random expressions over the indices i, j and the buffers that are there to be read."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.buffers = {"x": (ROWS, COLUMNS), "w": (COLUMNS,), "s": (ROWS,)}

    def index(self, depth: int, size: int, names: str) -> str:
        """Return an index into a dim of a size."""
        choices = [f"{n} % {size}" for n in names] + [f"({n} * 3 + 1) % {size}" for n in names]
        choices += [f"T.min({n} // 2, {size - 1})" for n in names]
        if depth > 0:
            choices.append(f"T.max(T.min(k[{names[0]} % 4].cast('index'), {size - 1}), 0)")
        return self.random.choice(choices)

    def scalar(self, depth: int, names: str) -> str:
        if depth == 0 or self.random.random() < 0.15:
            return self.leaf(names)
        a, b = (self.scalar(depth - 1, names) for _ in range(2))
        return self.random.choice(
            [
                f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"T.max({a}, {b})", f"T.min({a}, {b})", f"T.tanh({a})",
                f"({a} if {b} > 0.25 else {b})", f"T.select({self.condition(depth - 1, names)}, {a}, {b})", f"-{a}",
                f"T.abs({a})", f"({a} / (T.abs({b}) + 1.0))", f"T.floor({a}).cast('i32').cast('f32')",
            ]
        )  # fmt: skip

    def condition(self, depth: int, names: str) -> str:
        a, b = self.leaf(names), self.scalar(depth, names)
        return self.random.choice(
            [f"{a} < {b}", f"not {a} >= {b}", f"{names[0]} > 2 and {a} != {b}", f"{a} > {b} or {names[-1]} == 1"]
        )

    def leaf(self, names: str) -> str:
        name = self.random.choice([*self.buffers, "", "index"])
        if not name:
            return f"T.f32({self.random.choice([0.5, -1.25, 2.0])})"
        if name == "index":
            return f"T.f32({self.random.choice(names)})"
        shape = self.buffers[name]
        plain = {ROWS: "i", COLUMNS: names[-1]}
        if self.random.random() < 0.6:
            return f"{name}[{', '.join(plain[d] for d in shape)}]"
        return f"{name}[{', '.join(self.index(1, d, names) for d in shape)}]"

    def nest(self, name: str, last: bool) -> list[str]:
        """Return a loop nest that fills a buffer."""
        kind = self.random.choice(["map"] if last else ["map", "map", "sum", "max"])
        if kind == "map":
            lines = [f"for i, j in T.grid({ROWS}, {COLUMNS}):", f"    {name}[i, j] = {self.scalar(3, 'ij')}"]
            self.buffers[name] = (ROWS, COLUMNS)
            return lines
        value = self.scalar(2, "ij")
        update = f"{name}[i] += {value}" if kind == "sum" else f"{name}[i] = T.max({name}[i], {value})"
        start = "0.0" if kind == "sum" else "-1000.0"
        lines = [
            f"for i in range({ROWS}):",
            f"    {name}[i] = {start}",
            f"    for j in range({COLUMNS}):",
            f"        {update}",
        ]
        self.buffers[name] = (ROWS,)
        return lines

    def module(self) -> tuple[str, str]:
        """Return the same function to be raised, and kept as loops."""
        lines: list[str] = []
        for number in range(self.random.randint(0, 2)):
            nest = self.nest(f"t{number}", False)
            shape = self.buffers[f"t{number}"]
            lines += [f"t{number} = T.alloc({shape}, 'f32')", *nest]
        lines += self.nest("y", True)
        body = "\n".join(f"        {line}" for line in lines)
        text = f"""
@mirlo.script
class Module:
    @T.prim_func(OPTIONS)
    def f(x: T.Buffer[({ROWS}, {COLUMNS}), "f32"], w: T.Buffer[({COLUMNS},), "f32"], s: T.Buffer[({ROWS},), "f32"],
          k: T.Buffer[(4,), "i64"], y: T.Out[({ROWS}, {COLUMNS}), "f32"]):
{body}
    @R.function
    def main(x: R.Tensor[({ROWS}, {COLUMNS}), "f32"], w: R.Tensor[({COLUMNS},), "f32"], s: R.Tensor[({ROWS},), "f32"],
             k: R.Tensor[(4,), "i64"]):
        return R.abs(R.call_tir(f, R.negative(x), w, s, k))
"""
        return text.replace("OPTIONS", ""), text.replace("OPTIONS", "buffers=True")


@pytest.mark.sample(4)
# The last ones read a tensor both by a map and by a computed index.
@pytest.mark.parametrize("seed", [*range(12), 21, 98])
def test_forms_agree(seed) -> None:
    raised, loops = _Generator(seed).module()
    generator = np.random.default_rng(seed)
    shapes = ((ROWS, COLUMNS), (COLUMNS,), (ROWS,))
    arrays = [generator.standard_normal(shape, dtype=np.float32) for shape in shapes]
    arrays.append(generator.integers(-3, 30, 4))
    modules = [mirlo.parse_script(text) for text in (raised, loops)]
    assert "tir.block" in str(modules[0]) and "tir.block" not in str(modules[1])
    results = [mirlo.compile(module)(*arrays) for module in modules]
    # A comparison of nearly equal numbers may fall either way: a few elements may differ.
    close = np.isclose(*results, rtol=1e-4, atol=1e-4)
    assert close.mean() > 0.95, raised
    for module in modules:
        text = mirlo.script_of(module)
        assert "mlir(" not in text
        assert same_ir(module, mirlo.parse_script(text, context=module.context)), text


NAMES = ["x0", "x1", "y0", "y1", "t2", "t4", "t5", "i0", "v1", "s0", "r0", "sum", "range", "a", "total", "_", "lambda"]
"""Names that the printer gives to buffers, loops, axes and scalars, and others."""
TEXTS = [*NAMES, "", "", "two words", "9", "T", "mirlo"]


def _prim(module: ir.Module) -> ir.Operation:
    return next(op.operation for op in module.body.operations if "tir.prim_func" in op.operation.attributes)


def _names(module: ir.Module) -> list[str] | None:
    attributes = _prim(module).attributes
    return [text.value for text in attributes["tir.names"]] if "tir.names" in attributes else None


@pytest.mark.sample(5)
@pytest.mark.parametrize("seed", range(20))
def test_names_survive(seed) -> None:
    """Scripts say what buffers are called, whatever that is; the text reads back to the same module, names included."""
    generator = random.Random(seed)
    module = mirlo.parse_script(_Generator(seed).module()[0])
    function = _prim(module)
    count = len(PrimView(function).default_names)
    for pool in (NAMES, TEXTS):
        chosen = generator.choices(pool, k=count) if pool is TEXTS else generator.sample(pool, count)
        with module.context:
            function.attributes["tir.names"] = ir.ArrayAttr.get([ir.StringAttr.get(name) for name in chosen])
        text = mirlo.script_of(module)
        assert "mlir(" not in text
        again = mirlo.parse_script(text, context=module.context)
        assert _names(again) == chosen, text
        assert same_ir(module, again), text
    del function.attributes["tir.names"]
    again = mirlo.parse_script(mirlo.script_of(module), context=module.context)
    assert _names(again) is None and same_ir(module, again)


def test_names_that_look_like_the_printers_are_kept() -> None:
    text = """
@T.prim_func
def f(x1: T.Buffer[(4,), "f32"], t0: T.Buffer[(4,), "f32"], y0: T.Out[(4,), "f32"]):
    y7 = T.alloc((4,), "f32")
    for i in range(4):
        y7[i] = x1[i] * t0[i]
    for i in range(4):
        y0[i] = x1[i] + y7[i]
"""
    assert _names(mirlo.parse_script(text)) == ["x1", "t0", "y7", ""]  # the output has the name of its place
