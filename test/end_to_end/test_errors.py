"""Each kind of bad input gives one message with the cause, exit code 1, and no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from bad_models import write_all
from commands import without_code

from mirlo.frontends.onnx.registry import CONVERTERS
from mirlo.tools import opt
from mirlo.tools.cli import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of bad models, and one good one with its compiled form."""
    made = tmp_path_factory.mktemp("bad")
    write_all(made)
    assert main(["compile", str(made / "good.onnx"), "-o", str(made / "good.mirlo")]) == 0
    (made / "cut.mirlo").write_bytes((made / "good.mirlo").read_bytes()[:500])
    return made


# Command line, and the message after "mirlo: error: "; FOLDER stands for the folder of the files,
# SIZE for the bytes of the compiled one, DOMAINS for those of the ONNX operators that are supported.
CASES = {
    "no such file": ("run nothing.onnx", "'nothing.onnx' does not exist"),
    "a folder": ("run .", "'.' is not a file"),
    "truncated": (
        "run truncated.onnx",
        "truncated.onnx: the model is truncated or damaged: in a ModelProto, byte 2 starts a field of 595 bytes of "
        "which only 306 are there (the file has 311 bytes); download or export it again",
    ),
    "empty": ("run empty.onnx", "empty.onnx: the file is empty"),
    "not a model": (
        "run text.onnx",
        "text.onnx: not an ONNX model: byte 0 is not a field of a ModelProto (wire type 6)",
    ),
    "noise": ("run noise.onnx", "noise.onnx: not an ONNX model: byte 0 is not a field of a ModelProto (wire type 7)"),
    "a checkpoint": (
        "run checkpoint.onnx",
        "checkpoint.onnx: not an ONNX model but a zip archive, perhaps a PyTorch checkpoint, which has weights and no "
        "graph: load it into its module in Python, and compile that: mirlo.compile(module, args=(example,))",
    ),
    "unknown operators": (
        "compile unknown.onnx",
        """\
unknown.onnx: 3 nodes of 2 operators cannot be imported:
  Reluu (domain ai.onnx, opset 18): 'second', 'third'
    supported, and of a similar name: Relu, PRelu
  Mystery (domain com.example, opset 1): 'first'
    no operator of this domain is supported; domains that are: DOMAINS; define it with \
mirlo.onnx_operator('com.example', 'Mystery', ...), on the command line in a file: --plugin FILE.py
Rewrite these nodes with supported operators, or give each operator a function body in the model.""",
    ),
    "inconsistent shapes": (
        "compile shapes.onnx",
        "shapes.onnx: node 'fc' (MatMul): the contracted dims of f32[4, 9] and f32[8, 16] must agree, got 9 and 8 "
        "[inputs: 'x' f32[4, 9], 'w' f32[8, 16]]",
    ),
    "output declared otherwise": (
        "compile declared.onnx",
        "declared.onnx: output 'y' is declared f64[4, 16], but the nodes that compute it make it f32[4, 16]; "
        "the model's types are inconsistent",
    ),
    "missing external data": (
        "compile external.onnx",
        "external.onnx: tensor 'w' has its data in 'FOLDER/weights.bin', which does not exist; the file belongs to the "
        "model: put it there",
    ),
    "open dim without a size": (
        "bisect open.onnx",
        "input 'x' is f32[batch, 8]: give the sizes of its dims, --dim batch=N, its shape, --shape x=..., or an array, "
        "--input x=FILE.npy",
    ),
    "size of no dim": (
        "compile open.onnx --dim bach=4",
        "open.onnx: it has no dim 'bach', for which a size is given; dims of its inputs: batch; did you mean 'batch'?",
    ),
    "sizes of dims beside a shape": (
        "compile open.onnx --dim batch=4 --shape x=5x8",
        "open.onnx: dim 0 of input 'x', 'batch', is 4 by the sizes of dims, and 5 by the shapes that are given",
    ),
    "shape of no input": (
        "compile good.onnx --shape z=4",
        "good.onnx: a shape is given for 'z', which is not an input: there are: 'x'",
    ),
    "shape that contradicts": (
        "compile good.onnx --shape x=4x9",
        "good.onnx: the shape given for input 'x': dim 1 is 9, but the model fixes it to 8",
    ),
    "pipeline typo": (
        "compile good.onnx --pipeline legalize,canonicalise",
        """\
unknown pass 'canonicalise'; did you mean 'canonicalize'?
  legalize,canonicalise
           ^""",
    ),
    "pipeline that ends early": (
        "compile good.onnx --pipeline legalize",
        "the module is not planned: run plan-memory before emitting code",
    ),
    "IR syntax": (
        "compile syntax.mlir",
        """\
syntax.mlir is not valid IR:
syntax.mlir:2:21: error: use of undeclared SSA value name
  %0 = "relax.relu"(%y) : (tensor<4xf32>) -> tensor<4xf32>
                    ^""",
    ),
    "IR of an unknown operator": (
        "compile operator.mlir",
        """\
operator.mlir is not valid IR:
operator.mlir:2:8: error: unregistered operation 'relax.reluu' found in dialect ('relax') that does not allow \
unknown operations
  %0 = "relax.reluu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
       ^""",
    ),
    "IR that does not verify": (
        "compile wrong.mlir",
        """\
wrong.mlir is not valid IR:
wrong.mlir:2:8: error: 'relax.relu' op result is declared f32[5], but its operands and attributes make it f32[4]
  %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<5xf32>
       ^""",
    ),
    "IR with facts that cannot be": (
        "compile facts.mlir",
        """\
the module is not consistent:
facts.mlir:1:1: attribute 'relax.name' of argument #0 of function '@main' must be a string, got 1 : i64
facts.mlir:1:1: pass 'verify-calls' failed: result #0 of function '@main' cannot have the attribute 'relax.nane'; \
did you mean 'relax.name'?""",
    ),
    "IR without its weights": (
        "compile weights.mlir",
        "cannot open 'nowhere.params', which the module's attribute 'relax.params' lists: FOLDER/nowhere.params: "
        "cannot read the file: No such file or directory",
    ),
    "compiled file cut off": ("run cut.mirlo", "cut.mirlo: the file is truncated: 500 bytes of SIZE; copy it again"),
    "asking about IR": (
        "info syntax.mlir",
        "syntax.mlir: not an ONNX model but IR: 'mirlo-opt' prints it, 'mirlo compile' compiles it",
    ),
    "a plug-in that is not there": (
        "run good.onnx --plugin none.py",
        "cannot load the plug-in 'none.py': FileNotFoundError: no such file: 'none.py'",
    ),
    "a plug-in that does not load": (
        "run good.onnx --plugin broken_plugin.py",
        "cannot load the plug-in 'broken_plugin.py': ZeroDivisionError: division by zero",
    ),
    "compiling what is compiled": ("compile good.mirlo", "good.mirlo is compiled already: 'mirlo run' runs it"),
    "compiling options for what is compiled": (
        "run good.mirlo --threads 2",
        "good.mirlo is compiled already: --threads is for 'mirlo compile'",
    ),
    "words for what is compiled": (
        "run good.mirlo --schedule kernel=words.json",
        "good.mirlo is compiled already: --schedule is for 'mirlo compile'",
    ),
    "output over the model": (
        "compile good.onnx -o good.onnx",
        "the compiled model would replace the model 'good.onnx': name another file with -o",
    ),
    "output in no folder": (
        "compile good.onnx -o no/where.mirlo",
        "cannot write 'no/where.mirlo': there is no folder 'no'",
    ),
    "output that is a folder": ("compile good.onnx -o .", "'.' is a folder: name a file with -o"),
    "IR to a file": ("compile good.onnx -o o.mirlo --save-ir text.onnx", "cannot write IR to 'text.onnx': File exists"),
    "input of another name": (
        "run good.mirlo --input z=right.npy",
        "no input is named 'z': the model has 1 input (x: f32[4, 8])",
    ),
    "input of another type": (
        "run good.mirlo --input x=doubles.npy",
        "input 'x': expected f32[4, 8], found f64[4, 8]: pass array.astype(numpy.float32)",
    ),
    "input of another shape": (
        "run good.mirlo --input x=wide.npy",
        "input 'x': expected f32[4, 8], found f32[4, 9]: pass an array of that shape",
    ),
    "input file missing": (
        "run good.mirlo --input x=none.npy",
        "input 'x': cannot read 'none.npy': No such file or directory",
    ),
    "input file truncated": (
        "run good.mirlo --input x=truncated.npy",
        "input 'x': 'truncated.npy' is not an array that numpy.save wrote, or it is damaged: ",
    ),
    "input file with a damaged header": (
        "run good.mirlo --input x=header.npy",
        "input 'x': 'header.npy' is not an array that numpy.save wrote, or it is damaged: ",
    ),
    "input file of Python objects": (
        "run good.mirlo --input x=objects.npy",
        "input 'x': 'objects.npy' is not an array that numpy.save wrote, or it is damaged: ",
    ),
    "input file of another kind": (
        "run good.mirlo --input x=good.onnx",
        "input 'x': 'good.onnx' is not an array that numpy.save wrote, or it is damaged: ",
    ),
    "outputs to a file": (
        "run good.mirlo --output-dir text.onnx",
        "cannot write outputs to 'text.onnx': File exists",
    ),
}

