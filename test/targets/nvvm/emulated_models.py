"""The benchmark models, reduced, on an emulated GPU, compared with ONNX Runtime.

python test/targets/nvvm/emulated_models.py --chip sm_90a bert_base vit_base
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    here = Path(__file__).parent
    sys.path[:0] = [str(here), str(here.parents[1] / "support")]

from reduced_models import reduced, reference

import mirlo
from mirlo.testing.ptx.driver import emulated

MODELS = ("mobilenetv2", "resnet50", "vit_base", "bert_base", "gpt2")
TOLERANCE = 1e-4
"""Largest error, relative to the largest value of the output."""


def error(name: str, chip: str) -> float:
    """Return the largest error of a model's outputs, each relative to its largest value."""
    path = reduced(name)
    inputs, expected = reference(path)
    with emulated(chip) as driver:
        results = mirlo.compile(path, target=f"nvvm{{chip={chip}}}", cache=False).run(inputs)
        assert driver.launched
    assert results.keys() == expected.keys()
    return max(float(np.abs(results[key] - array).max() / np.abs(array).max()) for key, array in expected.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=MODELS, help="models; all if none is named")
    parser.add_argument("--chip", default="sm_80")
    given = parser.parse_args()
    worst = 0.0
    for name in given.names:
        found = error(name, given.chip)
        worst = max(worst, found)
        print(f"{name} on {given.chip}: relative error {found:.1e}", flush=True)
    return int(worst > TOLERANCE)


if __name__ == "__main__":
    raise SystemExit(main())
