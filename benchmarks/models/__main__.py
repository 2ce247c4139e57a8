"""`python -m benchmarks.models resnet50 out.onnx` writes a complete model; without a file, into the cache."""

from __future__ import annotations

import argparse
import sys

from . import all_names, fill, path


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description="Write a complete model.")
    parser.add_argument("model", choices=all_names(), help="which model")
    parser.add_argument("output", nargs="?", help="file to write; default: a file in the cache folder")
    parser.add_argument("--cache", help="cache folder (default: ~/.cache/mirlo/models)")
    arguments = parser.parse_args()
    if arguments.output:
        print(fill(arguments.model, arguments.output))
    else:
        print(path(arguments.model, arguments.cache))
    return 0


if __name__ == "__main__":
    sys.exit(main())
