"""`mirlo completion`: the scripts complete what the parser accepts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from commands import mirlo, output_of

from mirlo.tools.cli import COMMANDS
from mirlo.tools.cli.arguments import make_parser
from mirlo.tools.cli.completion import SHELLS, commands


def test_every_command_is_there() -> None:
    found = commands(make_parser())
    assert {each.name for each in found} == set(COMMANDS)
    for shell, write in SHELLS.items():
        text = write(found)
        assert all(each.name in text for each in found), shell


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["comp"], {"compile", "completion"}),
        (["compile", "--em"], {"--emit"}),
        (["compile", "--emit", "l"], {"library", "llvm-ir", "llvm-dialect"}),
        (["completion", "f"], {"fish"}),
    ],
)
def test_bash(words: list[str], wanted: set[str], tmp_path: Path) -> None:
    script = tmp_path / "complete.sh"
    script.write_text(output_of(mirlo("completion", "bash")))
    line = " ".join(f'"{word}"' for word in ["mirlo", *words])
    asked = f'source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _mirlo; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert set(done.stdout.split()) - {"complete.sh"} == wanted


def test_an_unknown_shell_is_an_error() -> None:
    assert "invalid choice: 'tcsh'" in mirlo("completion", "tcsh").stderr
