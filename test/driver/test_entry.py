"""The model is the marked function, or `@main`, wherever it stands in a module; what it calls is part of it."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

import mirlo
from mirlo.passes.entry import EntryError
from mirlo.tools.cli import main
from mirlo.tools.opt import main as opt

KIND = "tensor<4xf32>"
FUNCTIONS = {
    "main": f"""
func.func @main(%x: {KIND}, %y: {KIND}) -> ({KIND}, {KIND}) {{
  %0 = func.call @first(%x) : ({KIND}) -> {KIND}
  %1 = func.call @second(%0, %y) : ({KIND}, {KIND}) -> {KIND}
  return %1, %0 : {KIND}, {KIND}
}}""",
    "first": f"""
func.func @first(%x: {KIND}) -> {KIND} {{
  %0 = "relax.exp"(%x) : ({KIND}) -> {KIND}
  return %0 : {KIND}
}}""",
    "second": f"""
func.func @second(%x: {KIND}, %y: {KIND}) -> {KIND} {{
  %0 = func.call @first(%y) : ({KIND}) -> {KIND}
  %1 = "relax.subtract"(%x, %0) : ({KIND}, {KIND}) -> {KIND}
  return %1 : {KIND}
}}""",
    "unused": f"""
func.func @unused(%x: {KIND}) -> {KIND} {{
  return %x : {KIND}
}}""",
}
X, Y = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("order", list(permutations(FUNCTIONS))[::4], ids="-".join)
def test_order(order: tuple[str, ...], target: str, tmp_path: Path) -> None:
    (tmp_path / "model.mlir").write_text("".join(FUNCTIONS[name] for name in order))
    exe = mirlo.compile(tmp_path / "model.mlir", target, cache=False)
    result, first = exe(X, Y)
    np.testing.assert_allclose(first, np.exp(X), rtol=1e-6)
    np.testing.assert_allclose(result, np.exp(X) - np.exp(Y), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_the_only_root_needs_no_name(target: str, tmp_path: Path) -> None:
    text = "".join(FUNCTIONS[name].replace("@main", "@network") for name in ("second", "first", "main"))
    (tmp_path / "model.mlir").write_text(text)
    np.testing.assert_allclose(
        mirlo.compile(tmp_path / "model.mlir", target, cache=False)(X, Y)[1], np.exp(X), rtol=1e-6
    )


def test_several_roots(tmp_path: Path) -> None:
    text = FUNCTIONS["unused"] + "".join(
        FUNCTIONS[name].replace("@main", "@network") for name in ("second", "first", "main")
    )
    (tmp_path / "model.mlir").write_text(text)
    with pytest.raises(EntryError, match=r"several functions .*: @unused, @network; .* call it @main"):
        mirlo.compile(tmp_path / "model.mlir", cache=False)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_scripts(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.py").write_text(
        """
@ir_module
class Model:
    @R.function
    def half(x: R.Tensor[(4,), "f32"]) -> R.Tensor[(4,), "f32"]:
        return R.multiply(x, R.const(0.5, "f32"))

    @R.function
    def main(x: R.Tensor[(4,), "f32"]) -> R.Tensor[(4,), "f32"]:
        return R.add(half(x), x)
"""
    )
    assert main(["run", str(tmp_path / "model.py"), "--target", target, "--no-cache"]) == 0
    exe = mirlo.compile(tmp_path / "model.py", target, cache=False)
    np.testing.assert_allclose(exe(X), 1.5 * X, rtol=1e-6)


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("name", ["main", "network"])
@pytest.mark.parametrize("order", [("first", "unused", "second", "main"), ("main", "second", "first", "unused")])
def test_planned_modules(order: tuple[str, ...], name: str, target: str, tmp_path: Path) -> None:
    """A planned file is compiled to the model, not to another public function in it."""
    text = "".join(FUNCTIONS[each] for each in order)
    text = text.replace("@main", f"@{name}")
    if name != "main":
        text = text.replace(f"-> ({KIND}, {KIND}) {{", f"-> ({KIND}, {KIND}) attributes {{relax.entry}} {{")
        text += FUNCTIONS["unused"].replace("@unused", "@main")
    (tmp_path / "model.mlir").write_text(text)
    planned = tmp_path / "planned.mlir"
    assert opt([f"--pipeline={target}", str(tmp_path / "model.mlir"), "-o", str(planned)]) == 0
    assert planned.read_text().count("relax.entry") == 1
    result, first = mirlo.compile(planned, target, pipeline="", cache=False)(X, Y)
    np.testing.assert_allclose(first, np.exp(X), rtol=1e-6)
    np.testing.assert_allclose(result, np.exp(X) - np.exp(Y), rtol=1e-5, atol=1e-6)


def test_lowered_modules(tmp_path: Path) -> None:
    (tmp_path / "model.mlir").write_text("".join(FUNCTIONS[each] for each in ("second", "first", "unused", "main")))
    lowered = tmp_path / "lowered.mlir"
    assert opt(["--pipeline=llvm:llvm-dialect", str(tmp_path / "model.mlir"), "-o", str(lowered)]) == 0
    assert "@mirlo_entry" in lowered.read_text()


def test_two_marks(tmp_path: Path) -> None:
    marked = FUNCTIONS["unused"].replace(f"-> {KIND} {{", f"-> {KIND} attributes {{relax.entry}} {{")
    (tmp_path / "model.mlir").write_text(marked + marked.replace("unused", "other"))
    with pytest.raises(EntryError, match="several functions are marked as the model: @unused, @other; expected"):
        mirlo.compile(tmp_path / "model.mlir", cache=False)
