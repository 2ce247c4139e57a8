"""Models as libraries for C: sizes, start times, and what a call costs beside the model's code.

    python -m benchmarks.libraries [MODEL...] [--iree PYTHON]

Each is linked, with its weights in a file beside it, and opened by a program of C, the least of five processes, on one
thread. Times are CPU times: what other programs take does not count. Beside it ONNX Runtime, where it is installed:
its library, and the time from the file to a session and to the first result, after its import. With a Python that has
IREE's compiler and run time, also IREE: its module, which holds code and weights, and the times from that file, mapped
into memory, to a context and to the first result.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from mirlo.driver.code import compile_code
from mirlo.driver.request import CompileRequest
from mirlo.targets.c.compiler import find_compiler
from mirlo.targets.llvm.library.build import write_library

from .__main__ import CLAIMED
from .models import path

PROCESSES = 5
_SESSION = """
import sys, time, numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
start = time.process_time()
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
made = time.process_time()
kinds = {"tensor(float)": numpy.float32, "tensor(int64)": numpy.int64, "tensor(int32)": numpy.int32}
given = {}
for spec in session.get_inputs():
    given[spec.name] = numpy.zeros([dim if isinstance(dim, int) else 1 for dim in spec.shape], kinds[spec.type])
session.run(None, given)
print((made - start) * 1e6, (time.process_time() - made) * 1e6)
"""


_IREE = """
import sys, time, numpy
import iree.runtime as runtime
start = time.process_time()
config = runtime.Config("local-sync")
module = runtime.VmModule.mmap(config.vm_instance, sys.argv[1])
context = runtime.SystemContext(config=config)
context.add_vm_module(module)
entry = next(name for name in module.function_names if not name.startswith("__") and "$" not in name)
function = context.modules[module.name][entry]
made = time.process_time()
arrays = []
for given in sys.argv[2:]:
    dtype, *dims = given.split("x")
    arrays.append(runtime.asdevicearray(config.device, numpy.zeros(list(map(int, dims)), dtype)))
start_of_call = time.process_time()
found = function(*arrays)
(found[0] if isinstance(found, (list, tuple)) else found).to_host()
print((made - start) * 1e6, (time.process_time() - start_of_call) * 1e6)
"""
_IREE_COMPILE = """
import sys
import iree.compiler as compiler
from iree.compiler.tools.import_onnx import __main__ as importer
assert not importer.main(importer.parse_arguments([sys.argv[1], "-o", sys.argv[2] + ".mlir", "--opset-version", "17"]))
compiler.compile_file(sys.argv[2] + ".mlir", input_type="onnx", output_file=sys.argv[2], extra_args=sys.argv[3:])
"""
_IREE_FLAGS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
)
_IREE_SIZE = """
import iree.runtime, pathlib
folder = pathlib.Path(iree.runtime.__file__).parents[1]
print(sum(file.stat().st_size for file in folder.glob("_runtime_libs/_runtime*.so")))
"""


def measure(command: list[str]) -> list[float]:
    """Run a program several times; return the least of each number that it prints."""
    times = []
    for _ in range(PROCESSES):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        times.append([float(word) for word in done.stdout.split()])
    return [min(column) for column in zip(*times, strict=True)]


def library(name: str, folder: Path) -> tuple[Path, Path]:
    """Make the library of a model and the program that opens it; return both."""
    artifact, store = compile_code(CompileRequest(str(path(name)), form="llvm-ir"))
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


def iree_cells(python: str, name: str, folder: Path) -> list[str]:
    """Compile a model with IREE; return the cells of its module, or dashes where it cannot be compiled."""
    import onnx

    module = folder / "model.vmfb"
    done = subprocess.run(
        [python, "-c", _IREE_COMPILE, str(path(name)), str(module), *_IREE_FLAGS], capture_output=True, check=False
    )
    if done.returncode:
        return ["-", "-", "-"]
    graph = onnx.load(str(path(name)), load_external_data=False).graph
    known = {tensor.name for tensor in graph.initializer}
    specs = []
    for value in graph.input:
        if value.name not in known:
            tensor = value.type.tensor_type
            dims = [str(dim.dim_value or 1) for dim in tensor.shape.dim]
            specs.append("x".join([str(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)), *dims]))
    opened, first = measure([python, "-c", _IREE, str(module), *specs])
    return [f"{module.stat().st_size / 1e6:.1f} MB", f"{opened / 1e3:.2f} ms", f"{first / 1e3:.2f} ms"]


def main(names: list[str], iree: str | None = None) -> None:
    """Print a table of Markdown."""
    others = runtime_of_others()
    print("| model | library | weights | open | first call | beside the code |", end="")
    print(" ONNX Runtime: session | first call |" if others else "", end="")
    print(" IREE: module | open | first call |" if iree else "")
    print("| --- |" + " ---: |" * (5 + 2 * bool(others) + 3 * bool(iree)))
    size = 0
    for name in names or CLAIMED:
        with tempfile.TemporaryDirectory(prefix="mirlo-libraries-") as folder:
            shared, program = library(name, Path(folder))
            size = run_time_bytes(program)
            stored = sum(file.stat().st_size for file in Path(folder).glob("*.weights"))
            opened, first, beside = measure([str(program), str(shared), name])
            row = [
                name, f"{shared.stat().st_size / 1e3:.0f} kB", f"{stored / 1e6:.1f} MB", f"{opened / 1e3:.2f} ms",
                f"{first / 1e3:.2f} ms", f"{beside:.0f} ns",
            ]  # fmt: skip
        if others:
            session, ran = measure([sys.executable, "-c", _SESSION, str(path(name))])
            row += [f"{session / 1e3:.0f} ms", f"{ran / 1e3:.2f} ms"]
        if iree:
            with tempfile.TemporaryDirectory(prefix="mirlo-libraries-") as folder:
                row += iree_cells(iree, name, Path(folder))
        print(f"| {' | '.join(row)} |", flush=True)
    print(f"\nThe run time is {size / 1e3:.0f} kB of a program", end="")
    print(f", the libraries of ONNX Runtime are {others / 1e6:.0f} MB" if others else "", end="")
    if iree:
        completed = subprocess.run([iree, "-c", _IREE_SIZE], capture_output=True, text=True, check=True).stdout
        print(f", that of IREE's run time for Python is {int(completed) / 1e6:.1f} MB", end="")
    print(".")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.libraries")
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--iree", metavar="PYTHON", help="a Python with iree-base-compiler, iree-base-runtime and onnx")
    arguments = parser.parse_args()
    main(arguments.models, arguments.iree)
