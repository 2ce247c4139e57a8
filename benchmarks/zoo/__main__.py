"""`python -m benchmarks.zoo`: export models, compare Mirlo with ONNX Runtime, keep results as JSON lines.

What `--out` has already is not done again: exported models stay there, results in `results.jsonl`.
`--report` writes docs/zoo.md from them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .entry import CONVERTED, DYNAMO, TORCHSCRIPT
from .families import FAMILIES, entries, mixed
from .report import write_page
from .run import Limits, Run

DOCS = Path(__file__).resolve().parents[2] / "docs"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--family", action="append", choices=FAMILIES, help="a family; may be repeated (all)")
    parser.add_argument("--match", action="append", help="only models whose full name contains this; may be repeated")
    parser.add_argument("--exporter", choices=(TORCHSCRIPT, DYNAMO, CONVERTED), help="only this exporter")
    parser.add_argument("--shapes", choices=("static", "dynamic"), help="only these shapes")
    parser.add_argument("--jobs", type=int, default=1, help="models at the same time (1); latencies need 1")
    parser.add_argument("--out", type=Path, default=Path(".cache/zoo"), help="folder of models and results")
    parser.add_argument("--seconds", type=int, default=180, help="limit of each export and each comparison (180)")
    parser.add_argument("--memory", type=int, default=8, help="limit of each process in GiB of address space (8)")
    parser.add_argument("--again", action="store_true", help="compare again what has a result")
    parser.add_argument("--again-failed", action="store_true", help="compare again what has failed")
    parser.add_argument("--architectures", type=int, help="number of architectures, some of each family (all)")
    parser.add_argument("--list", action="store_true", help="list the models")
    parser.add_argument("--report", nargs="?", const=DOCS / "zoo.md", type=Path, help="write the page and stop")
    arguments = parser.parse_args()
    if arguments.report:
        write_page(arguments.out / "results.jsonl", arguments.report)
        return 0
    run = Run(arguments.out, Limits(arguments.seconds, arguments.memory), arguments.jobs)
    matching = (
        variant
        for variant in entries(arguments.family)
        if any(each in variant.name for each in arguments.match or [""])
        and arguments.exporter in (None, variant.exporter)
        and arguments.shapes in (None, variant.shapes)
    )
    chosen = mixed(matching, arguments.architectures)
    if arguments.list:
        print("\n".join(variant.name for variant in chosen))
        return 0
    return run.all(chosen, again=arguments.again, failed=arguments.again_failed)


if __name__ == "__main__":
    sys.exit(main())
