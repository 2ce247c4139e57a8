"""EfficientWord-Net: how alike two words sound."""

from eff_word_net.audio_processing import Resnet50_Arc_loss
from inputs import tell, voice

model = Resnet50_Arc_loss()
first, second = (model.audioToVector(voice(2.0)[shift : shift + model.window_frames]) for shift in (0, 2000))
tell(vector=first.reshape(-1)[::16], likeness=model.scoreVector(first, second.reshape(1, -1)))
