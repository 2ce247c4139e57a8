"""What the comparison of kernels costs: cold compilations of the samples with and without `--verify`, in turns.

    python -m benchmarks.verify_cost [--rounds 3] [NAME...]

prints a table: seconds of CPU of `mirlo compile --no-cache`, those with `--verify`, and the median of their ratios;
then the same of wall time, with as many workers as users have.
Verdicts are not in the cache; the machine's code for products and accesses is, after a first compilation.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from statistics import median

from mirlo.tools import samples


def seconds_of(name: str, folder: str, options: list[str]) -> tuple[float, float]:
    """Return the CPU seconds of a compilation in a process of its own, with those of its workers, and the wall time."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    start, before = time.perf_counter(), os.times()
    command = ["-m", "mirlo", "compile", "--sample", name, "--no-cache", "-o", f"{folder}/model.mirlo", *options]
    subprocess.run(
        [sys.executable, *command],
        check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    after, elapsed = os.times(), time.perf_counter() - start
    return after.children_user + after.children_system - before.children_user - before.children_system, elapsed


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=["mobilenetv2", "resnet50", "bert_base", "vit_base", "gpt2"])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    heads = ("cold compilation", "with `--verify`", "ratio")
    print(f"| model | {' | '.join(heads)} | wall time: {' | '.join(heads)} |\n| --- |{' ---: |' * 6}")
    for name in arguments.names:
        samples.path(name)
        with tempfile.TemporaryDirectory() as folder:
            seconds_of(name, folder, ["--verify"])
            rounds = [
                [seconds_of(name, folder, options) for options in ([], ["--verify"])] for _ in range(arguments.rounds)
            ]
        cells = []
        for which in range(2):  # CPU, and wall time
            pairs = [(plain[which], verified[which]) for plain, verified in rounds]
            cells += [f"{median(times):.1f} s" for times in zip(*pairs, strict=True)]
            cells.append(f"{median(verified / plain for plain, verified in pairs):.2f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
