"""Engines without AVX-512: a library whose `cpuid` is answered by another one."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from c_compiler import needs_c_compiler
from commands import python

from mirlo.benchmarks.isa import CPUID, TRAP, preloaded_library, replace_cpuid
from mirlo.targets.c.compiler import find_compiler

pytestmark = [
    needs_c_compiler,
    pytest.mark.skipif(sys.platform != "linux" or platform.machine() != "x86_64", reason="for x86-64 Linux"),
    pytest.mark.skipif(shutil.which("objdump") is None, reason="there is no objdump"),
]

LIBRARY = r"""
#include <cpuid.h>
#include <stdio.h>
#include <string.h>
const unsigned char looks_alike[] = {0x0f, 0xa2, 0x0f, 0xa2};
unsigned immediate(void) { return 0xa20f; }
__attribute__((constructor)) static void before_main(void) { unsigned a, b, c, d; __cpuid_count(7, 0, a, b, c, d); }
void show(void) {
  unsigned a, b, c, d;
  char vendor[13] = "";
  __cpuid(0, a, b, c, d);
  memcpy(vendor, &b, 4), memcpy(vendor + 4, &d, 4), memcpy(vendor + 8, &c, 4);
  __cpuid_count(7, 0, a, b, c, d);
  printf("%s avx2=%u avx512=%u %x\n", vendor, b >> 5 & 1, b >> 16 & 1, immediate());
}
"""
PROGRAM = """
void show(void);
int main(int count, char **words) { (void)words; show(); if (count > 1) __builtin_trap(); return 0; }
"""


def _run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a program, its library, and the library to preload."""
    made = tmp_path_factory.mktemp("isa")
    (made / "library.c").write_text(LIBRARY)
    (made / "program.c").write_text(PROGRAM)
    flags = ["-O1", "-fPIC", "-shared"]
    for command in (
        [*flags, str(made / "library.c"), "-o", str(made / "libshow.so")],
        [str(made / "program.c"), f"-L{made}", "-lshow", f"-Wl,-rpath,{made}", "-o", str(made / "program")],
    ):
        subprocess.run([find_compiler(), *command], check=True)
    preloaded_library(made)
    return made


def test_answers_lack_avx512(folder: Path) -> None:
    program, preload = str(folder / "program"), {"LD_PRELOAD": str(folder / "cpuid.so")}
    plain = _run(program)
    vendor, avx2, _, immediate = plain.stdout.split()
    content = (folder / "libshow.so").read_bytes()
    found = replace_cpuid(folder / "libshow.so")
    patched = (folder / "libshow.so").read_bytes()
    assert found >= 3 and content.count(CPUID) - patched.count(CPUID) == found
    assert patched.count(CPUID) >= 2, "data is not code"
    assert content.replace(CPUID, TRAP) != patched and len(content) == len(patched)
    assert _run(program, **preload).stdout.split() == [vendor, avx2, "avx512=0", immediate]
    assert _run(program).returncode == -signal.SIGILL, "the trap is not executed"
    assert _run(program, "trap", **preload).returncode == -signal.SIGILL, "other traps end the process"


def test_samples_are_counted(folder: Path, tmp_path: Path) -> None:
    counts = tmp_path / "counts"
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    done = _run(sys.executable, "-c", spin, LD_PRELOAD=str(folder / "cpuid.so"), MIRLO_COUNT_EVEX=str(counts))
    assert done.returncode == 0, done.stderr
    samples, evex = map(int, counts.read_text().split())
    assert samples > 5 and 0 <= evex < samples


def test_what_cannot_be_restricted_is_an_error() -> None:
    for flags, message in (
        (["--isa", "sse9"], "--isa sse9: expected one of avx2"),
        (["--isa", "avx2", "--against", "tvm"], "tvm cannot be restricted"),
    ):
        done = python("-m", "benchmarks", "lenet", *flags)
        assert done.returncode == 2 and message in done.stderr
