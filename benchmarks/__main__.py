"""`python -m benchmarks`: the five models, compiled, loaded in a new process, and timed beside ONNX Runtime."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

from .models import names

COLUMNS = (
    ("model", "{}"),
    ("compile s", "{:.1f}"),
    ("load s", "{:.2f}"),
    ("weights MiB", "{:.0f}"),
    ("ms", "{:.2f}"),
    ("onnxruntime ms", "{:.2f}"),
    ("times", "{:.2f}"),
    ("error", "{:.1e}"),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"some of {', '.join(names())} (default: all)")
    parser.add_argument("--threads", type=int, default=1, help="threads of both (default: 1)")
    parser.add_argument("--repeat", type=int, default=20, help="runs of each (default: 20)")
    parser.add_argument("--cache", help="folder of the models (default: ~/.cache/mirlo/models)")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.models if name not in names()]
    if unknown:
        parser.error(f"no model is named '{unknown[0]}'; there are: {', '.join(names())}")
    print("  ".join(title for title, _ in COLUMNS))
    failed = 0
    for name in arguments.models or names():
        row = _measure(name, arguments)
        failed += row is None
        if row is not None:
            cells = (form.format(value).rjust(len(title)) for (title, form), value in zip(COLUMNS, row, strict=True))
            print("  ".join(cells), flush=True)
    return 1 if failed else 0


def _measure(name: str, arguments: Any) -> list[Any] | None:
    """A row of the table, from a process of its own, so that one model's memory is not another's."""
    flags = [f"--threads={arguments.threads}", f"--repeat={arguments.repeat}"]
    flags += [f"--cache={arguments.cache}"] if arguments.cache else []
    done = subprocess.run([sys.executable, "-m", "benchmarks.measure", name, *flags], capture_output=True, text=True)
    if done.returncode:
        print(f"{name}: {done.stderr.strip()}", file=sys.stderr)
        return None
    return [name, *json.loads(done.stdout.splitlines()[-1])]


if __name__ == "__main__":
    sys.exit(main())
