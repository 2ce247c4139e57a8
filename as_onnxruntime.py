"""`python -m mirlo.as_onnxruntime PROGRAM [ARGUMENTS]`: run a program with Mirlo in the place of ONNX Runtime."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from mirlo.driver.inference.modules import as_onnxruntime

_USAGE = """usage: python -m mirlo.as_onnxruntime PROGRAM [ARGUMENTS]
       python -m mirlo.as_onnxruntime -m MODULE [ARGUMENTS]

Run a Python program, or a module, in which `import onnxruntime` gives Mirlo's sessions."""


def run_program(arguments: list[str]) -> int:
    """Run the program that the command line names; return the exit status."""
    if not arguments or arguments[0] in ("-h", "--help") or arguments == ["-m"]:
        try:
            print(_USAGE, flush=True)
        except OSError as error:
            print(f"python -m mirlo.as_onnxruntime: error: cannot write the usage: {error.strerror}", file=sys.stderr)
            sys.stdout = None  # its buffer is not written again at exit
            return 1
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    if arguments[0] != "-m" and not Path(arguments[0]).exists():
        print(f"python -m mirlo.as_onnxruntime: there is no program '{arguments[0]}'", file=sys.stderr)
        return 2
    as_onnxruntime()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = str(Path(arguments[0]).resolve().parent)
        runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(run_program(sys.argv[1:]))
# The module is imported as a function: `mirlo.as_onnxruntime()` means the same whether something imported it or not.
sys.modules[__name__] = as_onnxruntime  # type: ignore[assignment]
