"""Other formats as TOSA in MLIR: TOSA's flatbuffers and TensorFlow Lite, by the tools that Arm publishes.

The tools run in separate processes, because malformed files may crash them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mirlo.extend.runtime import write_regular
from mirlo_tflite.errors import TosaImportError
from mirlo_tflite.flatbuffer import Table, reading
from mirlo_tflite.refused import builtin_number, describe_refused
from mirlo_tflite.schema import IF, MODEL_CODES, WHILE
from mirlo_tflite.sparse import densify

SECONDS = 300
"""Time limit of a tool; models of 50 MB take two seconds."""
_SHOWN = 400
"""Most characters of a tool's message in an error."""


def from_tflite(path: Path) -> bytes:
    """Return a model of TensorFlow Lite as TOSA, in bytecode."""
    tool = _find("tosa-converter-for-tflite")
    if tool is None:
        raise TosaImportError(
            f"{path} is a TensorFlow Lite model, which is read through TOSA: pip install tosa-converter-for-tflite, or "
            f"convert it with 'python -m tf2onnx.convert --tflite {path.name} --output model.onnx'"
        )
    with reading(path.name):
        root = Table.root(path.read_bytes())
        dense = densify(root)
        # Bytecode has no names of a branch's functions, as TensorFlow's dialect has an encoding of its own.
        has_branches = any(builtin_number(code) in (IF, WHILE) for code in root.tables(MODEL_CODES))
        form, name = ("--text", "model.mlir") if has_branches else ("--bytecode", "model.mlirbc")
        with tempfile.TemporaryDirectory() as folder:
            read, result = Path(folder, path.name), Path(folder, name)

            def convert(content: bytes) -> bytes:
                read.write_bytes(content)
                result.unlink(missing_ok=True)
                # Debug information has the names of nodes.
                return _output([tool, read, form, "--emit-debug-info", "-o", result], result, path)

            def converts(content: bytes) -> bool:
                try:
                    return bool(convert(content))
                except TosaImportError:
                    return False

            try:
                return convert(bytes(root.content) if dense is None else dense)
            except TosaImportError as error:
                refused = describe_refused(root if dense is None else Table.root(dense), converts)
                raise TosaImportError(f"{error}{f': {refused}' if refused else ''}") from None


def from_flatbuffer(path: Path) -> bytes:
    """Return a flatbuffer of TOSA in bytecode."""
    tool = _find("tosa-opt")
    if tool is None:
        raise TosaImportError(f"{path} is a flatbuffer of TOSA, which tosa-opt reads: pip install tosa-tools")
    with tempfile.TemporaryDirectory() as folder:
        empty, result = Path(folder, "empty.mlir"), Path(folder, "model.mlirbc")
        write_regular(empty, "module {}\n")
        flags = ["--tosa-deserialize", f"--tosa-deserialize-filename={path.absolute()}", "-emit-bytecode"]
        return _output([tool, empty, *flags, "-o", result], result, path)


def _find(name: str) -> str | None:
    """Return the path of a program: on PATH, or beside this Python."""
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), str(Path(sys.executable).parent))))


def _output(command: Sequence[str | Path], result: Path, path: Path) -> bytes:
    name = Path(str(command[0])).name
    try:
        done = subprocess.run(
            list(map(str, command)), capture_output=True, stdin=subprocess.DEVNULL, check=False, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        raise TosaImportError(f"{path}: {name} did not end within {SECONDS} seconds") from None
    except OSError as error:
        raise TosaImportError(f"{path}: {name} does not start: {error.strerror or error}") from None
    if done.returncode != 0 or not result.is_file():
        messages = (done.stderr + done.stdout).decode("utf-8", "replace").split("\n")
        shown = "; ".join(line.strip() for line in messages if "error" in line.lower())[:_SHOWN]
        why = shown or (f"it ended by signal {-done.returncode}" if done.returncode < 0 else "it wrote no result")
        raise TosaImportError(f"{path}: {name} does not convert it: {why}")
    return result.read_bytes()
