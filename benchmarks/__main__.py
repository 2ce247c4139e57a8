"""The models of this folder, measured by `mirlo bench`.

    python -m benchmarks [MODEL...] [--models FOLDER] [--symbols] [--isa avx2] [flags of mirlo bench]

With `--symbols` the batch is symbolic; `--dim batch=16` sets it for the runs. With `--isa avx2` all engines do without
AVX-512 and what else lies above AVX2, as on a processor that lacks it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mirlo.runtime.errors import MirloError
from mirlo.tools.cli import main as mirlo

from .isa import TARGETS, RestrictionError, restricted_python
from .models import all_names, path, path_with_symbols

CLAIMED = ("resnet50", "mobilenetv2", "bert_base", "gpt2", "vit_base", "mlp", "lenet")
"""The models that are measured when none is named; `all` stands for every one there is."""


def main(argv: list[str]) -> int:
    """Fill the models that are named, and measure them."""
    if argv and argv[0] in ("-h", "--help"):
        print(f"{__doc__}\nmodels: all, {', '.join(all_names())}\n")
        return mirlo(["bench", "--help"])
    count = next((i for i, word in enumerate(argv) if word.startswith("-")), len(argv))
    named, flags = argv[:count], argv[count:]
    chosen = all_names() if named == ["all"] else named or list(CLAIMED)
    unknown = [name for name in chosen if name not in all_names()]
    if unknown:
        print(f"no model is named '{unknown[0]}'; there are: {', '.join(all_names())}", file=sys.stderr)
        return 2
    cache, isa = _take(flags, "--models"), _take(flags, "--isa")
    symbols = "--symbols" in flags
    flags = [flag for flag in flags if flag != "--symbols"]
    models = [(path_with_symbols if symbols else path)(name, cache) for name in chosen]
    try:
        restricted = _restrict(isa, flags, models[0].parent) if isa is not None else []
    except MirloError as error:
        print(error, file=sys.stderr)
        return 2
    return mirlo(["bench", *map(str, models), *flags, *restricted])


def _take(flags: list[str], name: str) -> str | None:
    """Remove a flag and return its value; None if it is not there."""
    if name not in flags[:-1]:
        return None
    at = flags.index(name)
    value = flags[at + 1]
    del flags[at : at + 2]
    return value


def _restrict(isa: str, flags: list[str], cache: Path) -> list[str]:
    """Return the flags with which all engines use these instructions only."""
    if isa not in TARGETS:
        raise RestrictionError(f"--isa {isa}: expected one of {', '.join(TARGETS)}")
    against = flags[flags.index("--against") + 1] if "--against" in flags[:-1] else ""
    added = []
    for engine in filter(None, against.split(",")):
        added += ["--python", f"{engine}={restricted_python(engine, isa, cache)}"]
    return added if "--target" in flags else [*added, "--target", TARGETS[isa]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
