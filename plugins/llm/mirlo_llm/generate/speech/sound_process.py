"""The bounded process that decodes sound files of requests, since small files may contain hours of sound."""

from __future__ import annotations

from collections.abc import Mapping

from mirlo.extend.process import ArgumentsRefused, Function, Result
from mirlo_llm.generate.speech.audio import SoundError, parse_wav


def open(content: bytes) -> Mapping[str, Function]:
    """Return the functions of the process."""
    return {"decode": decode}


def decode(content: bytes, name: str) -> Result:
    """Return the samples of one channel, f32, and their rate; `name` is the file's name in errors."""
    try:
        sound = parse_wav(content, name)
    except SoundError as error:
        raise ArgumentsRefused(str(error)) from None
    return Result({"rate": sound.rate}, sound.samples.tobytes())
