"""pipecat-ai: voice activity, and the end of a turn."""

import asyncio

from inputs import tell, voice
from pipecat.audio.turn.smart_turn.local_smart_turn_v3 import LocalSmartTurnAnalyzerV3
from pipecat.audio.vad.silero import SileroVADAnalyzer

sound = voice(4.0)
vad = SileroVADAnalyzer(sample_rate=16000)
vad.set_sample_rate(16000)
pcm = (sound * 32767).astype("int16").tobytes()
chances = [vad.voice_confidence(pcm[i : i + 1024]) for i in range(0, len(pcm) - 1024, 1024)]
found = LocalSmartTurnAnalyzerV3()._predict_endpoint(sound)
if asyncio.iscoroutine(found):
    found = asyncio.run(found)
# The model of turns is quantized: its probability depends on how sums are ordered, by some hundredths.
tell(chances=chances, finished=found["prediction"], probability=round(found["probability"]))
