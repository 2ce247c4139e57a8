"""A host that reports an older processor, as `pytest --host-cpu` sets it."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ENVIRONMENT, output_of, python

from mirlo.runtime.host_cpu import HostCpu, _identification, host_cpu, restrict_host_cpu

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


@pytest.mark.skipif(sys.platform != "linux" or platform.machine() != "x86_64", reason="for Linux on x86-64")
def test_the_processor_is_asked_for_its_features() -> None:
    """Bits of CPUID's words are the flags that the system lists."""
    flags = Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split()
    (_, first, _), (_, seventh, *_), *_ = _identification()
    bits = {"pni": first, "avx": first >> 28, "avx2": seventh >> 5, "avx512f": seventh >> 16}
    assert {name for name, bit in bits.items() if bit & 1} == bits.keys() & set(flags)


EMULATOR = shutil.which("qemu-x86_64-static")


@pytest.mark.sample(0)
@pytest.mark.skipif(EMULATOR is None or platform.machine() != "x86_64", reason="needs qemu-user-static")
def test_an_emulated_processor_is_not_taken_for_the_host(tmp_path: Path) -> None:
    """Cached results for one are not used for the other."""
    text = "from mirlo.runtime.host_cpu import host_cpu; print(host_cpu().name)"
    environment = {**ENVIRONMENT, "XDG_CACHE_HOME": str(tmp_path)}
    commands = [[*emulator, sys.executable, "-c", text] for emulator in ((), (EMULATOR, "-cpu", "Nehalem"), ())]
    ran = [subprocess.run(command, capture_output=True, text=True, env=environment) for command in commands]
    host, emulated, again = (output_of(done).strip() for done in ran)
    assert host == again != emulated == "nehalem"
