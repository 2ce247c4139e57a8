"""The run time in C: its calls of the system, and compilers other than GCC and Clang."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from c_compiler import needs_c_compiler, sanitizer_flags
from libraries import make_program, make_source_program
from library_models import MODELS, compiler, dynamic_model

from mirlo.targets.llvm.library.sources import RUN_TIME_FOLDER

pytestmark = needs_c_compiler


@pytest.mark.sample(0)
@pytest.mark.skipif(sys.platform != "linux" or platform.libc_ver()[0] != "glibc", reason="counts what glibc gives")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_later_calls_take_no_memory_of_the_c_library(name: str, threads: int, tmp_path: Path) -> None:
    make, inputs = MODELS[name]
    program = make_program(make(), tmp_path, compiler(), threads=threads, flags=["-DCOUNT_MALLOC"])
    program.run(inputs, 1, 20)


RUN_TIME_CALLS = {
    "malloc", "free", "memcpy", "memset", "memcmp", "strlen", "strcmp", "strrchr", "strcspn", "vsnprintf", "snprintf",
    "__vsnprintf_chk", "__snprintf_chk", "__stack_chk_fail", "open", "read", "close", "fstat", "mmap", "munmap",
    "dlopen", "dlsym", "dlclose", "dlerror", "sched_getaffinity", "pthread_once", "pthread_atfork",
    "pthread_mutex_lock", "pthread_mutex_unlock", "sysconf", "getauxval", "prctl", "syscall", "_GLOBAL_OFFSET_TABLE_",
    "mirlo_parallel", "mirlo_pool_start", "mirlo_pool_reset", "mirlo_pool_cores",
}  # fmt: skip
"""What the run time calls: neither exit nor abort, printf nor write; `syscall` asks for permission to use tiles."""


def _undefined(path: Path) -> set[str]:
    done = subprocess.run(["nm", "-u", str(path)], capture_output=True, text=True, check=True)
    return {line.split()[-1].partition("@")[0] for line in done.stdout.splitlines()} - {"mirlo_weights_model"}


@pytest.mark.sample(0)
@pytest.mark.skipif(shutil.which("nm") is None, reason="there is no nm")
def test_nothing_exits_or_prints(tmp_path: Path) -> None:
    """The functions of the system that models and the run time call are known: none ends the process or writes."""
    for name, (make, _) in MODELS.items():
        make_program(make(), tmp_path / name, compiler(), threads=2)
    made = tmp_path / "dynamic"
    subprocess.run([compiler(), "-O2", "-c", str(made / "mirlo.c"), "-o", str(made / "mirlo.o")], check=True)
    assert _undefined(made / "mirlo.o") <= RUN_TIME_CALLS, _undefined(made / "mirlo.o") - RUN_TIME_CALLS
    for path in tmp_path.glob("*/model*.o"):
        assert _undefined(path) <= {"memcpy", "memset", "memmove", "fmaf", "fma", "fmod", "fmodf"}


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_null_arguments_have_a_status(target: str, tmp_path: Path) -> None:
    if target == "c":
        make_source_program(dynamic_model(), tmp_path, compiler())
    else:
        make_program(dynamic_model(), tmp_path, compiler())
    source = Path(__file__).parents[3] / "support" / "null_arguments.c"
    objects = sorted(map(str, tmp_path.glob("*.o")))
    objects += [] if target == "c" else [str(tmp_path / "mirlo.c")]
    command = [compiler(), "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-DMODEL=mirlo_model_model", f"-I{tmp_path}"]
    flags = sanitizer_flags(compiler(), "address,undefined", tmp_path / "probe")
    linked = [str(source), *objects, "-o", str(tmp_path / "main"), "-lm", "-ldl", "-lpthread"]
    for each in ([*command, *flags, *linked], [str(tmp_path / "main")]):
        done = subprocess.run(each, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="pipes with names")
def test_weights_are_a_regular_file(tmp_path: Path) -> None:
    program = make_program(dynamic_model(), tmp_path, compiler(), weights="beside")
    os.mkfifo(tmp_path / "pipe")
    for path in ("pipe", "."):
        done = program.start(1, 1, str(tmp_path / path))
        assert "status 4" in done.stderr and "cannot read the weights" in done.stderr


HEADERS = Path("/usr/include/wine/wine")
"""Wine's headers for programs of Microsoft's compiler (`libwine-dev`)."""


@pytest.mark.skipif(
    find_spec("ziglang") is None or not HEADERS.exists(), reason="there is no ziglang, or no libwine-dev"
)
# The second is without all that Clang has beyond Microsoft's compiler: its assembly and <cpuid.h>.
@pytest.mark.parametrize("flags", [(), ("-U__clang__", "-mxsave")])
def test_conventions_of_microsoft(flags: tuple[str, ...], tmp_path: Path) -> None:
    import ziglang

    own = Path(ziglang.__file__).parent / "lib" / "include"
    where = [f"-isystem{folder}" for folder in (own, HEADERS / "msvcrt", HEADERS / "windows")]
    command = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-windows-msvc", "-nostdinc", *where, *flags]
    command += ["-fms-extensions", "-fms-compatibility-version=19.30", "-Wall", "-Wextra", "-Werror"]
    command += ["-c", str(RUN_TIME_FOLDER / "mirlo.c"), "-o", str(tmp_path / "mirlo.o")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
