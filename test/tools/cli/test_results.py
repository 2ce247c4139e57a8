"""Results of commands for programs: one form, the schema of the documentation; codes of errors, and silence."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from commands import ROOT
from onnx_models import F32, make_model, node

import mirlo
from mirlo.passes.instrumentation import PassFailed
from mirlo.runtime.errors import InputError, MirloError
from mirlo.tools.cli import RESULT_FORMAT, RESULTS, main
from mirlo.tools.cli.errors import code_of
from mirlo.tools.error_codes import error_codes, page

SCHEMA = json.loads((ROOT / "docs" / "result.schema.json").read_text())
KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,), "number": (int, float), "integer": (int,), "boolean": (bool,), "object": (dict,),
    "array": (list,), "null": (type(None),),
}  # fmt: skip


def problems(value: Any, schema: Any, at: str = "result") -> list[str]:
    """Return where a value departs from a schema, of the keywords that this one uses."""
    if "$ref" in schema:
        return problems(value, SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], at)
    found: list[str] = []
    if "const" in schema and value != schema["const"]:
        found.append(f"{at}: expected {schema['const']!r}, found {value!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{at}: {value!r} is none of {schema['enum']}")
    kinds = schema.get("type", [])
    allowed = [kind for name in ([kinds] if isinstance(kinds, str) else kinds) for kind in KINDS[name]]
    if allowed and not (isinstance(value, tuple(allowed)) and (bool in allowed or not isinstance(value, bool))):
        return [*found, f"{at}: expected {kinds}, found {value!r}"]
    if "pattern" in schema and not re.search(schema["pattern"], value):
        found.append(f"{at}: {value!r} is not {schema['pattern']}")
    if isinstance(value, dict):
        found += [f"{at}: no {name}" for name in schema.get("required", ()) if name not in value]
        for name, each in value.items():
            more = schema.get("additionalProperties", {})
            found += problems(each, schema.get("properties", {}).get(name, more), f"{at}.{name}")
    if isinstance(value, list) and "items" in schema:
        found += [text for i, each in enumerate(value) for text in problems(each, schema["items"], f"{at}[{i}]")]
    for each in schema.get("allOf", ()):
        found += problems(value, each, at)
    if "oneOf" in schema:
        attempts = [problems(value, each, at) for each in schema["oneOf"]]
        if sum(not each for each in attempts) != 1:
            found += min(attempts, key=len) or [f"{at}: several forms fit"]
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model, a compiled one, one with a strange operator, and one of strings."""
    path = tmp_path_factory.mktemp("results")
    weights = {"w": np.ones((4, 5), np.float32)}
    onnx.save(make_model([node("MatMul", "x w", "y")], {"x": (F32, ["n", 4])}, ["y"], weights), path / "m.onnx")
    onnx.save(make_model([node("Strange", "x", "y")], {"x": (F32, [4])}, ["y"]), path / "bad.onnx")
    mirlo.compile(path / "m.onnx", cache=False, jobs=1).save(path / "m.mirlo")
    return path


WORKING = (
    "compile m.onnx -o n.mirlo", "compile m.onnx --emit llvm-ir -o code",
    "compile m.onnx --emit source --target c -o c",
    "run m.mirlo --repeat 2", "run m.onnx --repeat 1 --profile --output-dir out", "info m.onnx", "info m.mirlo",
    "link m.mirlo -o libm.so",
    "check m.onnx", "explain m.onnx", "explain relax.matmul", "explain MIR0303", "partition m.onnx --target c,llvm",
    "doctor",
)  # fmt: skip
FAILING = {
    "compile nothing.onnx": "MIR0715",
    "compile bad.onnx": "MIR0303",
    "compile m.onnx --target lvm": "MIR0404",
    "run m.mirlo --input z=out.npy": "MIR0701",
    "info bad.mirlo": "MIR0715",
    "check bad.onnx": "MIR0717",
    "check m.mirlo": "MIR0716",
    "explain relax.matmull": "MIR0710",
    "explain MIR9999": "MIR0701",
    "partition m.onnx --target lvm": "MIR0404",
    "bench m.mirlo": "MIR0716",
}


@pytest.fixture
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


@pytest.mark.usefixtures("in_folder")
@pytest.mark.parametrize("command", WORKING)
def test_results_have_one_form(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert not problems(result, SCHEMA)
    assert result["format"] == RESULT_FORMAT and result["ok"] and result["command"] == command.split()[0]


@pytest.mark.usefixtures("in_folder")
@pytest.mark.parametrize("command", FAILING)
def test_errors_have_codes(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--json"]) == 1
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert not problems(result, SCHEMA)
    assert not result["ok"] and result["error"]["code"] == FAILING[command]
    assert captured.err == f"mirlo: error[{FAILING[command]}]: {result['error']['message']}\n"


@pytest.mark.usefixtures("in_folder")
@pytest.mark.parametrize("command", [each for each in WORKING if "--profile" not in each])
def test_quiet_commands_print_nothing(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--quiet"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_all_commands_have_both_flags(capsys: pytest.CaptureFixture[str]) -> None:
    for command in RESULTS:
        with pytest.raises(SystemExit):
            main([command, "--help"])
        text = capsys.readouterr().out
        assert "--json" in text and "--quiet" in text, command
    assert {each["allOf"][1]["$ref"].rpartition("/")[2] for each in SCHEMA["oneOf"][1:]} == set(RESULTS)


def test_the_page_has_the_codes() -> None:
    text = (ROOT / "docs" / "errors.md").read_text()
    assert text == page(), "run: python -m mirlo.tools.error_codes > docs/errors.md"
    codes = [each.code for each in error_codes()]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"MIR\d{4}", each.code) and each.text and each.remedy for each in error_codes())


def test_each_class_of_errors_declares_its_code() -> None:
    """Those that derive from `MirloError` itself; others may have the code of theirs."""
    names = {(each.module, each.name) for each in error_codes()}
    own = [each for each in MirloError.__subclasses__() if each.__module__.startswith("mirlo.")
           and not each.__module__.startswith(("mirlo.benchmarks.", "mirlo.testing."))]  # fmt: skip
    assert own and not [each for each in own if (each.__module__, each.__name__) not in names]


def test_a_pass_that_failed_has_the_code_of_its_cause() -> None:
    failed = PassFailed("schedule", "of an input")
    assert code_of(failed) == "MIR0402"
    failed.__cause__ = InputError("of an input")
    assert code_of(failed) == InputError.error_code == "MIR0106"
    assert code_of(PassFailed("schedule", "a bug", internal=True)) == "MIR0009"
    assert [code_of(each) for each in (FileNotFoundError("x"), MemoryError(), KeyError("x"))] == [
        "MIR0002", "MIR0003", "MIR0009",
    ]  # fmt: skip
