"""basic-pitch: the notes of a sound."""

import tempfile

import soundfile
from basic_pitch import ICASSP_2022_MODEL_PATH
from basic_pitch.inference import predict
from inputs import tell, voice

with tempfile.NamedTemporaryFile(suffix=".wav") as file:
    soundfile.write(file.name, voice(4.0, 22050), 22050)
    outputs, _, notes = predict(file.name, ICASSP_2022_MODEL_PATH.with_suffix(".onnx"))
tell(note=outputs["note"], contour=outputs["contour"][::7, ::11], notes=sorted(note[:3] for note in notes))
