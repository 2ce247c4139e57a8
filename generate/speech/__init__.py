"""Speech to text: audio files, their spectra, and models of Whisper's architecture."""
