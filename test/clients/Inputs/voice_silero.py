"""silero-vad: voice activity."""

import numpy as np
import torch
from inputs import tell, voice
from silero_vad import get_speech_timestamps, load_silero_vad

model = load_silero_vad(onnx=True)
sound = torch.from_numpy(voice(5.0))
speech = get_speech_timestamps(sound, model, threshold=0.3, return_seconds=True)
model.reset_states()
chances = np.array([float(model(sound[i : i + 512], 16000)) for i in range(0, len(sound) - 512, 512)])
model.reset_states()
slow = [float(model(sound[i : i + 256], 8000)) for i in range(0, 8000, 256)]
tell(speech=speech, chances=chances, slow=slow)
