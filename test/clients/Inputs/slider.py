"""captcha-recognizer: where the piece of a puzzle belongs."""

from captcha_recognizer.slider import Slider
from inputs import scene, tell

slider = Slider()
prepared = slider.preprocess(scene(), (640, 640))
raw = slider.session.run(None, {"images": prepared})
tell(box=slider.identify(scene()), raw=[out.reshape(-1)[::9973] for out in raw])
