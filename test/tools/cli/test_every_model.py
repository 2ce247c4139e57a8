"""Commands over models of all kinds: each ends with a result, or with an error that is the user's."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import onnx
import pytest
from onnx import parser

from mirlo.tools.cli import main

COMMANDS: dict[str, tuple[str, ...]] = {
    "info": (), "check": (), "import": ("-o", "out.mlir"), "explain": (), "explorer": ("-o", "out.html"),
    "compile": ("-o", "out.mirlo"), "partition": ("--target", "onednn,llvm"),
}  # fmt: skip
OBJECTS = {
    "strings and tensors": """
      <ir_version: 9, opset_import: ["": 20]>
      g (float[3] x, float[3] s, string[3] y) => (float[3] t, string[3] u) { t = Add(x, s)  u = StringConcat(y, y) }""",
    "strings only": """
      <ir_version: 8, opset_import: ["": 17]>
      g (string[3] x) => (string[a] y) { y = StringNormalizer<case_change_action = "LOWER">(x) }""",
    "sequences": """
      <ir_version: 8, opset_import: ["": 17]>
      g (float[3] x, float[n] y) => (float[m] z, int64 n) {
        a = Exp(x)  s = SequenceConstruct(a, y)  n = SequenceLength(s)  i = Constant<value_int = 1>()
        e = SequenceAt(s, i)  z = Relu(e)
      }""",
    "optional values": """
      <ir_version: 8, opset_import: ["": 17]>
      g (float[3] x) => (float[3] z, bool h) {
        o = Optional(x)  h = OptionalHasElement(o)  e = OptionalGetElement(o)  z = Neg(e)
      }""",
}  # fmt: skip


def run(command: str, model: onnx.ModelProto, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run a command in this process; return its exit code and its standard error."""
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    code = main([command, str(path), *(str(folder / each) if "." in each else each for each in COMMANDS[command])])
    return code, capsys.readouterr().err


@pytest.mark.parametrize("kind", OBJECTS)
@pytest.mark.parametrize("command", COMMANDS)
def test_models_on_objects(command: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, errors = run(command, parser.parse_model(OBJECTS[kind]), tmp_path, capsys)
    is_refused = command == "partition" and code == 1
    assert code == 0 or (is_refused and "works on strings, sequences or optional values" in errors), errors


@cache
def node_cases() -> dict[str, onnx.ModelProto]:
    """Return the models of ONNX's suite of operators, by name."""
    from onnx.backend.test.case.node import collect_testcases

    return {case.name: case.model for case in collect_testcases(None) if case.model is not None}


@pytest.mark.sample(0)
@pytest.mark.parametrize("command", COMMANDS)
def test_models_of_the_suite(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An error is one of the user's: an operator that is not supported, a model that needs sizes."""
    wrong = {}
    for name, model in node_cases().items():
        code, errors = run(command, model, tmp_path, capsys)
        if code not in (0, 1) or "internal error" in errors or "this is a bug" in errors:
            wrong[name] = errors
    assert not wrong, wrong
