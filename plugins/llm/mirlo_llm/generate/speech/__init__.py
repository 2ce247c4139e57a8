"""Speech to text: audio files, their spectra, and models of Whisper's architecture."""

TASKS = ("transcribe", "translate")
ONLY_LANGUAGE = "en"
"""The language of models that know one."""
FORMATS = ("text", "json", "srt", "vtt")
"""Forms of transcripts, which `formats.py` writes."""
