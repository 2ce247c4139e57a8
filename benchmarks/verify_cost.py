"""What the comparison of kernels costs: cold compilations of the samples with and without `--verify`, in turns.

    python -m benchmarks.verify_cost [--rounds 3] [NAME...]

prints a table: seconds of CPU of `mirlo compile --no-cache`, those with `--verify`, and the median of their ratios.
Verdicts are not in the cache; the machine's code for products and accesses is, after a first compilation.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from statistics import median

from mirlo.tools import samples


def seconds_of(name: str, folder: str, options: list[str]) -> float:
    """Return the CPU seconds of a compilation in a process of its own, with those of its workers."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    before = os.times()
    command = ["-m", "mirlo", "compile", "--sample", name, "--no-cache", "-o", f"{folder}/model.mirlo", *options]
    subprocess.run(
        [sys.executable, *command],
        check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=["mobilenetv2", "resnet50", "bert_base", "vit_base", "gpt2"])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print("| model | cold compilation | with `--verify` | ratio |\n| --- | ---: | ---: | ---: |")
    for name in arguments.names:
        samples.path(name)
        with tempfile.TemporaryDirectory() as folder:
            seconds_of(name, folder, ["--verify"])
            rounds = [
                [seconds_of(name, folder, options) for options in ([], ["--verify"])] for _ in range(arguments.rounds)
            ]
        plain, verified = (median(times) for times in zip(*rounds, strict=True))
        ratio = median(b / a for a, b in rounds)
        print(f"| {name} | {plain:.1f} s | {verified:.1f} s | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
