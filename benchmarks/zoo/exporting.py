"""The exporting process: `python -m benchmarks.zoo.exporting FOLDER SECONDS GIB`, names of models on standard input.

torch and its libraries take seconds to import, so it imports them once and forks a process for each model, and answers
with a line of JSON.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
import traceback
from pathlib import Path

from .export import export
from .families import entries
from .run import PATIENCE


def main() -> None:
    folder, seconds, gibibytes = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    known = {variant.name: variant for variant in entries()}
    _preload()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # exporters print
    for line in sys.stdin:
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
            child = os.fork()
            if child == 0:
                resource.setrlimit(resource.RLIMIT_AS, (gibibytes << 30, gibibytes << 30))
                signal.alarm(PATIENCE * seconds)
                resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
                os.dup2(errors.fileno(), 2)
                os.dup2(errors.fileno(), 1)
                try:
                    export(known[line.strip()], folder)
                except BaseException:
                    traceback.print_exc()
                    os._exit(1)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            code = os.waitstatus_to_exitcode(status)
            errors.seek(0)
            late = code in (-signal.SIGALRM, -signal.SIGXCPU, -signal.SIGKILL)
            text = f"took more than {seconds} s of CPU time" if late else errors.read()[-20000:]
        answers.write(json.dumps({"code": code, "errors": text}) + "\n")
        answers.flush()


def _preload() -> None:
    """Import what most models need."""
    import torch

    from .vision_ops import load

    load()
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)  # its fused operators of attention are not exported
    for name in ("timm", "transformers", "onnxscript"):
        __import__(name)


if __name__ == "__main__":
    main()
