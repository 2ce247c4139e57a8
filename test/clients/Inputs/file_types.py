"""magika: the types of files."""

from inputs import tell
from magika import Magika

CONTENTS = [
    b"import os\nfor name in os.listdir('.'):\n    print(name)\n" * 5,
    b'#include <stdio.h>\nint main(void) { printf("x"); return 0; }\n' * 5,
    b'{"a": [1, 2, 3], "b": {"c": null}}\n' * 10,
    b"%PDF-1.4\n1 0 obj << /Type /Catalog >> endobj\n" * 10,
    b"<html><head><title>x</title></head><body><p>text</p></body></html>" * 4,
    b"The quick brown fox jumps over the lazy dog. " * 20,
]
results = [Magika().identify_bytes(content) for content in CONTENTS]
tell(labels=[str(r.output.label) for r in results], scores=[float(r.score) for r in results])
