"""Functions of a graph that call each other compile; recursion is an error; rules for nodes count in regions."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.extend.codegen import CodeGenerator, is_op
from mirlo.extend.ops import elementwise
from mirlo.extend.target import Target, register_target
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.passes.targets import CompileOptions

KIND = "tensor<4xf32>"
X = np.array([0.0, -1.0, 0.5, 0.25], np.float32)


def program(seed: int) -> tuple[str, np.ndarray]:
    """Return functions that call later ones, some several times, and their results for X."""
    draw = random.Random(seed)
    count = draw.randint(2, 5)
    bodies: list[list[str]] = []
    for i in range(count):
        steps = ["relax.tanh", "relax.sin"][: draw.randint(1, 2)]
        callees = [f"f{draw.randrange(i + 1, count)}" for _ in range(draw.randint(0, 2))] if i + 1 < count else []
        bodies.append(draw.sample([*steps, *callees], len(steps) + len(callees)))
    if not any(step.startswith("f") for step in bodies[0]):
        bodies[0].append("f1")

    def value(index: int, x: np.ndarray) -> np.ndarray:
        for step in bodies[index]:
            x = value(int(step[1:]), x) if step.startswith("f") else getattr(np, step.removeprefix("relax."))(x)
        return x

    text = ""
    for i, body in enumerate(bodies):
        lines = []
        for n, step in enumerate(body):
            before = f"%{n - 1}" if n else "%x"
            call = f"func.call @{step}({before})" if step.startswith("f") else f'"{step}"({before})'
            lines.append(f"  %{n} = {call} : ({KIND}) -> {KIND}")
        head = "@main" if i == 0 else f"private @f{i}"
        text += f"func.func {head}(%x: {KIND}) -> {KIND} {{\n" + "\n".join(lines)
        text += f"\n  return %{len(body) - 1} : {KIND}\n}}\n"
    return text, value(0, X.astype(np.float64))


@pytest.mark.parametrize("seed", range(8))
def test_functions_that_call_each_other(seed: int, tmp_path: Path) -> None:
    text, expected = program(seed)
    (tmp_path / "model.mlir").write_text(text)
    np.testing.assert_allclose(mirlo.compile(tmp_path / "model.mlir", cache=False)(X), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("first", ["", "inline", "inline-calls"])
def test_calls_that_are_left_by_other_passes(first: str) -> None:
    """Whatever makes the calls, and when: none is left once memory is planned."""
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(program(3)[0])
        (first + Pipeline.named("llvm", CompileOptions())).run(module, Session())
        assert re.search(r"call @f\d", program(3)[0]) and not re.search(r"call @f\d", str(module))


def test_recursion(tmp_path: Path) -> None:
    text, _ = program(0)
    last = text.rindex("func.func private @")
    name = text[last:].split("@")[1].split("(")[0]
    looped = text[:last] + text[last:].replace('"relax.tanh"(%x)', f"func.call @{name}(%x)").replace(
        '"relax.sin"(%x)', f"func.call @{name}(%x)"
    )
    (tmp_path / "model.mlir").write_text(looped)
    with pytest.raises(mirlo.MirloError, match=f"functions call each other without end: .*@{name} → @{name}"):
        mirlo.compile(tmp_path / "model.mlir", cache=False)


@dataclass(frozen=True)
class Unit(CodeGenerator):
    """A unit whose code Mirlo makes."""

    name = "inlineunit"
    pipeline = "legalize"

    def patterns(self):
        return [("tanh", is_op("relax.tanh"))]


def test_a_rule_for_a_node_in_a_region(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    register_target(Target("inlineunit", "of a test", codegen=Unit))
    (tmp_path / "model.mlir").write_text(
        f"func.func @main(%x: {KIND}) -> {KIND} {{\n"
        f'  %0 = "relax.tanh"(%x) : ({KIND}) -> {KIND} loc("fc0")\n'
        f'  %1 = "relax.tanh"(%0) : ({KIND}) -> {KIND} loc("fc1")\n  return %1 : {KIND}\n}}\n'
    )

    def rule(op, b):
        return elementwise(op, b, [op.x], lambda x: x * 7.0)

    exe = mirlo.compile(tmp_path / "model.mlir", "inlineunit,llvm", legalize={"node:fc0": rule}, cache=False)
    np.testing.assert_allclose(exe(X), np.tanh(7 * X), rtol=1e-5)
    assert "never tried" not in capfd.readouterr().err
