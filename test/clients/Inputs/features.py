"""onnx-asr: the features of speech, and other rates of samples."""

import numpy as np
from inputs import tell, voice
from onnx_asr.preprocessors.preprocessor import OnnxPreprocessor
from onnx_asr.preprocessors.resampler import Resampler

sound = np.stack([voice(2.0), voice(2.0)[::-1]])
lengths = np.array([32000, 20000])
features = {
    name: [np.asarray(part) for part in OnnxPreprocessor(name, {})(sound, lengths)]
    for name in ("gigaam_v2", "kaldi", "nemo128", "whisper80")
}
resampled = OnnxPreprocessor.__module__ and Resampler(16000, {})(sound[:, :9000], np.array([9000, 700]), 8000)
tell(
    means={name: [part.mean(), part.std()] for name, (part, _) in features.items()},
    some={name: part.reshape(-1)[::499] for name, (part, _) in features.items()},
    lengths={name: part for name, (_, part) in features.items()},
    resampled=resampled[0][:, ::97],
)
