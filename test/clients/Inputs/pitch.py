"""swift-f0: the pitch of a voice."""

from inputs import tell, voice
from swift_f0 import SwiftF0

found = SwiftF0().detect(voice(3.0), 16000)
tell(pitch=found.pitch_hz, confidence=found.confidence)
