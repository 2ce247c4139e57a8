"""ONNX's cases of nodes, made in a quarter of the time.

An import of ONNX's cases computes the expected results of all of them, in 5.8 s of processor time, and each process of
the tests that needs some of them has to. Three poolings, loops of Python over 32,768 elements, take 3.7 s of these; the
source of each case, which ONNX's documentation shows, 0.7 s.
"""

from __future__ import annotations

from typing import Any

import numpy as np

SLOW = ("export_averagepool_3d_default", "export_lppool_3d_default", "export_maxpool_3d_default")
"""What is left out; other cases pool as many dims of smaller tensors."""


def leave_out_slow_cases() -> None:
    """Make ONNX generate its cases without those, in this process; call it before they are imported."""
    from onnx.backend.test.case import base

    base._Exporter.__init__ = _make_cases  # type: ignore[method-assign, assignment]


def _make_cases(cls: type, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> None:
    """Make the cases of an operator's class."""
    for member in members:
        if member.startswith("export") and member not in SLOW:
            np.random.seed(seed=0)
            getattr(cls, member)()
    type.__init__(cls, name, bases, members)
