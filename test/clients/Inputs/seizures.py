"""brainmaze-eeg-models: seizures and spindles in a recording of a brain."""

import numpy as np
from brainmaze_eeg_models.seizure import infer_seizure_probability, preprocess_input
from brainmaze_eeg_models.spindles import SpindleDetector
from inputs import tell

rng = np.random.default_rng(0)
signal = np.cumsum(rng.normal(size=(2, 200 * 30)), -1) * 0.05 + np.sin(np.arange(200 * 30) * 0.4)
windows = preprocess_input(signal, 200)
found = SpindleDetector().detect(np.sin(np.arange(250 * 60) * 0.35) * rng.normal(size=250 * 60), 250.0)
tell(seizures=[infer_seizure_probability(windows, model) for model in ("modelA", "modelB")], spindles=found.to_array())
