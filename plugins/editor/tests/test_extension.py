"""The extension for Visual Studio Code: its manifest names existing files, and its commands exist in the server."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "vscode"
MANIFEST = json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))


def test_files_of_the_manifest_are_there() -> None:
    contributed = MANIFEST["contributes"]
    files = [MANIFEST["main"], *(each["configuration"] for each in contributed["languages"])]
    files += [each["path"] for each in contributed["grammars"]]
    for name in (*files, "README.md", "LICENSE"):
        assert (FOLDER / name).is_file(), name
    required = {"name", "version", "publisher", "engines", "description", "license"}
    assert required <= MANIFEST.keys()
    # `vsce` refuses a manifest whose types are newer than the editor, and packs only what is required at run time.
    assert "vscode-languageclient" in MANIFEST["dependencies"]


def test_commands_and_settings_are_declared() -> None:
    code = (FOLDER / "extension.js").read_text(encoding="utf-8")
    registered = set(re.findall(r'registerCommand\("([\w.]+)"', code))
    assert registered == {each["command"] for each in MANIFEST["contributes"]["commands"]}
    settings = {f"mirlo.{name}" for name in re.findall(r'settings\.get\("(\w+)"\)', code)}
    assert settings == set(MANIFEST["contributes"]["configuration"]["properties"])
    pytest.importorskip("pygls", reason="needs pygls: pip install pygls")
    from mirlo_editor.server import COMMANDS

    called = set(re.findall(r'command: "mirlo\.(\w+)"', code))
    assert called and called <= set(COMMANDS)
    # The client registers the server's commands itself: one of the same name here would be a second one.
    assert not registered & {f"mirlo.{name}" for name in COMMANDS}


def test_the_grammar_has_names_for_the_parts_of_ir() -> None:
    grammar = json.loads((FOLDER / "syntaxes" / "mlir.tmLanguage.json").read_text(encoding="utf-8"))
    line = '  %0 = "relax.exp"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32> // comment'
    found = {}
    at = 0
    while at < len(line):
        matches = [
            (m, rule["name"]) for rule in grammar["patterns"] if (m := re.compile(rule["match"]).match(line, at))
        ]
        if not matches:
            at += 1
            continue
        match, name = matches[0]
        found[match.group()] = name.split(".")[0]
        at = match.end()
    assert found["%0"] == "variable" and found['"relax.exp"'] == "entity" and found["// comment"] == "comment"
    assert found["tensor"] == "support"
