"""Programs of TOSA and models of TensorFlow Lite: states, dynamic sizes, other formats, plug-ins, errors."""

from __future__ import annotations

import random
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from mirlo_tflite.forms import TFLITE, TOSA
from mirlo_tflite.registry import CONVERTERS, converter
from models import Graph, model

import mirlo
from mirlo.extend.command import main

KIND = "tensor<2xf32>"
COUNTER = f"""module {{
  tosa.variable @seen = dense<0.5> : {KIND}
  tosa.variable @fixed = dense<[1.0, 2.0]> : {KIND}
  func.func @main(%x: {KIND}) -> {KIND} {{
    %0 = tosa.variable_read @seen : {KIND}
    %1 = tosa.variable_read @fixed : {KIND}
    %2 = tosa.add %0, %x : ({KIND}, {KIND}) -> {KIND}
    tosa.variable_write @seen, %2 : {KIND}
    %3 = tosa.variable_read @seen : {KIND}
    %4 = tosa.sub %3, %1 : ({KIND}, {KIND}) -> {KIND}
    return %4 : {KIND}
  }}
}}"""
EMPTY = model(Graph([], [], [], []))
PYTHON = sys.executable
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a program to a file."""

    def written(text: str) -> Path:
        path = tmp_path / "program.mlir"
        path.write_text(text)
        return path

    return written


def test_variables_are_inputs_and_outputs(write: Write) -> None:
    path = write(COUNTER)
    executable, states = mirlo.compile(path, cache=False), mirlo.initial_states(path)
    assert {name: state.tolist() for name, state in states.items()} == {"seen": [0.5, 0.5]}
    x, state = np.ones(2, np.float32), states["seen"]
    for call in range(1, 4):
        result, state = executable(x, state)
        np.testing.assert_array_equal(state, [0.5 + call] * 2)
        np.testing.assert_array_equal(result, [call - 0.5, call - 1.5])


def test_dims_that_are_not_known_are_dynamic(write: Write) -> None:
    path = write(
        "func.func @main(%x: tensor<?x4xf32>) -> tensor<?xf32> {"
        "%s = tosa.const_shape {values = dense<-1> : tensor<1xindex>} : () -> !tosa.shape<1> "
        "%0 = tosa.abs %x : (tensor<?x4xf32>) -> tensor<?x4xf32> "
        "%1 = tosa.reshape %0, %s : (tensor<?x4xf32>, !tosa.shape<1>) -> tensor<?xf32> return %1 : tensor<?xf32> }"
    )
    executable = mirlo.compile(path, cache=False)
    for rows in (1, 3):
        x = -np.arange(4.0 * rows, dtype=np.float32).reshape(rows, 4)
        np.testing.assert_array_equal(executable(x), -x.reshape(-1))


def test_a_plug_in_converts_custom_operators(write: Write) -> None:
    attributes = 'operator_name = "twice", domain_name = "acme", implementation_attrs = "\\02\\00"'
    path = write(f"func.func @main(%x: {KIND}) -> {KIND} {{ "
                 f"%0 = tosa.custom %x {{{attributes}}} : ({KIND}) -> {KIND} return %0 : {KIND} }}")  # fmt: skip
    with pytest.raises(mirlo.MirloError, match=r"is the operator 'acme.twice'.*tosa_converter\('acme.twice'\)"):
        mirlo.compile(path, cache=False)
    converter("acme.twice")(lambda op: op.operands[0] * op.bytes("implementation_attrs")[0])
    try:
        np.testing.assert_array_equal(mirlo.compile(path, cache=False)(np.ones(2, np.float32)), [2, 2])
    finally:
        del CONVERTERS["acme.twice"]


ERRORS = {
    "operation": (
        '%i = tosa.abs %x : (KIND) -> KIND %0 = "tfl.pseudo_sparse_const"() : () -> KIND',
        "'tfl.pseudo_sparse_const' at .*: is a constant in TensorFlow Lite's sparse format: give the .tflite file",
    ),
    "unknown": (
        '%i = tosa.abs %x : (KIND) -> KIND %0 = "tfl.unique"(%i) : (KIND) -> KIND',
        "'tfl.unique' at .*: is not supported",
    ),
    "zero point": (
        "%z = tosa.cast %x : (KIND) -> tensor<2xi32> "
        "%0 = tosa.negate %x, %x, %x : (KIND, KIND, KIND) -> KIND", "expected|tosa.negate",
    ),
    "variable": ("%0 = tosa.variable_read @none : KIND", "none"),
    "slice": (
        "%b = tosa.const_shape {values = dense<1> : tensor<1xindex>} : () -> !tosa.shape<1> "
        "%s = tosa.const_shape {values = dense<9> : tensor<1xindex>} : () -> !tosa.shape<1> "
        "%0 = tosa.slice %x, %b, %s : (KIND, !tosa.shape<1>, !tosa.shape<1>) -> KIND", "slice",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors_name_the_operation(name: str, write: Write) -> None:
    body, expected = ERRORS[name]
    text = f"func.func @main(%x: KIND) -> KIND {{ {body} return %0 : KIND }}"
    with pytest.raises(mirlo.MirloError, match=expected):
        mirlo.compile(write(text.replace("KIND", KIND)), cache=False)


@pytest.mark.parametrize("seed", range(40))
def test_damaged_programs_are_errors(seed: int, write: Write) -> None:
    """Change some characters of a program; whatever becomes of it, it is compiled or refused."""
    rng = random.Random(seed)
    text = list(COUNTER)
    for _ in range(rng.choice((1, 3, 9))):
        text[rng.randrange(len(text))] = rng.choice("0129-<>()x?%@{}[]:,=.iftensor ")
    try:
        mirlo.compile(write("".join(text)), cache=False)
    except mirlo.MirloError as error:
        assert str(error)


def tool(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!{PYTHON}\nimport os, sys\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


FORMATS = {"tflite": ("TFL3", "tosa-converter-for-tflite"), "tosa": ("TOSA", "tosa-opt")}


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("os.kill(os.getpid(), 11)", "does not convert it: it ended by signal 11"),
        ("print('[ERROR] no such operator'); sys.exit(1)", "does not convert it: .*no such operator"),
        ("", "does not convert it: it wrote no result"),
        ("open(sys.argv[-1], 'wb').write(b'ML\\xefR' + bytes(30))", "bytecode"),
        (None, "pip install"),
    ],
)
def test_what_converters_answer(
    suffix: str, script: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signature, name = FORMATS[suffix]
    path = tmp_path / f"model.{suffix}"
    path.write_bytes(EMPTY if suffix == "tflite" else b"\x1c\0\0\0" + signature.encode() + bytes(40))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("mirlo_tflite.tools.sys.executable", str(tmp_path / "python"))
    if script is not None:
        tool(tmp_path, name, script)
    with pytest.raises(mirlo.MirloError, match=expected):
        mirlo.compile(path, cache=False)


@pytest.mark.parametrize(("suffix", "form"), [("tflite", "TensorFlow Lite"), ("tosa", "TOSA")])
def test_other_content_is_named(suffix: str, form: str, tmp_path: Path) -> None:
    path = tmp_path / f"model.{suffix}"
    path.write_bytes(b"\x08\0\0\0nothing")
    with pytest.raises(mirlo.MirloError, match=f"model.{suffix} is no {form} file"):
        mirlo.compile(path)


def test_a_converter_writes_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(EMPTY)
    tool(tmp_path, "tosa-converter-for-tflite", f"open(sys.argv[-1], 'w').write({COUNTER!r})")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list(mirlo.initial_states(path)) == ["seen"]
    assert [each.name for each in mirlo.compile(path, cache=False).inputs] == ["arg0", "seen"]


@pytest.mark.parametrize(
    ("name", "data"),
    [("a.tflite", b"\x1c\0\0\0TFL3" + bytes(40)), ("a.tflite", b"no model"), ("a.tosa", b"\x1c\0\0\0TOSA" + bytes(40))],
)
def test_commands_for_onnx_name_the_form(
    name: str, data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(data)
    form = "TOSA" if name == "a.tosa" else "TensorFlow Lite"
    assert main(["check", str(tmp_path / name)])
    assert f"a model of {form}: 'mirlo import' prints it" in capsys.readouterr().err


def test_the_former_name_of_the_converter() -> None:
    with pytest.warns(DeprecationWarning, match=r"mirlo.extend.frontend.tosa_converter is now mirlo_tflite.registry"):
        from mirlo.extend.frontend import tosa_converter
    assert tosa_converter is converter


def test_the_versions_of_the_tools_are_part_of_the_key() -> None:
    assert TFLITE.tools == ("tosa-converter-for-tflite",) and TOSA[0].tools == ("tosa-tools",) and not TOSA[1].tools
