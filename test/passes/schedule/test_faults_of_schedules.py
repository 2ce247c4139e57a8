"""A schedule rule of Mirlo that raises while it emits: in releases the next rule gets the kernel as it was."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from onnx_models import F32, make_model, node

import mirlo
from mirlo.passes.rules import ANY, SCHEDULE, RuleError, RuleWarning
from mirlo.passes.schedule.buffers import BufferFunction
from mirlo.passes.schedule.schedule import Kernel, ScheduleContext
from mirlo.testing import temporary_registrations

MODEL = make_model([node("Exp", "x", "y")], {"x": (F32, (4,))}, ["y"])


def unfinished(kernel: Kernel, context: ScheduleContext) -> None:
    """Begin the function that takes the kernel's place, and fail."""

    def body() -> None:
        raise ValueError("no such loop")

    BufferFunction(kernel.view).build(body, {"rule": "unfinished"})


def test_the_next_rule_takes_the_kernel() -> None:
    warnings.simplefilter("always", RuleWarning)
    x = np.linspace(-1, 1, 4, dtype=np.float32)
    with temporary_registrations("mirlo.own"):
        unfinished.__module__ = "mirlo.own"
        SCHEDULE.add(ANY, "llvm", unfinished, priority=1000)
        with pytest.warns(RuleWarning, match="unfinished for any on llvm' at .* raised ValueError: no such loop"):
            compiled = mirlo.compile(MODEL, cache=False)
        np.testing.assert_allclose(compiled(x), np.exp(x), rtol=1e-6)
        warnings.simplefilter("error", RuleWarning)
        with pytest.raises(
            Exception, match="unfinished for any on llvm' at .* raised ValueError: no such loop"
        ) as raised:
            mirlo.compile(MODEL, cache=False)
        assert isinstance(raised.value.__cause__, RuleError) or "pass 'schedule' failed" in str(raised.value)
