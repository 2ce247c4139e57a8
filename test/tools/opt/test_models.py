"""`mirlo-opt` of an ONNX model says what to do."""

from pathlib import Path

import pytest
from commands import python


@pytest.mark.parametrize("content", [b"\x08\x07\x12\xff\xfe", b"\x08\x07\x12\x01a"], ids=["bytes", "text by chance"])
def test_an_onnx_model(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a model.onnx").write_bytes(content)
    done = python("-m", "mirlo.tools.opt", "a model.onnx", cwd=tmp_path)
    assert done.returncode == 1
    assert (
        "a model.onnx: not IR, but an ONNX model by its name: 'mirlo import 'a model.onnx'' prints the IR of one"
        in done.stderr
    )
