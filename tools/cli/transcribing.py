"""`mirlo transcribe`: the speech of a sound file, as it is known."""

from __future__ import annotations

import os
import sys

from mirlo.runtime.files import write_regular
from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.progress import Progress


def execute(arguments: Arguments) -> None:
    """Run the command."""
    from mirlo import generate
    from mirlo.generate.speech.audio import read_wav
    from mirlo.generate.speech.formats import WRITERS
    from mirlo.generate.speech.model import Segment

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
