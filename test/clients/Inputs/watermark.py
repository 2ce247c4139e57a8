"""invisible-watermark: hide a text in an image, and read it."""

from imwatermark import WatermarkDecoder, WatermarkEncoder
from inputs import scene, tell

WatermarkEncoder.loadModel()
encoder = WatermarkEncoder()
encoder.set_watermark("bytes", b"test")
marked = encoder.encode(scene(), "rivaGan")
WatermarkDecoder.loadModel()
tell(read=WatermarkDecoder("bytes", 32).decode(marked, "rivaGan"), mean=marked.mean(axis=(0, 1)))
