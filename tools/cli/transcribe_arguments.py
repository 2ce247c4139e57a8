"""The flags of `mirlo transcribe`."""

from __future__ import annotations

import argparse
from argparse import _SubParsersAction

from mirlo.generate.speech import FORMATS, TASKS
from mirlo.tools.cli.options import add_options
from mirlo.tools.cli.values import AddCommand


def add_transcribe(commands: _SubParsersAction[argparse.ArgumentParser], add: AddCommand) -> None:
    """Add the command `transcribe`."""
    parser = add(commands, "transcribe", "transcribe the speech of a sound file")
    parser.add_argument(
        "folder", metavar="FOLDER", help="a folder with a Whisper model: config.json and weights in safetensors"
    )
    parser.add_argument("file", metavar="FILE.wav", help="the sound: a WAV file of any sampling rate")
    parser.add_argument("--language", metavar="CODE", help="what is spoken, such as 'en' (default: the model decides)")
    parser.add_argument("--task", choices=TASKS, default=TASKS[0], help="'translate' writes English")
    parser.add_argument("--words", action="store_true", help="times of words, in place of or beside those of segments")
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="the whole transcript in this form (default: segments with times as they come)",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the transcript to a file")
    add_options(parser, "target", "threads", "activations", "cache", "jobs")
