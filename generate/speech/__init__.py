"""Speech to text: audio files, their spectra, and models of Whisper's architecture."""

TASKS = ("transcribe", "translate")
FORMATS = ("text", "json", "srt", "vtt")
"""Forms of transcripts, which `formats.py` writes."""
