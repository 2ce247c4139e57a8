"""Damaged bytecode is an error, never the end of the process."""

from __future__ import annotations

import io
import os
import random
from pathlib import Path

import pytest

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.driver.bytecode import read_in_child
from mirlo.passes.files import FileError
from mirlo.tools.opt import main

IR = """
func.func @main(%x: tensor<4x3xf32>) -> tensor<4x2xf32> {
  %w = "relax.constant"() {value = dense<[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]> : tensor<3x2xf32>}
     : () -> tensor<3x2xf32>
  %0 = "relax.matmul"(%x, %w) : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32>
  %1 = "relax.relu"(%0) : (tensor<4x2xf32>) -> tensor<4x2xf32>
  return %1 : tensor<4x2xf32>
}
"""
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the guard tries bytecode out in a forked process")


def bytecode() -> bytes:
    with make_context():
        module = ir.Module.parse(IR)
        buffer = io.BytesIO()
        module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def damaged(seed: int, content: bytes) -> bytes:
    """Return the content with one to four bytes changed, or cut off somewhere."""
    source, made = random.Random(seed), bytearray(content)
    if seed % 10 == 0:
        return content[: source.randrange(5, len(content))]
    for _ in range(source.choice([1, 1, 2, 4])):
        made[source.randrange(4, len(made))] = source.randrange(256)
    return bytes(made)


@pytest.mark.sample(0)
@needs_fork
def test_byte_flips(tmp_path: Path, capsys: pytest.CaptureFixture[str], whole: bool) -> None:
    content, path = bytecode(), tmp_path / "module.mlirbc"
    for seed in range(60 if whole else 25):
        path.write_bytes(damaged(seed, content))
        code = main([str(path), "--cse"])
        told = capsys.readouterr().err
        assert code == (1 if "error:" in told else 0)
        assert "internal error" not in told


@needs_fork
def test_a_reader_that_dies_is_an_error() -> None:
    with pytest.raises(FileError, match="^m.mlirbc: corrupt bytecode: write the file anew"):
        read_in_child(os.abort, "m.mlirbc")


def test_good_bytecode_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "module.mlirbc"
    path.write_bytes(bytecode())
    assert main([str(path)]) == 0
    assert '"relax.matmul"' in capsys.readouterr().out
