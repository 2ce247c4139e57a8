"""faster-whisper: voice activity, all windows in one call."""

from faster_whisper.vad import VadOptions, get_speech_timestamps, get_vad_model
from inputs import tell, voice

sound = voice(5.0)
tell(speech=get_speech_timestamps(sound, VadOptions(threshold=0.3)), chances=get_vad_model()(sound[: 512 * 100]))
