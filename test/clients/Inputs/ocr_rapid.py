"""rapidocr-onnxruntime: lines of text in an image."""

from inputs import page, tell
from rapidocr_onnxruntime import RapidOCR

lines, _ = RapidOCR()(page(["Hello World 2026", "compile and run"]))
tell(
    texts=[text for _, text, _ in lines],
    scores=[float(score) for _, _, score in lines],
    boxes=[box for box, _, _ in lines],
)
