"""The messages of files are those of `onnx`, whether or not it is imported, and a compilation imports no more of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx_models import F32, make_model, node

from mirlo.frontends.onnx.model import messages


def _run(code: str, *arguments: object) -> None:
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_compilation_does_not_import_onnx(tmp_path: Path) -> None:
    model = make_model([node("Relu", "x", "y")], {"x": (F32, [4])}, ["y"])
    onnx.save(model, tmp_path / "m.onnx")
    code = (
        "import sys, mirlo\nmirlo.compile(sys.argv[1], cache=False)\n"
        "loaded = [m for m in sys.modules if m.split('.')[0] == 'onnx' or m == 'importlib.metadata']\n"
        "assert not loaded, loaded\n"
        "from mirlo.frontends.onnx.model import messages\n"
        "import onnx, onnx.helper, pickle\n"
        "assert messages().ModelProto is onnx.ModelProto\n"
        "proto = onnx.load(sys.argv[1])\n"
        "assert pickle.loads(pickle.dumps(proto)) == proto and onnx.helper.printable_graph(proto.graph)\n"
        "assert onnx.onnx_ml_pb2.ModelProto is onnx.ModelProto\n"
        "mirlo.compile(proto, cache=False)\n"
    )
    _run(code, tmp_path / "m.onnx")


def test_an_onnx_that_is_imported_is_taken() -> None:
    messages.cache_clear()
    assert messages() is onnx and messages().ModelProto is onnx.ModelProto


def test_a_package_without_that_file_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirlo.frontends.onnx.model._MODULE", "no_such_file")
    monkeypatch.delitem(sys.modules, "onnx")
    monkeypatch.setattr("importlib.import_module", lambda name: f"imported {name}")
    messages.cache_clear()
    assert messages() == "imported onnx"
    messages.cache_clear()
