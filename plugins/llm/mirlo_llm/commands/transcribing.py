"""`mirlo transcribe`: the speech of a sound file, printed as it is recognized."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace

from mirlo.extend.command import PackageCommand, Progress, add_options
from mirlo.extend.runtime import write_regular
from mirlo_llm.generate.speech import FORMATS, TASKS


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "folder", metavar="FOLDER", help="a folder with a Whisper model: config.json and weights in safetensors"
    )
    parser.add_argument("file", metavar="FILE.wav", help="the sound: a WAV file of any sampling rate")
    parser.add_argument(
        "--language", metavar="CODE", help="the spoken language, such as 'en' (default: detected by the model)"
    )
    parser.add_argument(
        "--task", choices=TASKS, default=TASKS[0], help="transcribe, or translate to English (default: transcribe)"
    )
    parser.add_argument("--words", action="store_true", help="print the times of words")
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="the format of the whole transcript (default: print segments with their times while they are transcribed)",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the transcript to a file")
    add_options(parser, "target", "threads", "activations", "invariant", "cache", "jobs")


def execute(arguments: Namespace) -> None:
    """Run the command."""
    from mirlo_llm import generate
    from mirlo_llm.generate.speech.audio import read_wav
    from mirlo_llm.generate.speech.formats import WRITERS
    from mirlo_llm.generate.speech.model import Segment

    sound = read_wav(arguments.file)
    name = os.path.basename(os.path.normpath(arguments.folder))
    with Progress(f"compiling {name}", arguments.verbose) as progress:
        model = generate.load_speech(arguments.folder, progress=progress, **arguments.options)
    shows = arguments.format is None and arguments.output is None

    def show(segment: Segment) -> None:
        for part in segment.words if arguments.words else (segment,):
            print(f"[{part.start:8.2f} {part.end:8.2f}] {part.text.strip()}", flush=True)

    transcript = model.transcribe(
        sound, language=arguments.language, task=arguments.task, words=arguments.words,
        on_segment=show if shows else None,
    )  # fmt: skip
    if shows:
        return
    text = WRITERS[arguments.format or "text"](transcript)
    if arguments.output is None:
        sys.stdout.write(text)
    else:
        write_regular(arguments.output, text)


TRANSCRIBE = PackageCommand("transcribe the speech of a sound file", _add_arguments, execute)
