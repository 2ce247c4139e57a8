"""Functions that take options by name refuse one that they do not have before they do anything."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mirlo import generate
from mirlo.runtime.errors import MirloError
from mirlo.serve.ray.deployment import _divide_options
from mirlo.tools.quantize.static import quantize

CALLS: dict[str, Callable[[], object]] = {
    "mirlo.generate.load": lambda: generate.load("none", thread=1),
    "mirlo.generate.load_embedding": lambda: generate.load_embedding("none", thread=1),
    "mirlo.generate.load_seq2seq": lambda: generate.load_seq2seq("none", thread=1),
    "mirlo.generate.load_speech": lambda: generate.load_speech("none", thread=1),
    "mirlo.serve.deployment": lambda: _divide_options({"thread": 1}),
    "quantization": lambda: quantize("none.onnx", "none.npz", thread=1),
}
"""What errors call them, and calls; those of `mirlo.compile` and of PyTorch's backend are in `test_options.py`."""


@pytest.mark.parametrize("name", CALLS)
def test_unknown_options_are_refused(name: str) -> None:
    with pytest.raises(MirloError, match=f"{name} has no option 'thread'; options: "):
        CALLS[name]()
