"""Round trip of MLIR and script at every stage of the complete benchmark models, each in a process of its own.

python test/frontends/script/stages_of_models.py [--cache FOLDER] [--target LIST] [--today | MODEL...]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from datetime import date

from mirlo.benchmarks import models
from mirlo.testing import stages_round_trip

MODELS = ("mobilenetv2", "resnet50", "bert_base", "gpt2", "vit_base")


def check(name: str, target: str, cache: str | None) -> None:
    """Check one model; print its stages, the time and the memory that it took."""
    path = models.path(name, cache)
    start = time.monotonic()
    stages = stages_round_trip(path, target)
    seconds, kib = time.monotonic() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{name} for {target}: {len(stages)} stages in {seconds:.0f} s, {kib / 1024:.0f} MiB", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--target", default="llvm", help="as mirlo takes it (default: llvm)")
    parser.add_argument("--cache", help="folder of the models")
    parser.add_argument("--today", action="store_true", help="one of the models, another one each day")
    arguments = parser.parse_args()
    if arguments.today:
        arguments.models = [MODELS[date.today().toordinal() % len(MODELS)]]
    if len(arguments.models) == 1:
        check(arguments.models[0], arguments.target, arguments.cache)
        return 0
    flags = ["--target", arguments.target, *(["--cache", arguments.cache] if arguments.cache else [])]
    codes = [subprocess.run([sys.executable, __file__, *flags, name]).returncode for name in arguments.models]
    return max(codes)


if __name__ == "__main__":
    raise SystemExit(main())
