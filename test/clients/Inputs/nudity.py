"""nudenet: parts of bodies in an image."""

import nudenet.nudenet as package
from inputs import scene, tell
from nudenet import NudeDetector

detector = NudeDetector()
image = package._read_image(scene())[0]
tell(
    found=detector.detect(scene()),
    several=detector.detect_batch([scene(), scene((200, 300))]),
    raw=detector.onnx_session.run(None, {detector.input_name: image})[0][0, :, ::40],
)
