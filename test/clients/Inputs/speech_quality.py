"""speechmos: how good speech sounds."""

import numpy as np
from inputs import tell, voice
from speechmos import aecmos, dnsmos, plcmos

sound = voice(9.5)
np.random.seed(0)  # plcmos draws who listens
tell(
    noise=dnsmos.run(sound, 16000), personal=dnsmos.run(sound, 16000, model_type="dnsmos_personalized"),
    loss=plcmos.run(sound, 16000), echo=aecmos.run({"lpb": sound, "mic": sound * 0.5, "enh": sound * 0.4}, 16000),
)  # fmt: skip
