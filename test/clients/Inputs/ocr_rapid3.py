"""rapidocr: lines of text in an image, with the newer models."""

from inputs import page, tell
from rapidocr import RapidOCR

found = RapidOCR()(page(["Hello World 2026", "compile and run"]))
tell(texts=list(found.txts), scores=list(map(float, found.scores)), boxes=found.boxes)