PREFIXES = ("or it is damaged: ",)
"""Ends of messages after which numpy speaks."""


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", CASES)
def test_message(case: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    command, message = CASES[case]
    monkeypatch.chdir(folder)
    assert main(command.split()) == 1
    found = without_code(capsys.readouterr().err)
    size = (folder / "good.mirlo").stat().st_size
    expected = f"mirlo: error: {message}\n".replace("FOLDER", str(folder)).replace("SIZE", str(size))
    expected = expected.replace(
        "DOMAINS", ", ".join(sorted({domain or "ai.onnx" for domain, _ in CONVERTERS.operators()}))
    )
    if message.endswith(PREFIXES):
        assert found.startswith(expected.rstrip("\n")) and found.count("\n") == 1
    else:
        assert found == expected


def test_unsupported_dtype(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(folder / "complex.onnx")]) == 1
    start = f"mirlo: error: {folder}/complex.onnx: input 'x' has the element type COMPLEX64, which is not supported; "
    assert without_code(capsys.readouterr().err).startswith(start + "supported: FLOAT, ")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "syntax.mlir --cse",
            """\
syntax.mlir:2:21: error: use of undeclared SSA value name
  %0 = "relax.relu"(%y) : (tensor<4xf32>) -> tensor<4xf32>
                    ^
""",
        ),
        (
            "wrong.mlir",
            """\
wrong.mlir:2:8: error: 'relax.relu' op result is declared f32[5], but its operands and attributes make it f32[4]
  %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<5xf32>
       ^
""",
        ),
        (
            "wrong.mlir --pass-pipeline=legalise",
            """\
mirlo-opt: error: unknown pass 'legalise'; did you mean 'legalize'?
  legalise
  ^
""",
        ),
        ("nothing.mlir --cse", "mirlo-opt: error: cannot read 'nothing.mlir': No such file or directory\n"),
        (
            "noise.onnx --cse",
            "mirlo-opt: error: noise.onnx: not IR, but an ONNX model by its name: "
            "'mirlo import noise.onnx' prints the IR of one\n",
        ),
    ],
)
def test_message_of_mirlo_opt(
    command: str,
    message: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    assert opt.main(command.split()) == 1
    assert capsys.readouterr().err == message


def test_an_unknown_target_tells_those_that_there_are(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(folder / "good.onnx"), "--target", "lvm"]) == 1
    told = without_code(capsys.readouterr().err)
    assert told.startswith("mirlo: error: unknown target 'lvm'; did you mean 'llvm'? installed: ")


def test_a_damaged_header_is_not_shown_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Numpy quotes the header, which a file may fill as it likes."""
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }\n" % (b"[" * 900 + b"]" * 900)
    content = b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header
    (folder / "brackets.npy").write_bytes(content)
    monkeypatch.chdir(folder)
    assert main(["run", "good.mirlo", "--input", "x=brackets.npy"]) == 1
    found = capsys.readouterr().err
    assert "'brackets.npy' is not an array" in found and len(found) < 400
