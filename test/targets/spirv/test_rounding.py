"""f64 is rounded as numpy does it, on Mesa's software device of every processor too."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from devices import needs_vulkan

pytestmark = needs_vulkan()

NAMES = ("trunc", "round", "roundeven", "pow", "fmod", "remainder", "floor", "ceil")


@pytest.mark.parametrize("features", ["", "avx"])  # those that Mesa finds; none beyond AVX
@pytest.mark.sample(0)
def test_f64_is_rounded_right(features: str) -> None:
    command = [sys.executable, "-m", "mirlo", "check-target", "spirv", "--json"]
    command += [word for name in NAMES for word in ("--operator", f"tir.{name}")]
    environment = {**os.environ, "GALLIUM_OVERRIDE_CPU_CAPS": features}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    entries = json.loads(done.stdout)["entries"]
    states = {name: verdicts["f64"]["status"] for name, verdicts in entries.items()}
    assert states == {f"tir.{name}": "ok" for name in NAMES}
