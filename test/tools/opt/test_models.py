"""`mirlo-opt` of an ONNX model says what to do."""

from pathlib import Path

import pytest
from commands import python

from mirlo.tools.opt import main


@pytest.mark.sample(0)
@pytest.mark.parametrize("content", [b"\x08\x07\x12\xff\xfe", b"\x08\x07\x12\x01a"], ids=["bytes", "text by chance"])
def test_an_onnx_model(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a model.onnx").write_bytes(content)
    done = python("-m", "mirlo.tools.opt", "a model.onnx", cwd=tmp_path)
    assert done.returncode == 1
    assert (
        "a model.onnx: not IR, but an ONNX model by its name: 'mirlo import 'a model.onnx'' prints the IR of one"
        in done.stderr
    )


def test_a_file_is_written_anew_with_all_modules(tmp_path: Path) -> None:
    function = "func.func @f{}(%x: tensor<4xf32>) -> tensor<4xf32> {{ return %x : tensor<4xf32> }}\n"
    (tmp_path / "m.mlir").write_text("// -----\n".join(map(function.format, range(3))))
    written = []
    for _ in range(2):
        assert (
            main([str(tmp_path / "m.mlir"), "--split-input-file", "--canonicalize", "-o", str(tmp_path / "o.mlir")])
            == 0
        )
        written.append((tmp_path / "o.mlir").read_text())
    assert written[0] == written[1]
    assert [part.count("func.func @f") for part in written[0].split("// -----")] == [1, 1, 1]
