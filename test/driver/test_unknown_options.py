"""Functions with options by name reject unknown ones before they do anything."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mirlo.runtime.errors import MirloError
from mirlo.tools.quantize.static import quantize

CALLS: dict[str, Callable[[], object]] = {
    "quantization": lambda: quantize("none.onnx", "none.npz", thread=1),
}
"""What errors call them, and calls; those of `mirlo.compile` and of PyTorch's backend are in `test_options.py`."""


@pytest.mark.parametrize("name", CALLS)
def test_unknown_options_are_refused(name: str) -> None:
    with pytest.raises(MirloError, match=f"{name} has no option 'thread'; options: "):
        CALLS[name]()
