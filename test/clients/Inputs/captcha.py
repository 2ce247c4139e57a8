"""captcha-whisperer: the characters of an image."""

import numpy as np
from captcha_whisperer import CaptchaRecognizer
from inputs import page, tell

images = [page([text], (160, 60), 34) for text in ("8aXk", "Qm3t")]
tell(found=CaptchaRecognizer().recognize_arrays([np.asarray(image) for image in images]))
