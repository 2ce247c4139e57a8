"""Speech to text: audio files, their spectra, and models of Whisper's architecture."""

TASKS = ("transcribe", "translate")
ONLY_LANGUAGE = "en"
"""The language of models of one language."""
FORMATS = ("text", "json", "srt", "vtt")
"""Formats of transcripts that `formats.py` writes."""
