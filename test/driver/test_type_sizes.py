"""Types and constants of IR that memory does not hold are an error of the file, whatever the command."""

from __future__ import annotations

from pathlib import Path

import pytest

import mirlo
from mirlo.driver.type_sizes import TypeSizeError
from mirlo.tools import cli, opt

TYPE = "tensor<4611686018427387904x4611686018427387904xf32>"
TEXT = f"""func.func @main(%x: {TYPE}) -> {TYPE} {{
  %y = "relax.relu"(%x) : ({TYPE}) -> {TYPE}
  return %y : {TYPE}
}}
"""
EXPECTED = f"m.mlir:1:1: {TYPE}: a dim of 4611686018427387904 elements is beyond any memory: use smaller dims"


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "m.mlir").write_text(TEXT)
    return str(tmp_path / "m.mlir")


def test_compiling(path: str) -> None:
    with pytest.raises(TypeSizeError, match="beyond any memory"):
        mirlo.compile(path, cache=False)


def test_commands(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", path]) == 1
    assert EXPECTED in capsys.readouterr().err
    assert opt.main([path, "--pipeline=llvm"]) == 1
    assert "internal" not in capsys.readouterr().err


@pytest.mark.parametrize("flag", ("--fold-constant", "--emit-script"))
def test_constants_without_memory(tmp_path: Path, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    kind = f"tensor<{1 << 50}xf32>"
    (tmp_path / "m.mlir").write_text(f"""func.func @main() -> {kind} {{
  %x = "relax.constant"() {{value = dense<1.0> : {kind}}} : () -> {kind}
  %y = "relax.relu"(%x) : ({kind}) -> {kind}
  return %y : {kind}
}}
""")
    assert opt.main([str(tmp_path / "m.mlir"), flag]) == 1
    error = capsys.readouterr().err
    assert "not enough memory for this module: Unable to allocate" in error and "bug" not in error
