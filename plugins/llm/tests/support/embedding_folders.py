"""Folders of tiny encoders: those of the example."""

from __future__ import annotations

import runpy

from repository import ROOT

_EXAMPLE = runpy.run_path(str(ROOT / "examples" / "tiny_encoder.py"))
SMALL, WORDS = _EXAMPLE["CONFIG"], _EXAMPLE["WORDS"]
write_encoder, write_tokenizer = _EXAMPLE["write"], _EXAMPLE["write_tokenizer"]
TEXTS = ["a blackbird sings", "the old tree in the rain", "rain", "a a a sings in the tree the old tree"]
