"""`python -m benchmarks [MODEL...] [flags of mirlo bench]`: the models of this folder, measured by `mirlo bench`."""

from __future__ import annotations

import sys

from mirlo.tools.cli import main as mirlo

from .models import all_names, path

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
    cache = None
    if "--models" in flags:
        at = flags.index("--models")
        cache = flags[at + 1]
        del flags[at : at + 2]
    return mirlo(["bench", *(str(path(name, cache)) for name in chosen), *flags])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
