"""Transcriptions in the format of OpenAI's API: sound files in multipart forms."""

from __future__ import annotations

import asyncio
import threading
import time

import numpy as np

from mirlo.extend.process import BoundedFailure, BoundedRefusal, BoundedWorker, Bounds
from mirlo_llm.generate import GenerationError, Transcript
from mirlo_llm.generate.speech.audio import Sound
from mirlo_llm.generate.speech.formats import WRITERS, as_object
from mirlo_llm.serve.body import Receive, Scope, Send, read_body
from mirlo_llm.serve.errors import RequestError, refused
from mirlo_llm.serve.forms import FormFields, read_form
from mirlo_llm.serve.requests import note
from mirlo_llm.serve.sending import ClientWatch, send_bytes, send_json
from mirlo_llm.serve.speech_backend import SpeechBackend
from mirlo_llm.serve.state import ServerState

PARTS_KEY = "timestamp_granularities[]"
FORM_KEYS = {"model", "file", "language", "response_format", "prompt", "temperature", PARTS_KEY}
PARTS = ("segment", "word")
"""Values of `timestamp_granularities`."""
RESPONSE_FORMATS = ("json", "text", "verbose_json", "srt", "vtt")
MAX_SECONDS = 2 * 3600
"""Longest sound of a request, since small files may be long."""


class TranscriptionRoutes:
    """The endpoints /v1/audio/transcriptions and /v1/audio/translations."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def transcribe(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Transcribe speech."""
        await self._answer(scope, receive, send, "transcribe")

    async def translate(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Translate speech to English."""
        await self._answer(scope, receive, send, "translate")

    async def _answer(self, scope: Scope, receive: Receive, send: Send, task: str) -> None:
        start = time.perf_counter()
        read = await self._read(scope, receive)
        fields, name, form = read.texts, read.texts.get("model", ""), read.texts.get("response_format", "json")
        self._state.pool.find(name)
        note(scope, model=name)
        if form not in RESPONSE_FORMATS:
            raise refused("response_format", f"expected one of {', '.join(RESPONSE_FORMATS)}, found {form[:60]!a}")
        for key in ("prompt", "temperature"):
            if fields.get(key, "") not in ("", "0", "0.0"):
                raise refused(key, "it is not supported: the most probable tokens are taken")
        parts = _granularities(read, form)
        sound, words = await asyncio.to_thread(_sound, read.file), "word" in parts
        otherwise = "is no model of speech: serve the folder of a Whisper model"
        async with self._state.pool.use_as(name, SpeechBackend, otherwise) as backend:
            leaves = threading.Event()
            with backend.admitted(1):
                try:
                    async with ClientWatch(receive, leaves.set):
                        transcript = await backend.transcribe(
                            sound, fields.get("language") or None, task, words, leaves
                        )
                except GenerationError as error:
                    raise RequestError(400, str(error)[:2000]) from None
            backend.took(time.perf_counter() - start)
        if form in ("text", "srt", "vtt"):
            kind = b"text/vtt; charset=utf-8" if form == "vtt" else b"text/plain; charset=utf-8"
            await send_bytes(send, 200, WRITERS[form](transcript).encode("utf-8"), kind)
        elif form == "verbose_json":
            await send_json(send, 200, _verbose(task, transcript, parts))
        else:
            await send_json(send, 200, {"text": transcript.text})

    async def _read(self, scope: Scope, receive: Receive) -> FormFields:
        """Read a form with a file."""
        options = self._state.options
        form = await read_form(scope, await read_body(scope, receive, options.max_body, options.body_seconds))
        for key in (*form.texts, *form.lists, form.file_key):
            if key not in FORM_KEYS:
                raise refused(key[:80], "this field is not known")
        if form.file is None or "file" in form.texts:
            raise refused("file", "expected a sound file")
        return form


def _granularities(form: FormFields, response_format: str) -> list[str]:
    """Return the parts with timestamps that a form requests in verbose JSON: segments, words, or both."""
    values = form.lists.get(PARTS_KEY, [])
    if not values:
        return [PARTS[0]]
    for value in values:
        if value not in PARTS:
            raise refused(PARTS_KEY, f"expected {' or '.join(PARTS)}, found {value[:60]!a}")
    if response_format != "verbose_json":
        raise refused(PARTS_KEY, f"it needs the response_format verbose_json, found {response_format}")
    return values


def _verbose(task: str, transcript: Transcript, parts: list[str]) -> dict[str, object]:
    """Return a transcript with the timestamps of the requested parts."""
    values = as_object(transcript)
    words = values.pop("words", [])
    if "segment" not in parts:
        del values["segments"]
    return {"task": task, **values, **({"words": words} if "word" in parts else {})}


_DECODER = BoundedWorker("mirlo_llm.generate.speech.sound_process", bounds=Bounds(seconds=20, growth=1 << 30))


def _sound(content: bytes | None) -> Sound:
    """Decode a sound file in a bounded process."""
    assert content is not None
    try:
        result = _DECODER.call_alone("decode", content, name="file")
    except (BoundedFailure, BoundedRefusal) as error:
        raise RequestError(400, str(error)[:2000], parameter="file") from None
    sound = Sound(np.frombuffer(result.content, np.float32), result.value["rate"])
    if sound.seconds > MAX_SECONDS:
        raise refused("file", f"the sound is longer than {MAX_SECONDS // 3600} hours: divide it")
    return sound
