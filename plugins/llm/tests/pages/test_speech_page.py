"""What the page about speech shows works as it stands there."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from mirlo_llm.generate.speech import FORMATS
from repository import ROOT

from mirlo.testing.commands import output_of, run_script, shell_commands
from mirlo.testing.pages import code_block

pytest.importorskip("tokenizers")

TEXT = (ROOT / "docs" / "transcribe-speech.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


def run(folder: Path, commands: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    environment = environment or shell_commands(folder, "mirlo", "python")
    command = ["sh", "-ec", commands]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)


@pytest.mark.sample(0)
def test_commands(folder: Path) -> None:
    environment = shell_commands(folder, "mirlo", "python")
    done = run(folder, code_block(TEXT, "sh"), environment)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines and all(re.fullmatch(r"\[ *\d+\.\d\d +\d+\.\d\d\] \S.*", line) for line in lines)
    subtitles = (folder / "sound.srt").read_text(encoding="utf-8")
    assert subtitles.startswith("1\n00:00:00,") and " --> " in subtitles
    outputs = {}
    for name in FORMATS:
        done = run(folder, f"mirlo transcribe speech speech/sound.wav --format {name}\n", environment)
        assert done.returncode == 0, done.stderr
        outputs[name] = done.stdout
    found = json.loads(outputs["json"])
    assert found["text"] + "\n" == outputs["text"] and found["duration"] == 2 and len(found["segments"]) == len(lines)
    assert outputs["vtt"].startswith("WEBVTT\n\n00:00:00.") and outputs["srt"].count(" --> ") == len(lines)


@pytest.mark.sample(0)
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("speech none.wav", "none.wav: No such file or directory"),
        ("speech speech/config.json", "this is no WAV file: convert it"),
        pytest.param(
            "speech speech/sound.wav --language fr",
            "language: the model does not know 'fr'",
            marks=pytest.mark.sample(0),  # it compiles the model
        ),
        ("examples speech/sound.wav", "there is no config.json"),
    ],
)
def test_wrong_commands(folder: Path, arguments: str, text: str) -> None:
    done = run(folder, f"python examples/tiny_speech_model.py\nmirlo transcribe {arguments}\n")
    assert done.returncode == 1 and text in done.stderr and "Traceback" not in done.stderr


@pytest.mark.sample(0)
def test_python(folder: Path) -> None:
    assert output_of(run_script("-c", code_block(TEXT, "python"), cwd=folder))
