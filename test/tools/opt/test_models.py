"""`mirlo-opt` of an ONNX model says what to do."""

from pathlib import Path

from commands import python


def test_an_onnx_model(tmp_path: Path) -> None:
    (tmp_path / "a model.onnx").write_bytes(b"\x08\x07\x12\xff\xfe")
    done = python("-m", "mirlo.tools.opt", "a model.onnx", cwd=tmp_path)
    assert done.returncode == 1
    assert (
        "a model.onnx: not IR, but an ONNX model by its name: 'mirlo import 'a model.onnx'' prints the IR of one"
        in done.stderr
    )
