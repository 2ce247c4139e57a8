"""Transcripts as files: text, JSON, and subtitles."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from mirlo_llm.generate.speech import FORMATS
from mirlo_llm.generate.speech.model import Segment, SpokenWord, Transcript


def as_text(transcript: Transcript) -> str:
    """Return the text in one line."""
    return f"{transcript.text}\n"


def as_object(transcript: Transcript) -> dict[str, object]:
    """Return verbose JSON of OpenAI's API, with words if they have timestamps."""
    segments = [
        {"id": i, "start": round(each.start, 3), "end": round(each.end, 3), "text": each.text, "tokens": each.tokens}
        for i, each in enumerate(transcript.segments)
    ]
    words = [
        {"word": each.text.strip(), "start": round(each.start, 3), "end": round(each.end, 3)}
        for each in transcript.words
    ]
    return {
        "language": transcript.language, "duration": transcript.seconds, "text": transcript.text,
        "segments": segments, **({"words": words} if words else {}),
    }  # fmt: skip


def as_json(transcript: Transcript) -> str:
    """Return the text and its segments."""
    return f"{json.dumps(as_object(transcript), ensure_ascii=False)}\n"


def as_srt(transcript: Transcript) -> str:
    """Return SubRip subtitles of segments, or of words if they have timestamps."""
    numbered = enumerate(_cues(transcript), 1)
    return "\n".join(f"{number}\n{_cue(each, ',')}" for number, each in numbered)


def as_vtt(transcript: Transcript) -> str:
    """Return WebVTT subtitles of segments, or of words if they have timestamps."""
    return "\n".join(["WEBVTT\n", *(_cue(each, ".") for each in _cues(transcript))])


def _cues(transcript: Transcript) -> Sequence[Segment | SpokenWord]:
    return transcript.words or transcript.segments


def _cue(part: Segment | SpokenWord, point: str) -> str:
    text = part.text.strip().replace("-->", "->")
    return f"{_clock(part.start, point)} --> {_clock(part.end, point)}\n{text}\n"


def _clock(seconds: float, point: str) -> str:
    whole = round(seconds * 1000)
    return f"{whole // 3600000:02}:{whole // 60000 % 60:02}:{whole // 1000 % 60:02}{point}{whole % 1000:03}"


WRITERS: Mapping[str, Callable[[Transcript], str]] = dict(zip(FORMATS, (as_text, as_json, as_srt, as_vtt), strict=True))
"""The writer of each format of transcripts."""
