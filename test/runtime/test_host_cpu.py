"""A host that seems to be an older processor, as `pytest --host-cpu` lets it."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
from commands import output_of, python

from mirlo.runtime.host_cpu import HostCpu, host_cpu, restrict_host_cpu

SEEN = """
from mirlo.targets.llvm.options import parse_options
found = parse_options("")
print(found.processor.cpu, *found.processor.features, found.machine.vector_bytes)
"""
MASKED = f"""
import subprocess, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from masked_host import mask
mask("x86-64-v2", Path(sys.argv[2]))
exec({SEEN!r})
sys.stdout.flush()
subprocess.run([sys.executable, "-c", {SEEN!r}], check=True)
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="for x86-64")
def test_processes_that_a_masked_one_starts_are_masked(tmp_path: Path) -> None:
    if "sse4.2" not in host_cpu().features:
        pytest.skip("this machine lacks SSE4.2")
    support = Path(__file__).parents[1] / "support"
    own, child = output_of(python("-c", MASKED, support, tmp_path)).splitlines()
    assert own == child == "x86-64-v2 popcnt sse3 sse4.1 sse4.2 ssse3 16"


def test_a_processor_that_was_asked_for_stays() -> None:
    assert isinstance(host_cpu(), HostCpu)
    with pytest.raises(RuntimeError, match="restrict_host_cpu must come first"):
        restrict_host_cpu("x86-64-v2", ["avx2"])
