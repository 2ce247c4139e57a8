"""Models as libraries for C: sizes, start times, and what a call costs beside the model's code.

    python -m benchmarks.libraries [MODEL...]

Each is linked, with its weights in a file beside it, and opened by a program of C, the least of five processes, on one
thread. Beside it ONNX Runtime, where it is installed: its library, and the time from the file to a session and to the
first result, after its import.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from mirlo.driver.code import compile_code
from mirlo.targets.c.compiler import find_compiler
from mirlo.targets.llvm.library.build import write_library

from .__main__ import CLAIMED
from .models import path

PROCESSES = 5
_SESSION = """
import sys, time, numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
start = time.perf_counter()
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
made = time.perf_counter()
kinds = {"tensor(float)": numpy.float32, "tensor(int64)": numpy.int64, "tensor(int32)": numpy.int32}
given = {}
for spec in session.get_inputs():
    given[spec.name] = numpy.zeros([dim if isinstance(dim, int) else 1 for dim in spec.shape], kinds[spec.type])
session.run(None, given)
print((made - start) * 1e6, (time.perf_counter() - made) * 1e6)
"""


def measure(command: list[str]) -> list[float]:
    """Run a program several times; return the least of each number that it prints."""
    found = []
    for _ in range(PROCESSES):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append([float(word) for word in done.stdout.split()])
    return [min(column) for column in zip(*found, strict=True)]


def library(name: str, folder: Path) -> tuple[Path, Path]:
    """Make the library of a model and the program that opens it; return both."""
    artifact, store = compile_code(str(path(name)), form="llvm-ir")
    written = write_library(artifact, store, folder, name, shared=True, weights="beside")
    program = folder / "program"
    sources = [str(Path(__file__).with_suffix(".c")), str(folder / "mirlo.c"), str(folder / "mirlo_pool.o")]
    command = [
        find_compiler(),
        "-std=gnu99",
        "-O2",
        f"-I{folder}",
        *sources,
        "-o",
        str(program),
        "-ldl",
        "-lm",
        "-lpthread",
    ]
    subprocess.run(command, check=True)
    return written[0], program


def run_time_bytes(program: Path) -> int:
    """Return the bytes of machine code and data of the run time, as `size` counts those of the program."""
    listed = subprocess.run(["size", str(program)], capture_output=True, text=True, check=True).stdout.splitlines()
    return sum(map(int, listed[1].split()[:2]))


def runtime_of_others() -> int | None:
    """Return the bytes of ONNX Runtime's libraries; None where it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    return sum(file.stat().st_size for file in Path(onnxruntime.__file__).parent.rglob("*.so*"))


def main(names: list[str]) -> None:
    """Print a table of Markdown."""
    others = runtime_of_others()
    print("| model | library | weights | open | first call | beside the code |", end="")
    print(" ONNX Runtime: session | first call |" if others else "")
    print("| --- |" + " ---: |" * (7 if others else 5))
    size = 0
    for name in names or CLAIMED:
        with tempfile.TemporaryDirectory(prefix="mirlo-libraries-") as made:
            shared, program = library(name, Path(made))
            size = run_time_bytes(program)
            stored = sum(file.stat().st_size for file in Path(made).glob("*.weights"))
            opened, first, beside = measure([str(program), str(shared), name])
            row = [
                name, f"{shared.stat().st_size / 1e3:.0f} kB", f"{stored / 1e6:.1f} MB", f"{opened / 1e3:.2f} ms",
                f"{first / 1e3:.2f} ms", f"{beside:.0f} ns",
            ]  # fmt: skip
        if others:
            session, ran = measure([sys.executable, "-c", _SESSION, str(path(name))])
            row += [f"{session / 1e3:.0f} ms", f"{ran / 1e3:.2f} ms"]
        print(f"| {' | '.join(row)} |", flush=True)
    print(f"\nThe run time is {size / 1e3:.0f} kB of a program", end="")
    print(f", the libraries of ONNX Runtime are {others / 1e6:.0f} MB." if others else ".")


if __name__ == "__main__":
    main(sys.argv[1:])
