"""ddddocr: the text in a small image, and its classification."""

import io

from ddddocr import DdddOcr
from inputs import page, scene, tell
from PIL import Image


def png(array):
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


words = [DdddOcr(show_ad=False, old=old).classification(png(page(["8aXk"], (160, 64), 34))) for old in (False, True)]
tell(words=words, boxes=DdddOcr(det=True, ocr=False, show_ad=False).detection(png(scene())))
